"""Findings of the proof as data: claim, flow, kind, count, and effect on the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from loosehanger.proof.flows import FlowId

Weight = Literal["disproves", "undecides", "informs"]
Verdict = Literal["proved", "disproved", "inconclusive"]
_VERDICTS: Mapping[Weight, Verdict] = {"disproves": "disproved", "undecides": "inconclusive"}


@dataclass(frozen=True)
class Finding:
    """One finding. ``report.messages`` turns it into a sentence."""

    kind: str
    """For example ``missing``, ``config_difference``, ``mirror_behind`` or ``stray_topic``."""
    weight: Weight
    claim: str = ""
    """The id of its claim; empty for the proof as a whole."""
    flow: FlowId | None = None
    """The id of its flow; None for all flows of the claim."""
    count: int = 0
    """The number of records, if it counts any."""
    details: Mapping[str, Any] = field(default_factory=dict)
    examples: tuple[Mapping[str, Any], ...] = ()

    def concerns(self, claim: str) -> bool:
        """Whether a claim's verdict depends on it."""
        return self.claim == claim or (not self.claim and self.weight != "informs")


def verdict_of(findings: Iterable[Finding]) -> Verdict:
    """The worst of their verdicts: ``disproved``, else ``inconclusive``, else ``proved``."""
    weights = {finding.weight for finding in findings}
    return next((verdict for weight, verdict in _VERDICTS.items() if weight in weights), "proved")
