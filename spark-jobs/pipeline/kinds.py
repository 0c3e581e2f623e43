"""The kinds of difference in plain words, and what a proof's document says of a single flow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kind:
    """A kind of difference."""

    name: str
    """As in the document."""
    label: str
    meaning: str
    always: bool = True
    """Whether it has a column of its own even where there is none of it."""


FAULTS = (
    Kind("missing", "missing", "at the source, not at the target"),
    Kind("duplicates", "duplicates", "more copies at the target than the source has"),
    Kind("altered", "altered", "at both, but key, value, timestamp or headers are not the same"),
    Kind("unexpected", "unexpected", "at the target, and never at the source"),
    Kind("reordered", "reordered", "at the target before a record that it comes after at the source"),
    Kind("moved", "moved", "unchanged, but in another partition of the target", always=False),
    Kind(
        "never_mirrored",
        "never mirrored",
        "gone from the source before the mirror had copied it, by the producer's sequence numbers",
        always=False,
    ),
)
"""Every kind that disproves, in the order of a table's columns."""
NO_FAULTS = (
    Kind("after_cut", "after the cut", "at the target, newer than the cut: not judged"),
    Kind("expired", "expired", "removed by retention on one side"),
    Kind(
        "source_gaps",
        "gaps at the source",
        "sequence numbers that no source record has: the producer's matter, or retention's",
    ),
)
_MIRROR = re.compile(r"\bmirror ([^\s:]+)")


@dataclass(frozen=True)
class Finding:
    """What a document says of one flow."""

    verdict: str
    """``proved``, ``disproved`` or ``inconclusive``, of this flow alone."""
    reasons: list[str]


def findings(document: Mapping[str, Any]) -> list[Finding]:
    """Judges each flow by itself.

    Args:
        document: the proof, as from ``pipeline.verdict.judge``.

    Returns:
        One for each entry of ``flows``, in their order. A flow is disproved by faults of its own, and undecided by a
        reason that names its mirror or no mirror and no flow: such a reason may concern every flow.
    """
    own = [_own_reasons(document, flow) for flow in document["flows"]]
    of_flows = {reason for reasons in own for reason in reasons}
    doubts = [reason for reason in document["reasons"] if reason not in of_flows]
    return [_finding(document, flow, reasons, doubts) for flow, reasons in zip(document["flows"], own, strict=True)]


def _finding(document: Mapping[str, Any], flow: Mapping[str, Any], reasons: list[str], doubts: list[str]) -> Finding:
    if any(flow[kind.name] for kind in FAULTS) or flow["config_differences"]:
        # What was found but may not be the mirror's fault leaves the whole verdict open.
        return Finding("inconclusive" if document["verdict"] == "inconclusive" else "disproved", reasons)
    undecided = [reason for reason in doubts if flow["mirror"] in (_MIRROR.findall(reason) or [flow["mirror"]])]
    return Finding("inconclusive" if undecided else "proved", undecided)


def _own_reasons(document: Mapping[str, Any], flow: Mapping[str, Any]) -> list[str]:
    """Those of the document's reasons that are this flow's alone."""
    starts = (
        f"{flow['topic']}, {flow['source']} → {flow['target']}: ",
        # A partition whose log has lost its beginning.
        *(f"{flow['target']}: {flow['target_topic']}-{row['partition']} begins " for row in flow["by_partition"]),
    )
    return [reason for reason in document["reasons"] if reason.startswith(starts)]


def printable(text: str) -> str:
    """The text without what XML cannot hold and a reader cannot see: each such character becomes one that says so."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
