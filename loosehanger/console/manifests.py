"""The desired state of mirrors, from the lab's record: a mirror that its manifest stops is healthy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loosehanger.errors import LabError
from loosehanger.kafka.connector_states import wanted_connectors
from loosehanger.lab.manifests.views import MIRROR


@dataclass(frozen=True)
class MirrorState:
    """The state that a mirror's manifest asks for."""

    replicas: int = 1
    connectors: Mapping[str, str] = field(default_factory=dict)
    """The state of each connector: RUNNING, PAUSED or STOPPED; empty where it is not known."""
    open: bool = False
    """Whether any pod may change the mirror, since network policies are not enforced."""


class MirrorManifests:
    """The manifests of a region's mirrors.

    Args:
        home: the lab's home; None where the console has no access to a record.
        region: the region.
        folder: where Kubernetes mounts the mirrors' part of the record, a file for each region; None elsewhere.
    """

    def __init__(self, home: Path | None, region: str, folder: Path | None = None) -> None:
        self._home = home
        self._region = region
        self._folder = folder
        self._read: tuple[float, dict[str, MirrorState]] = (0.0, {})

    def wanted(self, mirror: str) -> MirrorState:
        """The state that a mirror's manifest asks for."""
        folder = self._folder or (self._home / "access" if self._home else None)
        if folder is None:
            return MirrorState()
        path = folder / f"{self._region}.json"
        try:
            changed = path.stat().st_mtime
            if changed != self._read[0]:
                self._read = changed, _handed_over(path) if self._folder else self._recorded()
        except (OSError, LabError, KeyError, TypeError, ValueError, AttributeError):
            return MirrorState()  # The file is being written, or is from another version of the kit.
        return self._read[1].get(mirror, MirrorState())

    def _recorded(self) -> dict[str, MirrorState]:
        from loosehanger.lab.record import recorded_documents

        assert self._home is not None
        documents = recorded_documents(self._home, self._region)
        specs = {one.name: one.content["spec"] for one in documents if one.kind == MIRROR}
        return {name: MirrorState(spec.get("replicas", 1), wanted_connectors(spec)) for name, spec in specs.items()}


def _handed_over(path: Path) -> dict[str, MirrorState]:
    found = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: MirrorState(one["replicas"], dict(one["connectors"]), one["open"] is True) for name, one in found.items()
    }
