"""Fetches the third-party files of the consoles' pages into ``loosehanger/console/static/vendor``, and locks them.

    .lab/venv/bin/python -m scripts.vendor_web

A maintainer's tool, for another version: set the version below, run this, and commit the files and ``web.lock``. It
needs the npm client. The files are served as they are, so users of the kit do not need npm.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loosehanger.console.geography import Coordinates, project
from loosehanger.errors import LabError, run_command
from loosehanger.paths import ROOT

WANTED = {"idiomorph": "0.8.0", "uplot": "1.6.32", "world-atlas": "2.0.2"}
VENDOR = ROOT / "loosehanger" / "console" / "static" / "vendor"
LOCK = ROOT / "web.lock"
_DECIMALS = 1


def main() -> int:
    """Writes the files, and the lock."""
    VENDOR.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        packages = {name: _fetch(name, version, Path(folder)) for name, version in WANTED.items()}
        made = {
            "idiomorph.js": _member(packages["idiomorph"], "dist/idiomorph.esm.js"),
            "idiomorph.LICENSE": _member(packages["idiomorph"], "LICENSE"),
            "uplot.js": _member(packages["uplot"], "dist/uPlot.esm.js"),
            "uplot.css": _member(packages["uplot"], "dist/uPlot.min.css"),
            "uplot.LICENSE": _member(packages["uplot"], "LICENSE"),
            "land.svg": outline(json.loads(_member(packages["world-atlas"], "land-110m.json"))).encode(),
            "land.LICENSE": _member(packages["world-atlas"], "LICENSE"),
        }
        lines = [f"package {name} {WANTED[name]} {_integrity(path)}" for name, path in packages.items()]
    for name, content in made.items():
        (VENDOR / name).write_bytes(content)
        lines.append(f"file {name} {hashlib.sha256(content).hexdigest()}")
    head = "# Made by scripts/vendor_web.py. Packages: name, version, what the registry has; files: name, SHA-256."
    LOCK.write_text("\n".join([head, *lines, ""]), encoding="utf-8")
    return 0


def outline(topology: dict[str, Any]) -> str:
    """Returns the land of a TopoJSON document (Natural Earth's, from ``world-atlas``) as one path in an SVG."""
    (scale_x, scale_y), (left, bottom) = topology["transform"]["scale"], topology["transform"]["translate"]
    arcs = []
    for steps in topology["arcs"]:
        x = y = 0
        points = []
        for step_x, step_y in steps:
            x, y = x + step_x, y + step_y
            points.append((left + x * scale_x, bottom + y * scale_y))
        arcs.append(points)
    paths: list[str] = []
    for ring in _rings(topology["objects"]["land"]):
        points = []
        for number in ring:
            # A negative number is an arc taken backwards: ~n.
            part = arcs[number] if number >= 0 else arcs[~number][::-1]
            points += part[1:] if points else part
        paths += _drawn(points)
    return f'<svg xmlns="http://www.w3.org/2000/svg"><path id="land" d="{"".join(paths)}"/></svg>\n'


def _drawn(ring: list[tuple[float, float]]) -> Iterator[str]:
    """Yields a ring of longitudes and latitudes as parts of a path: two where it crosses the antimeridian."""
    turns, unwound = 0, []
    for before, (longitude, latitude) in zip([ring[0], *ring], ring, strict=False):
        turns += (before[0] - longitude > 180) - (longitude - before[0] > 180)
        unwound.append((longitude + 360 * turns, latitude))
    if turns:
        return  # Antarctica, which goes round the pole: no map has a region there.
    for shift in (-360, 0, 360):
        if min(x for x, _ in unwound) + shift < 180 and max(x for x, _ in unwound) + shift > -180:
            points = [project(Coordinates(latitude, longitude + shift)) for longitude, latitude in unwound]
            yield "M" + "L".join(f"{x:.{_DECIMALS}f} {y:.{_DECIMALS}f}" for x, y in points) + "Z"


def _rings(geometry: dict[str, Any]) -> Iterator[list[int]]:
    match geometry["type"]:
        case "GeometryCollection":
            for part in geometry["geometries"]:
                yield from _rings(part)
        case "MultiPolygon":
            for polygon in geometry["arcs"]:
                yield from polygon
        case "Polygon":
            yield from geometry["arcs"]
        case other:
            raise LabError(f"the outline has a {other}, which is not land")


def _fetch(name: str, version: str, folder: Path) -> Path:
    command = ["npm", "pack", "--silent", f"{name}@{version}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"{name} {version}: {done.stderr.strip().splitlines()[-1:]}")
    package = folder / done.stdout.strip().splitlines()[-1]
    # A published version never changes, so the registry's digest must be that of the lock.
    for line in LOCK.read_text(encoding="utf-8").splitlines() if LOCK.exists() else ():
        if line.startswith(f"package {name} {version} ") and not line.endswith(_integrity(package)):
            raise LabError(f"{name} {version}: the registry's file is not the one in web.lock")
    return package


def _integrity(package: Path) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()


def _member(package: Path, name: str) -> bytes:
    with tarfile.open(package) as archive:
        member = archive.extractfile(f"package/{name}")
        if member is None:
            raise LabError(f"{package.name} has no {name}")
        return member.read()


if __name__ == "__main__":
    sys.exit(run_command(main))
