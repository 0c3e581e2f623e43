"""Writes at full speed with Kafka's own producer."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

from loosehanger.errors import LabError
from loosehanger.experiments.client import value
from loosehanger.experiments.site import Site
from loosehanger.lab.kit_users import ADMINISTRATOR
from loosehanger.lab.manifests.resources import JvmOptions
from loosehanger.platforms.java import Java

SIZE, BATCH, LINGER_MS = 1000, 65_536, 20
"""Bytes of a record, and the producer's batching."""
DIFFERENT = 2000
"""Number of distinct events."""
_BOUND_S = 120


def write_payload(folder: Path) -> Path:
    """Generates the events; returns the file with one in each line."""
    chance = random.Random(SIZE)  # noqa: S311 (no secret)
    file = folder / "events"
    file.write_bytes(b"\n".join(value(SIZE, chance) for _ in range(DIFFERENT)))
    return file


def produce(site: Site, topic: str, payload: Path, records: int, codec: str = "none") -> None:
    """Writes at home, beside the source's cluster, with Kafka's ProducerPerformance.

    Args:
        site: the regions.
        topic: its name at the source.
        payload: the events, which repeat.
        records: the number of records.
        codec: the producer's ``compression.type``.

    Raises:
        LabError: it failed, or did not finish in time.
    """
    java = Java(site.home)
    command = java.command(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--throughput", "-1"),
        *("--payload-file", str(payload)),
        *("--command-config", str(site.lab.region(site.mirror.source).clients[ADMINISTRATOR])),
        *(
            "--command-property",
            "acks=all",
            f"batch.size={BATCH}",
            f"linger.ms={LINGER_MS}",
            f"compression.type={codec}",
        ),
        options=JvmOptions(),
        heap="256m",
        system={"log4j2.level": "ERROR"},
        temporary=payload.parent,
    )
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **java.environment},
            capture_output=True,
            text=True,
            timeout=_BOUND_S,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"the producer did not finish within {_BOUND_S} seconds") from error
    if done.returncode:
        raise LabError(f"the producer failed: {''.join((done.stdout + done.stderr).strip().splitlines()[-1:])}")
