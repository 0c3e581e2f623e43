"""The outcome of applying resources, on every platform."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Outcome:
    """The changes that applying resources made."""

    changed: list[str] = field(default_factory=list)
    """``Kind/name`` of each resource that was created or changed."""
    before: str = ""
    after: str = ""
    """The resources that differ, before and after, as YAML; secrets are left out."""
    died_ms: int | None = None
    """When the region died, in milliseconds since the epoch, if the step killed it."""
    is_switched: bool = False
    """Whether anything changed that is not a resource: offsets of groups or mirrors, or a whole region."""

    @property
    def is_changed(self) -> bool:
        """Whether anything changed."""
        return bool(self.changed) or self.is_switched

    def add(self, other: Outcome) -> None:
        """Adds what another action of the same step changed."""
        self.changed += other.changed
        self.before += other.before
        self.after += other.after
        self.is_switched |= other.is_switched
