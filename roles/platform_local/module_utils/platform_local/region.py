"""A region on this machine: its folder, its ports, and what was applied to it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .errors import PlatformError

LOOPBACK = "127.0.0.1"
MAX_NODES = 5
MAX_LISTENERS = 6
PORTS_OF_A_NODE = 8
FIRST_WORKER_PORT = 50
MAX_WORKERS = 20
PORTS_OF_A_REGION = 100


@dataclass(frozen=True)
class Region:
    """One region: everything it has lies in ``home/regions/<name>``, so that deleting the folder deletes the region."""

    home: Path
    """The lab's home: what is installed, and all regions."""
    checkout: Path
    """Where the kit's own programs are."""
    name: str
    port_base: int
    """The first of its ports."""

    @property
    def folder(self) -> Path:
        """The region's own folder."""
        return self.home / "regions" / self.name

    @property
    def secrets(self) -> Path:
        """The folder of its secrets: one folder for each, one file for each key."""
        return self.folder / "secrets"

    @property
    def logs(self) -> Path:
        """The folder of its processes' logs."""
        return self.folder / "logs"

    def exists(self) -> bool:
        """Whether its namespace was applied."""
        return (self.folder / "resources" / "Namespace" / f"{self.name}.yaml").exists()

    def node_port(self, node: int, listener: int) -> int:
        """The port of a listener of a Kafka node; listeners 0 and 1 are the control plane and replication.

        Raises:
            PlatformError: more nodes or listeners than a region has ports for.
        """
        if node >= MAX_NODES or listener >= PORTS_OF_A_NODE:
            raise PlatformError(
                f"{self.name}: the local platform has ports for {MAX_NODES} nodes of {MAX_LISTENERS} listeners a region"
            )
        return self.port_base + node * PORTS_OF_A_NODE + listener

    def worker_port(self, index: int) -> int:
        """The port of the REST interface of the region's n-th Connect worker.

        Raises:
            PlatformError: more workers than a region has ports for.
        """
        if index >= MAX_WORKERS:
            raise PlatformError(f"{self.name}: the local platform has ports for {MAX_WORKERS} mirror workers a region")
        return self.port_base + FIRST_WORKER_PORT + index

    # What was applied, as an API server would keep it.

    def resource(self, kind: str, name: str) -> dict[str, Any] | None:
        """The applied manifest, or None."""
        path = self.folder / "resources" / kind / f"{name}.yaml"
        if not path.exists():
            return None
        document: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        return document

    def resources(self, kind: str) -> Iterator[dict[str, Any]]:
        """Every applied manifest of a kind, by name."""
        for path in sorted((self.folder / "resources" / kind).glob("*.yaml")):
            yield yaml.safe_load(path.read_text(encoding="utf-8"))

    def store(self, manifest: Mapping[str, Any]) -> bool:
        """Keeps a manifest as applied; True when it is new or differs."""
        path = self.folder / "resources" / manifest["kind"] / f"{manifest['metadata']['name']}.yaml"
        return write_file(path, yaml.safe_dump(dict(manifest), sort_keys=True, allow_unicode=True))

    def forget(self, kind: str, name: str) -> None:
        """Drops an applied manifest."""
        (self.folder / "resources" / kind / f"{name}.yaml").unlink(missing_ok=True)


def write_file(path: Path, content: str | bytes, mode: int = 0o600) -> bool:
    """Writes a file whole or not at all; True when it is new or its content differs.

    Folders on the way are made for the owner only.
    """
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and path.read_bytes() == data:
        return False
    make_folder(path.parent)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)
    Path(temporary).chmod(mode)
    Path(temporary).replace(path)
    return True


def make_folder(path: Path) -> None:
    """Makes a folder, and those above it, readable by the owner only."""
    if not path.exists():
        make_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def remove_folder(path: Path) -> None:
    """Deletes a folder and everything in it, if it is there."""
    if path.exists():
        shutil.rmtree(path)
