"""What carrying out resources changed, on every platform."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Outcome:
    """What applying changed."""

    changed: list[str] = field(default_factory=list)
    """``Kind/name`` of each resource that was made or changed."""
    before: str = ""
    after: str = ""
    """The resources that differ, before and after, as YAML; of secrets, nothing."""
    died_ms: int | None = None
    """When the region died, in milliseconds since the epoch, if that was the step."""
