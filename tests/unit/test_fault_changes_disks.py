"""A disk that is full: a file system in memory that is real, and a broker that is not."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from loosehanger.errors import LabError, WrongUseError
from loosehanger.faults.changes import disks
from loosehanger.faults.changes.change import Undo
from loosehanger.faults.changes.disks import FillDisk
from loosehanger.faults.changes.processes import ProgramChange
from loosehanger.faults.site import FaultSite
from loosehanger.lab.record import Lab, Region
from loosehanger.mounts import mount_memory, unmount, unmount_all
from loosehanger.platforms import registry

from .test_fault_changes_processes import MIRROR

REGION = MIRROR.target


@pytest.fixture
def mounting(tmp_path: Path) -> None:
    """Skips where this user may not mount."""
    trial = tmp_path / "trial"
    trial.mkdir()
    try:
        mount_memory(trial, 1 << 20)
    except LabError as error:
        pytest.skip(f"this user may not mount: {error}")
    unmount(trial)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The data of a broker that starts and stops at once."""
    node = tmp_path / "regions" / REGION / "kafka" / REGION / "0"
    data = node / "data"
    (data / "LH.ORDERS-0").mkdir(parents=True)
    (data / "LH.ORDERS-0" / "0.log").write_bytes(b"one" * 1000)
    (node / "server.properties").write_text(f"log.dirs={data}\n")
    monkeypatch.setattr(ProgramChange, "prepare", lambda *_: {"region": REGION, "program": f"{REGION}-kafka-0"})
    monkeypatch.setattr(ProgramChange, "await_answer", lambda *_: None)
    monkeypatch.setattr(registry, "halt_local_program", lambda *_, **__: None)
    yield data
    unmount_all(tmp_path)


def site(home: Path) -> FaultSite:
    """The mirror."""
    regions = {name: Region(name, name, {}, {}, ()) for name in (MIRROR.source, MIRROR.target)}
    return FaultSite(Lab("05-active-passive", "local", "", regions), home, MIRROR, "LH.ORDERS", registry)


def injected(home: Path) -> Undo:
    """Makes the change."""
    undo = FillDisk().prepare(site(home))
    FillDisk().inject(site(home), undo)
    return undo


def files(data: Path) -> dict[str, bytes]:
    """What is beside and in the folder."""
    return {str(path.relative_to(data.parent)): path.read_bytes() for path in data.parent.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("mounting")
def test_a_disk_is_full_and_what_was_written_before_is_kept(tmp_path: Path, data: Path) -> None:
    before = files(data)
    undo = injected(tmp_path)
    assert os.path.ismount(data)
    (data / "LH.ORDERS-0" / "0.log").write_bytes(b"two" * 1000)
    with pytest.raises(OSError, match="No space left") as error:
        (data / "more").write_bytes(bytes(1 << 16))
    assert error.value.errno == errno.ENOSPC
    (data / "more").unlink()
    for _ in range(2):
        FillDisk().heal(site(tmp_path), undo)
        assert not os.path.ismount(data)
        assert files(data) == {**before, "data/LH.ORDERS-0/0.log": b"two" * 1000}


@pytest.mark.usefixtures("mounting")
@pytest.mark.parametrize("stops_at", ["mount_memory", "_copy"])
def test_an_injection_that_stops_in_between_is_healed(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, stops_at: str
) -> None:
    def fails(*_: object) -> None:
        raise LabError("it stops here")

    before, undo = files(data), FillDisk().prepare(site(tmp_path))
    with monkeypatch.context() as broken:
        broken.setattr(disks, stops_at, fails)
        with pytest.raises(LabError, match="it stops here"):
            FillDisk().inject(site(tmp_path), undo)
    FillDisk().heal(site(tmp_path), undo)
    assert files(data) == before


@pytest.mark.usefixtures("mounting")
def test_a_clean_up_unmounts_what_it_deletes(tmp_path: Path, data: Path) -> None:
    injected(tmp_path)
    with (data / "LH.ORDERS-0" / "0.log").open("rb"):  # as a broker that runs
        unmount_all(tmp_path)
    assert not os.path.ismount(data)


@pytest.mark.usefixtures("mounting")
def test_a_clean_up_unmounts_in_a_folder_with_a_blank_and_nothing_beside_it(tmp_path: Path) -> None:
    home, other = tmp_path / "a new folder", tmp_path / "another"
    inside = [home / "of mine", home / "with\ta tab"]
    for folder in (*inside, other):
        folder.mkdir(parents=True)
        mount_memory(folder, 1 << 20)
    try:
        unmount_all(home)
        assert [os.path.ismount(folder) for folder in (*inside, other)] == [False, False, True]
    finally:
        unmount(other)


def test_a_user_who_may_not_mount_is_refused_in_one_line(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise LabError("mount: only root can do that")

    monkeypatch.setattr(disks, "mount_memory", refused)
    with pytest.raises(WrongUseError, match="needs a user who may mount a file system: mount: only root can do that"):
        FillDisk().prepare(site(tmp_path))
    assert list(tmp_path.glob("fault-trial")) == []
    assert files(data)
