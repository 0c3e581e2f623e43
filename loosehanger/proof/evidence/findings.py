"""What the proof finds, as data: for which claim and which flow, of which kind, how much, and what follows from it."""

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
    """One thing that was found. What people read of it is made by ``prose``, at the end."""

    kind: str
    """Such as ``missing``, ``config_difference``, ``mirror_behind`` or ``stray_topic``."""
    weight: Weight
    claim: str = ""
    """The id of the claim that it speaks of; empty for what concerns the proof as a whole."""
    flow: FlowId | None = None
    """The id of the flow; None for what concerns all of a claim's."""
    count: int = 0
    """How many records, where it counts any."""
    details: Mapping[str, Any] = field(default_factory=dict)
    examples: tuple[Mapping[str, Any], ...] = ()

    def concerns(self, claim: str) -> bool:
        """Whether a claim's verdict depends on it."""
        return self.claim == claim or (not self.claim and self.weight != "informs")


def verdict_of(findings: Iterable[Finding]) -> Verdict:
    """The worst of what they mean together: ``disproved``, else ``inconclusive``, else ``proved``."""
    weights = {finding.weight for finding in findings}
    return next((verdict for weight, verdict in _VERDICTS.items() if weight in weights), "proved")
