"""An exported installation: wheels for one platform and Python, and jars, in one file for machines without a network.

``./lab export-install`` writes it, ``./lab prefetch --from`` unpacks it, with Python's standard library only. The locks
of the checkout decide what is installed: pip, uv and the fetcher of jars check each file by its hash.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import re
import shutil
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from loosehanger.errors import LabError, WrongUseError
from loosehanger.paths import ROOT

LOCKS = ("requirements-build.lock", "requirements.lock", "jars.lock")
UNPACKED = "offline"
"""The folder in the lab's home whose wheels ``scripts/install.py`` uses in place of a package index."""
PLATFORMS: Mapping[str, tuple[str, ...]] = {
    "linux-x86_64": ("manylinux1_x86_64", *(f"manylinux_2_{minor}_x86_64" for minor in range(5, 40)), "linux_x86_64"),
    "linux-aarch64": ("manylinux2014_aarch64", *(f"manylinux_2_{minor}_aarch64" for minor in range(17, 40))),
    "macos-arm64": tuple(f"macosx_{major}_0_{kind}" for major in range(11, 16) for kind in ("arm64", "universal2")),
}
"""The platforms of wheels that an installation can be exported for, by the names that pip has for them."""
_MANIFEST = "manifest.json"
_VERSION = 1
_NAME = re.compile(r"(wheels/[\w.+-]+|jars/\w[\w.-]*/[\w.-]+)")
_PIECE = 1 << 20


@dataclass(frozen=True)
class ExportList:
    """The first entry of the file."""

    platform: str
    """One of ``PLATFORMS``."""
    python: str
    """As in 3.11."""
    locks: Mapping[str, str]
    """The SHA-256 of each lock that it was made from."""
    files: Mapping[str, str]
    """The SHA-256 of each file."""
    version: int = _VERSION


def this_platform() -> str:
    """The name of this machine's platform, which need not be one of ``PLATFORMS``."""
    system = "macos" if sys.platform == "darwin" else sys.platform
    return f"{system}-{platform.machine().lower().replace('amd64', 'x86_64')}"


def this_python() -> str:
    """The version of the Python that runs this, as in 3.11."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def hashes_of_locks(root: Path = ROOT) -> dict[str, str]:
    """The SHA-256 of each lock of a checkout."""
    return {name: hash_of(root / name) for name in LOCKS}


def hash_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pack(target: Path, folder: Path, wheels_for: str, python: str) -> int:
    """Writes a folder with ``wheels/`` and ``jars/`` into one file, readable by its owner only.

    Returns:
        Its size in bytes.
    """
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {str(path.relative_to(folder)): hash_of(path) for path in found}
    manifest = json.dumps(asdict(ExportList(wheels_for, python, hashes_of_locks(), files)), indent=1).encode()
    partial = target.with_name(f".{target.name}.partial")
    try:
        with tarfile.open(partial, "w") as archive:
            entry = tarfile.TarInfo(_MANIFEST)
            entry.size = len(manifest)
            archive.addfile(entry, io.BytesIO(manifest))
            for name in files:
                archive.add(folder / name, name, recursive=False, filter=_anonymous)
        partial.chmod(0o600)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target.stat().st_size


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """The name of a user of one machine is nothing to the others."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def unpack(source: Path, home: Path) -> ExportList:
    """Unpacks an exported installation into a lab's home, each file checked by its hash.

    Raises:
        WrongUseError: the file is not one, or was made for another platform, Python or version of the kit.
        LabError: a file in it is damaged.
    """
    try:
        with tarfile.open(source) as archive:
            manifest = _read_manifest(archive, source)
            _check_fits(manifest, source)
            shutil.rmtree(home / UNPACKED, ignore_errors=True)
            missing = dict(manifest.files)
            for entry in archive:
                if entry.name == _MANIFEST:
                    continue
                if entry.name not in missing or not entry.isfile() or not _NAME.fullmatch(entry.name):
                    raise LabError(f"{source}: has an entry that is not in its list: {entry.name}; export it again")
                _extract(archive, entry, _place(home, entry.name), missing.pop(entry.name), source)
    except OSError as error:
        raise WrongUseError(f"{source}: cannot be read ({error.strerror or error})") from error
    except (tarfile.TarError, EOFError) as error:
        raise LabError(f"{source}: is damaged or not an exported installation ({error}); copy it again") from error
    if missing:
        raise LabError(f"{source}: ends before {min(missing)}; copy it again")
    return manifest


def _place(home: Path, name: str) -> Path:
    return home / UNPACKED / name if name.startswith("wheels/") else home / name


def _read_manifest(archive: tarfile.TarFile, source: Path) -> ExportList:
    entry = archive.next()
    stream = archive.extractfile(entry) if entry and entry.name == _MANIFEST else None
    if stream is None:
        raise WrongUseError(f"{source}: is not an exported installation; ./lab export-install FILE writes one")
    try:
        manifest = ExportList(**json.load(stream))
    except (ValueError, TypeError) as error:
        raise WrongUseError(f"{source}: its list cannot be read ({error}); export it again") from error
    if manifest.version != _VERSION:
        raise WrongUseError(f"{source}: another version of the kit has exported it; export it again with this one")
    return manifest


def _check_fits(manifest: ExportList, source: Path) -> None:
    if manifest.platform != this_platform():
        raise WrongUseError(
            f"{source}: is for {manifest.platform}, and this machine is {this_platform()}; "
            f"./lab export-install FILE --platform {this_platform()} writes one for it"
        )
    if manifest.python != this_python():
        raise WrongUseError(
            f"{source}: is for Python {manifest.python}, and {sys.executable} is {this_python()}; set LAB_PYTHON to "
            f"python{manifest.python}, or export it with --python {this_python()}"
        )
    own = hashes_of_locks()
    if different := [name for name in LOCKS if manifest.locks.get(name) != own[name]]:
        raise WrongUseError(f"{source}: was exported from another {different[0]}; use the same version of the kit")


def _extract(archive: tarfile.TarFile, entry: tarfile.TarInfo, path: Path, expected: str, source: Path) -> None:
    stream = archive.extractfile(entry)
    assert stream
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with path.open("wb") as file:
        while piece := stream.read(_PIECE):
            digest.update(piece)
            file.write(piece)
    if digest.hexdigest() != expected:
        path.unlink()
        raise LabError(f"{source}: {entry.name} is damaged; copy the file again")
