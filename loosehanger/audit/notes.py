"""What the watch notes beside its counts: parts that are not judged, and events to report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from loosehanger.proof.report.record_times import iso

_MOST = 100


@dataclass(frozen=True)
class Note:
    """A part that is not judged, or an event to report."""

    at_ms: int
    region: str
    topic: str
    partition: int | None
    says: str
    offsets: int = 0
    """The number of offsets that are not judged."""


class Notes:
    """The newest notes."""

    def __init__(self) -> None:
        self._notes: list[Note] = []

    def add(self, note: Note) -> None:
        """Adds a note."""
        self._notes = [*self._notes, note][-_MOST:]

    def replace(self, note: Note) -> None:
        """Adds a note in place of those that say the same of the same place."""
        same = (note.region, note.topic, note.partition, note.says)
        self._notes = [one for one in self._notes if (one.region, one.topic, one.partition, one.says) != same]
        self.add(note)

    def document(self) -> list[dict[str, Any]]:
        """The notes for the watch's document."""
        return [
            {
                "at": iso(note.at_ms),
                "region": note.region,
                "topic": note.topic,
                "partition": note.partition,
                "says": note.says,
                "offsets": note.offsets,
            }
            for note in self._notes
        ]

    def dump(self) -> list[dict[str, Any]]:
        """The notes in types that JSON has."""
        return [asdict(note) for note in self._notes]

    def load(self, stored: Iterable[Mapping[str, Any]]) -> None:
        """Restores what ``dump`` returned."""
        self._notes = [Note(**note) for note in stored]
