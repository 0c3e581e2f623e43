"""A disk that is full, under a broker on this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Literal

from loosehanger.errors import LabError, WrongUseError
from loosehanger.faults.changes.change import Undo
from loosehanger.faults.changes.processes import ProgramChange
from loosehanger.faults.site import FaultSite
from loosehanger.kafka.properties import read_properties
from loosehanger.mounts import mount_memory, run, unmount

SPARE = 8 << 20
"""Bytes on top of the broker's data, for what it writes as it starts."""
_BALLAST = "fault-ballast"
_OWN, _MOVED, _NEXT, _READY = ".own", ".moved", ".next", ".ready"
"""Suffixes of the folder's name: the original; the mark that all of it was moved; what is moved back; all of that."""


class FillDisk(ProgramChange):
    """Moves a broker's data to a small file system in memory, and fills that up. The broker is restarted for it."""

    process: Literal["source-broker", "target-broker"] = "target-broker"

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the program and its folder; refuses where this user cannot mount a file system."""
        undo = super().prepare(site)
        cluster = site.lab.region(undo["region"]).cluster
        node = site.home / "regions" / undo["region"] / "kafka" / cluster / "0"
        folder = read_properties(node / "server.properties")["log.dirs"]
        trial = site.home / "fault-trial"
        trial.mkdir(exist_ok=True)
        try:
            mount_memory(trial, 1 << 20)
            unmount(trial)
        except LabError as error:
            raise WrongUseError(f"a disk that is full needs a user who may mount a file system: {error}") from error
        finally:
            trial.rmdir()
        return {**undo, "folder": folder}

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Stops the broker, moves its data, starts it, and writes until nothing is left."""
        region, program, folder = undo["region"], undo["program"], Path(undo["folder"])
        own = _beside(folder, _OWN)
        site.platforms.halt_local_program(site.home, region, program, halted=True)
        folder.rename(own)
        folder.mkdir()
        mount_memory(folder, _used(own) + SPARE)
        _copy(own, folder)
        _beside(folder, _MOVED).touch()
        site.platforms.halt_local_program(site.home, region, program, halted=False)
        self.await_answer(site, undo)
        with (folder / _BALLAST).open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while True:
                ballast.write(bytes(1 << 12))

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Stops the broker, moves its data back, and starts it."""
        region, program, folder = undo["region"], undo["program"], Path(undo["folder"])
        own, moved, following, ready = (_beside(folder, end) for end in (_OWN, _MOVED, _NEXT, _READY))
        site.platforms.halt_local_program(site.home, region, program, halted=True)
        if moved.exists() and not ready.exists() and os.path.ismount(folder):
            (folder / _BALLAST).unlink(missing_ok=True)
            shutil.rmtree(following, ignore_errors=True)
            following.mkdir(mode=0o700)
            _copy(folder, following)
            following.rename(ready)
        if os.path.ismount(folder):
            unmount(folder)
        data = ready if ready.exists() else own
        if data.exists():
            if folder.exists():
                folder.rmdir()
            data.rename(folder)
        moved.unlink(missing_ok=True)
        shutil.rmtree(own, ignore_errors=True)
        site.platforms.halt_local_program(site.home, region, program, halted=False)
        self.await_answer(site, undo)


def _beside(folder: Path, end: str) -> Path:
    return folder.with_name(f"{folder.name}{end}")


def _used(folder: Path) -> int:
    """The bytes that a folder occupies; a sparse file occupies what was written."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


def _copy(source: Path, target: Path) -> None:
    run("cp", "-a", "--sparse=always", f"{source}/.", str(target))
