"""What Kafka's and Strimzi's own tools showed during a fault in a lab, as data beside the catalogue."""

from __future__ import annotations

from pathlib import Path

from loosehanger.lab.manifests.documents import read_documents, read_file
from loosehanger.lab.manifests.validation import Entry, validated

MEASURED = Path(__file__).parent / "measured"


class Pair(Entry):
    """A metric before the fault and during it; None where no series had one."""

    before: float | None
    during: float | None


class PlainFacts(Entry):
    """What the tools showed of one mirror. ``python -m pytest tests/lab/test_faults.py`` writes it on request."""

    fault: str
    scenario: str
    kafka: str
    """The version."""
    seconds: float
    """Seconds from the injection to the first look."""
    connect: dict[str, str]
    """By connector, the states of it and its tasks, one look after the other; empty where no worker answered."""
    metrics: dict[str, Pair]
    """By name: see ``METRICS``; empty where the exporter did not answer."""


METRICS = {
    "records_copied": "records copied in 10 s",
    "failed_tasks": "failed tasks",
    "series": "series of MirrorSourceConnector",
    "consumer_lag": "highest records-lag of the consumer",
    "latency_ms": "highest replication-latency-ms",
}
"""The metrics that are recorded, and what they are."""


def read_measured(fault: str, folder: Path = MEASURED) -> PlainFacts | None:
    """Returns the measurements of a fault; None for none.

    Raises:
        WrongUseError: its file has a mistake.
    """
    path = folder / f"{fault}.yaml"
    if not path.exists():
        return None
    (document,) = read_documents(str(path), read_file(path))
    return validated(PlainFacts, document)
