"""A region's part of a support bundle: resources, processes and logs, without secrets."""

from __future__ import annotations

from pathlib import Path

from loosehanger.files import make_folder, write_file
from loosehanger.platforms.local.processes import states, tail
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.redact import redact_folder, say_unread

LOG_BYTES = 1_000_000


def collect(region: LocalRegion, folder: Path) -> None:
    """Writes a region's manifests, the states of its processes and the ends of their logs into a folder."""
    make_folder(folder)
    for path in (region.folder / "resources").glob("*/*.yaml"):
        write_file(folder / f"{path.parent.name}-{path.name}", path.read_bytes())
    for path in region.logs.glob("*.log"):
        write_file(folder / "logs" / path.name, path.read_bytes()[-LOG_BYTES:])
    lines = [f"{process.name} is {process.state}: {tail(process.log)}\n" for process in states(region)]
    write_file(folder / "processes.txt", "".join(lines))


def take_secrets_out(region: LocalRegion, bundle: Path, folder: Path) -> None:
    """Removes the region's secrets from a bundle; notes in the region's folder if they cannot be read."""
    if not region.folder.exists():
        return  # A region that the scenario does not use.
    try:
        secrets = [path.read_bytes() for secret in region.secrets.iterdir() for path in secret.iterdir()]
    except OSError as error:
        say_unread(folder, f"{error.filename}: {error.strerror}")
        return
    redact_folder(bundle, secrets)
