"""What a maintainer needs to help: resources, processes and logs of a region, without secrets."""

from __future__ import annotations

from pathlib import Path

from .processes import states, tail
from .region import Region, make_folder, write_file
from .scrub import scrub

LOG_BYTES = 1_000_000


def collect(region: Region, folder: Path) -> None:
    """Writes what is known of a region into a folder: its manifests, its processes' states, the ends of their logs."""
    make_folder(folder)
    for path in (region.folder / "resources").glob("*/*.yaml"):
        write_file(folder / f"{path.parent.name}-{path.name}", path.read_bytes())
    for path in region.logs.glob("*.log"):
        write_file(folder / "logs" / path.name, path.read_bytes()[-LOG_BYTES:])
    lines = [f"{process.name} is {process.state}: {tail(process.log)}\n" for process in states(region)]
    write_file(folder / "processes.txt", "".join(lines))
    scrub(folder, (path.read_bytes() for path in region.secrets.glob("*/*")))
