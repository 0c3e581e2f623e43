"""The older releases of Kafka that manifests name: their jars are fetched when one does, each checked by its hash."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterable

from loosehanger.errors import WrongUseError
from loosehanger.lab.manifests.loader import Manifest
from loosehanger.lab.manifests.resources import OLDER_KAFKA_VERSIONS, Kafka, KafkaMirrorMaker2
from loosehanger.paths import ROOT
from loosehanger.platforms.java import set_of
from loosehanger.platforms.local.region import LocalRegion

LOCK = "kafka-releases.lock"
"""The lock of their jars."""


def named(manifests: Iterable[Manifest]) -> list[str]:
    """Returns the older releases that clusters and mirrors name, in their order."""
    found: set[str] = set()
    for manifest in manifests:
        match manifest.resource:
            case KafkaMirrorMaker2() as mirror:
                found.add(mirror.spec.version)
            case Kafka() as kafka:
                found.add(kafka.spec.kafka.version)
    return [version for version in OLDER_KAFKA_VERSIONS if version in found]


def fetch(region: LocalRegion, manifests: Iterable[Manifest]) -> None:
    """Fetches the jars of the older releases that manifests name; those that are present and intact stay.

    Raises:
        WrongUseError: a jar cannot be fetched; nothing was changed.
    """
    if not (versions := named(manifests)):
        return
    folder = (region.home / "jars").resolve()
    sets = [set_of(version) for version in versions]
    command = [sys.executable, "-P", "-m", "loosehanger.mirrorproof.jars", str(ROOT / LOCK), str(folder), *sets]
    # Each region is a process, and two may name the same release.
    with (folder / f"{LOCK}.busy").open("w") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": region.python_path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise WrongUseError(f"{region.name}: Kafka {', '.join(versions)}: {lines[-1].removeprefix('error: ')}")
