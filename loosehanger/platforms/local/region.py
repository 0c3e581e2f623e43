"""A region on this machine: its folder, its ports, and its applied resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from loosehanger.errors import LabError
from loosehanger.files import write_file

MAX_NODES = 5
MAX_LISTENERS = 6
PORTS_OF_A_NODE = 8
FIRST_WORKER_PORT = 50
MAX_WORKERS = 20
RELAY_PORTS: tuple[int, ...] = (*range(72, 100), *range(40, 49))
"""Offsets of the ports at which relays listen for clients of other regions; 49 is the audit's."""
PORTS_OF_A_REGION = 100


@dataclass(frozen=True)
class LocalRegion:
    """One region. All its data is in ``home/regions/<name>``, so deleting the folder deletes the region."""

    home: Path
    """The lab's home: the installation, and all regions."""
    checkout: Path
    """The kit's checkout, with its programs."""
    name: str
    port_base: int
    """The first of its ports."""
    peers: Mapping[str, int] = field(default_factory=dict, hash=False)
    """The first port of every region of the inventory, including this one; empty for no links."""

    @property
    def folder(self) -> Path:
        """The region's own folder."""
        return self.home / "regions" / self.name

    @property
    def secrets(self) -> Path:
        """The folder of its secrets: a folder for each secret, a file for each key."""
        return self.folder / "secrets"

    @property
    def volumes(self) -> Path:
        """The folder of its programs' volumes: a folder for each PersistentVolumeClaim."""
        return self.folder / "volumes"

    @property
    def logs(self) -> Path:
        """The folder of its processes' logs."""
        return self.folder / "logs"

    @property
    def temporary(self) -> Path:
        """The folder of its processes' temporary files, which killed processes leave behind."""
        return self.folder / "tmp"

    @property
    def python_path(self) -> str:
        """The ``PYTHONPATH`` of programs, because the virtual environment may belong to another checkout."""
        return str(self.checkout)

    def exists(self) -> bool:
        """Whether its namespace was applied."""
        return (self.folder / "resources" / "Namespace" / f"{self.name}.yaml").exists()

    def node_port(self, node: int, listener: int) -> int:
        """Returns the port of a Kafka node's listener; 0 is the control plane and 1 is replication.

        Raises:
            LabError: a region has no port for so many nodes or listeners.
        """
        if node >= MAX_NODES or listener >= PORTS_OF_A_NODE:
            raise LabError(
                f"{self.name}: the local platform has ports for {MAX_NODES} nodes of {MAX_LISTENERS} listeners a region"
            )
        return self.port_base + node * PORTS_OF_A_NODE + listener

    @property
    def others(self) -> tuple[str, ...]:
        """The other regions, whose clients connect through links."""
        return tuple(name for name in self.peers if name != self.name)

    def peer(self, name: str) -> LocalRegion:
        """Returns another region of the lab."""
        return replace(self, name=name, port_base=self.peers[name])

    def hidden_listener(self, client: str) -> int:
        """Returns the number of the nodes' listener for another region's clients, counted from the last one."""
        return PORTS_OF_A_NODE - 1 - self.others.index(client)

    def hidden_port(self, node: int, client: str) -> int:
        """Returns the node's port that the link with another region forwards to."""
        return self.node_port(node, self.hidden_listener(client))

    def relay_port(self, node: int, client: str) -> int:
        """Returns the port at which another region's clients reach a node.

        Raises:
            LabError: a region has no port for so many nodes or workers.
        """
        return self._relay_port(node * len(self.others) + self.others.index(client))

    def worker_relay_port(self, index: int, client: str) -> int:
        """Returns the port at which another region's clients reach the n-th Connect worker, counted from the last one.

        Raises:
            LabError: a region has no port for so many nodes or workers.
        """
        return self._relay_port(len(RELAY_PORTS) - 1 - index * len(self.others) - self.others.index(client))

    def _relay_port(self, index: int) -> int:
        if not 0 <= index < len(RELAY_PORTS):
            raise LabError(
                f"{self.name}: the local platform has {len(RELAY_PORTS)} ports for the links of a region: one for each "
                "node and each mirror worker, and each other region"
            )
        return self.port_base + RELAY_PORTS[index]

    def worker_port(self, index: int) -> int:
        """Returns the REST port of the region's n-th Connect worker.

        Raises:
            LabError: a region has no port for so many workers.
        """
        if index >= MAX_WORKERS:
            raise LabError(f"{self.name}: the local platform has ports for {MAX_WORKERS} mirror workers a region")
        return self.port_base + FIRST_WORKER_PORT + index

    def exporter_port(self, index: int) -> int:
        """Returns the port of the metrics of the region's n-th Connect worker, counted from the last of workers' ports.

        Raises:
            LabError: a region has no port for so many workers with metrics.
        """
        if index >= MAX_WORKERS // 2:
            raise LabError(
                f"{self.name}: the local platform has ports for the metrics of {MAX_WORKERS // 2} mirror workers"
            )
        return self.worker_port(MAX_WORKERS - 1 - index)

    # The applied resources, which an API server would store.

    def resource(self, kind: str, name: str) -> dict[str, Any] | None:
        """Returns an applied manifest, or None."""
        path = self.folder / "resources" / kind / f"{name}.yaml"
        if not path.exists():
            return None
        return _read(path)

    def resources(self, kind: str) -> Iterator[dict[str, Any]]:
        """Yields every applied manifest of a kind, sorted by name."""
        for path in sorted((self.folder / "resources" / kind).glob("*.yaml")):
            yield _read(path)

    def store(self, manifest: Mapping[str, Any]) -> bool:
        """Stores an applied manifest; True when it is new or differs."""
        path = self.folder / "resources" / manifest["kind"] / f"{manifest['metadata']['name']}.yaml"
        text = yaml.dump(dict(manifest), Dumper=yaml.CSafeDumper, sort_keys=True, allow_unicode=True)
        return write_file(path, text)

    def forget(self, kind: str, name: str) -> None:
        """Deletes an applied manifest."""
        (self.folder / "resources" / kind / f"{name}.yaml").unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any]:
    """Reads a stored manifest with libyaml, which takes a tenth of the time: every task reads all of a region."""
    document: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return document
