"""What the manifests want of the mirrors, by the lab's record: a mirror that they stop is as it should be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loosehanger.errors import LabError
from loosehanger.model.connector_states import wanted_connectors


@dataclass(frozen=True)
class Life:
    """What a mirror's manifest wants of it."""

    replicas: int = 1
    connectors: Mapping[str, str] = field(default_factory=dict)
    """The state of each connector: RUNNING, PAUSED or STOPPED; empty where it is not known."""


class MirrorManifests:
    """The manifests of a region's mirrors.

    Args:
        home: the lab's home; None where the console knows of no record.
        region: the region.
    """

    def __init__(self, home: Path | None, region: str) -> None:
        self._home = home
        self._region = region
        self._read: tuple[float, dict[str, Life]] = (0.0, {})

    def life(self, mirror: str) -> Life:
        """What the manifest of a mirror wants."""
        if self._home is None:
            return Life()
        from loosehanger.model.record import recorded_documents

        try:
            changed = (self._home / "access" / f"{self._region}.json").stat().st_mtime
            if changed != self._read[0]:
                documents = recorded_documents(self._home, self._region)
                specs = {one.name: one.content["spec"] for one in documents if one.kind == "KafkaMirrorMaker2"}
                lives = {name: Life(spec.get("replicas", 1), wanted_connectors(spec)) for name, spec in specs.items()}
                self._read = changed, lives
        except (OSError, LabError, KeyError, TypeError):
            return Life()  # It is being written, or another version of the kit has written it.
        return self._read[1].get(mirror, Life())
