"""What a maintainer needs to help: resources, processes and logs of a region, without secrets."""

from __future__ import annotations

from pathlib import Path

from loosehanger.files import make_folder, write_file
from loosehanger.platforms.local.processes import states, tail
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.redact import say_unread, scrub

LOG_BYTES = 1_000_000


def collect(region: LocalRegion, folder: Path) -> None:
    """Writes what is known of a region into a folder: its manifests, its processes' states, the ends of their logs."""
    make_folder(folder)
    for path in (region.folder / "resources").glob("*/*.yaml"):
        write_file(folder / f"{path.parent.name}-{path.name}", path.read_bytes())
    for path in region.logs.glob("*.log"):
        write_file(folder / "logs" / path.name, path.read_bytes()[-LOG_BYTES:])
    lines = [f"{process.name} is {process.state}: {tail(process.log)}\n" for process in states(region)]
    write_file(folder / "processes.txt", "".join(lines))


def take_secrets_out(region: LocalRegion, bundle: Path, folder: Path) -> None:
    """Takes the region's secrets out of a whole bundle; where they cannot be read, says so in the region's folder."""
    if not region.folder.exists():
        return  # A region that the scenario does not use.
    try:
        secrets = [path.read_bytes() for secret in region.secrets.iterdir() for path in secret.iterdir()]
    except OSError as error:
        say_unread(folder, f"{error.filename}: {error.strerror}")
        return
    scrub(bundle, secrets)
