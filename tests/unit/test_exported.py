"""An exported installation: packed here, unpacked there, and refused where it does not fit or is damaged."""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from loosehanger.cli import exported
from loosehanger.cli.exported import hashes_of_locks, pack, this_platform, this_python, unpack
from loosehanger.errors import LabError, WrongUseError
from loosehanger.paths import ROOT

WHEEL, JAR = "wheels/a_b-1.0+x-py3-none-any.whl", "jars/kafka/kafka-clients-4.3.1.jar"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An exported installation for this machine."""
    folder = tmp_path / "files"
    for name in (WHEEL, JAR):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(name.encode())
    pack(tmp_path / "lab.tar", folder, this_platform(), this_python())
    return tmp_path / "lab.tar"


def rewrite(file: Path, **changes: object) -> None:
    """Changes the list of an exported installation, or adds and replaces entries."""
    with tarfile.open(file) as archive:
        entries = {entry.name: archive.extractfile(entry).read() for entry in archive}  # type: ignore[union-attr]
    for name, value in changes.pop("entries", {}).items():  # type: ignore[attr-defined]
        entries[name] = value
    listed = json.loads(entries["manifest.json"])
    entries["manifest.json"] = json.dumps({**listed, **changes}).encode()
    with tarfile.open(file, "w") as archive:
        for name, content in entries.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def test_wheels_are_unpacked_beside_the_installation_and_jars_into_it(file: Path, tmp_path: Path) -> None:
    home = tmp_path / "a home"
    unpack(file, home)
    assert (home / "offline" / WHEEL).read_bytes() == WHEEL.encode()
    assert (home / JAR).read_bytes() == JAR.encode()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with tarfile.open(file) as archive:
        assert {(entry.uid, entry.uname) for entry in archive} == {(0, "")}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"platform": "macos-arm64"}, r"is for macos-arm64, and this machine is .*--platform"),
        ({"python": "3.9"}, r"is for Python 3.9, and .* is 3\.\d+; set LAB_PYTHON to python3.9, or export it with"),
        (
            {"locks": {**hashes_of_locks(), "jars.lock": "0"}},
            r"was exported from another jars.lock",
        ),
        ({"version": 2}, r"another version of the kit has exported it"),
        ({"entries": {"manifest.json": b'{"a": 1}'}}, r"its list cannot be read"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    file: Path, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    rewrite(file, **changes)
    with pytest.raises(WrongUseError, match=message):
        unpack(file, tmp_path / "home")
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({WHEEL: b"other"}, r"a_b-1.0\+x-py3-none-any.whl is damaged"),
        ({"wheels/../../x": b"x"}, r"has an entry that is not in its list: wheels/../../x"),
        ({"wheels/more.whl": b"x"}, r"has an entry that is not in its list: wheels/more.whl"),
        ({"venv/bin/python": b"x"}, r"has an entry that is not in its list: venv/bin/python"),
    ],
)
def test_what_is_damaged_or_smuggled_in_is_refused(
    file: Path, tmp_path: Path, entries: dict[str, bytes], message: str
) -> None:
    rewrite(file, entries=entries)
    with pytest.raises(LabError, match=message):
        unpack(file, tmp_path / "home")
    assert not (tmp_path / "x").exists()


def test_a_file_that_lacks_what_it_lists_is_refused(file: Path, tmp_path: Path) -> None:
    rewrite(file, files={WHEEL: exported.hash_of(tmp_path / "files" / WHEEL), JAR: "0", "wheels/gone.whl": "0"})
    with pytest.raises(LabError, match=r"kafka-clients-4.3.1.jar is damaged"):
        unpack(file, tmp_path / "home")
    hashes = {name: exported.hash_of(tmp_path / "files" / name) for name in (WHEEL, JAR)}
    rewrite(file, files={**hashes, "wheels/gone.whl": "0"})
    with pytest.raises(LabError, match=r"ends before wheels/gone.whl; copy it again"):
        unpack(file, tmp_path / "home")


def test_a_file_that_was_cut_off_is_refused(file: Path, tmp_path: Path) -> None:
    content = file.read_bytes()
    for length in (0, 100, len(content) // 2):
        file.write_bytes(content[:length])
        with pytest.raises((LabError, WrongUseError), match=r"lab.tar: (is damaged|ends before|is not an exported)"):
            unpack(file, tmp_path / "home")
    with pytest.raises(WrongUseError, match=r"none.tar: cannot be read \(No such file"):
        unpack(tmp_path / "none.tar", tmp_path / "home")


def test_the_installer_uses_unpacked_wheels_and_no_index(tmp_path: Path) -> None:
    """The installer's own step, in a home with a blank: pip would split a path there."""
    home = tmp_path / "a home"
    (home / exported.UNPACKED / "wheels").mkdir(parents=True)
    code = (
        "import os; from scripts import install; install.prepare_environment_variables();"
        "print(os.environ['PIP_FIND_LINKS'], os.environ['UV_FIND_LINKS'], os.environ['PIP_NO_INDEX'],"
        " os.environ['UV_NO_INDEX'], os.environ['UV_OFFLINE'])"
    )
    environment = {**os.environ, "LAB_HOME": str(home), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    place = (home / "offline" / "wheels").as_uri()
    assert done.stdout.split() == [place, place, "1", "1", "1"]


def test_prefetch_unpacks_only_where_nothing_is_installed(file: Path, tmp_path: Path) -> None:
    (tmp_path / "kit").mkdir()
    shutil.copytree(ROOT / "loosehanger", tmp_path / "kit/loosehanger", ignore=shutil.ignore_patterns("__pycache__"))
    for name in exported.LOCKS:
        shutil.copy(ROOT / name, tmp_path / "kit")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "kit"), "LAB_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-P", "-m", "loosehanger.cli.bootstrap_cli", "prefetch", "--from", str(file)]
    needs_installation = 100
    for unpacked in (True, False):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == needs_installation, done.stderr
        assert (tmp_path / "home/offline").exists() == unpacked
        shutil.rmtree(tmp_path / "home/offline", ignore_errors=True)
        (tmp_path / "home/venv/bin").mkdir(parents=True, exist_ok=True)
        (tmp_path / "home/venv/bin/python").touch()
