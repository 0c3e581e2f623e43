"""Measures how long a fresh clone takes to its first proof, and what it downloads on the way.

    .lab/venv/bin/python -m scripts.bench.first_proof

Three ways in one run: with nothing installed, after ``./lab prefetch``, and from a file of ``./lab export-install``.
The link is the machine's own; for a slower one, run it in a network namespace behind a link that is bounded by ``tc``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from loosehanger.errors import LabError
from loosehanger.paths import ROOT
from scripts.bench.common import PORT_BASE, machine, measured, table
from scripts.bench.lifecycle import BROADCAST

ARCHIVE = "installation.tar"
PREFETCH, SETUP, PROVE = ("./lab", "prefetch"), ("./lab", "setup", BROADCAST), ("./lab", "prove")
EXPORT = ("./lab", "export-install", ARCHIVE)
KEPT = ("LANG", "PATH", "TERM", "SSL_CERT_FILE", "PIP_", "http_proxy", "https_proxy", "no_proxy")
"""How the names of what the environment keeps begin: that of the machine, and how it reaches packages."""


def main() -> None:
    """Measures, and prints a table."""
    with tempfile.TemporaryDirectory(prefix="lab-bench-") as folder:
        archive = Path(folder, "prefetched", ARCHIVE)
        rows = [
            *way(Path(folder, "fresh"), "nothing installed", [SETUP, PROVE]),
            *way(Path(folder, "prefetched"), "prefetched", [PREFETCH, SETUP, PROVE, EXPORT]),
            *way(Path(folder, "exported"), "from a file", [(*PREFETCH, "--from", str(archive)), SETUP, PROVE]),
        ]
    print(f"\n{machine()}\n")
    print(table(("Clone", "Command", "s", "MiB received"), rows))


def way(clone: Path, name: str, commands: Sequence[Sequence[str]]) -> list[tuple[str, str, str, str]]:
    """Runs commands in a clone of its own, and cleans it up.

    Raises:
        LabError: one of them failed.

    Returns:
        A row for each.
    """
    command = ["git", "clone", "--quiet", str(ROOT), str(clone)]
    subprocess.run(command, check=True)
    home = clone.with_name(f"{clone.name}-home")
    home.mkdir()
    rows = []
    try:
        for words in commands:
            before = received()
            spent = measured(words, clone, environment(home), home / "errors")
            if spent.code:
                raise LabError(f"{' '.join(words)} ended with {spent.code}: {(home / 'errors').read_text()[-500:]}")
            shown = " ".join(Path(word).name if word.startswith("/") else word for word in words)
            rows.append((name, f"`{shown}`", f"{spent.seconds:.0f}", f"{(received() - before) / 2**20:.0f}"))
            print(*rows[-1], flush=True)
    finally:
        measured(("./lab", "cleanup"), clone, environment(home))
    return rows


def environment(home: Path) -> Mapping[str, str]:
    """Returns the environment of a user who has installed nothing: an empty home, and no virtual environment."""
    own = {name: value for name, value in os.environ.items() if name.startswith(KEPT)}
    path = [entry for entry in own["PATH"].split(":") if not Path(entry).is_relative_to(sys.prefix)]
    return {**own, "PATH": ":".join(path), "HOME": str(home), "LAB_PORT_BASE": str(PORT_BASE)}


def received() -> int:
    """Returns the bytes that the machine has received, but for loopback."""
    return sum(count.bytes_recv for name, count in psutil.net_io_counters(pernic=True).items() if name != "lo")


if __name__ == "__main__":
    main()
