"""Asks Connect's REST interface and its JMX metrics about one mirror, as an operator does who has nothing else."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import requests
import yaml

from loosehanger.errors import LabError
from loosehanger.faults.fault import Fault
from loosehanger.faults.measured import MEASURED, METRICS, Pair, PlainFacts
from loosehanger.kafka.connect import ConnectClient, parts
from loosehanger.lab.manifests.resources import KAFKA_VERSION
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.record import Exporter, Lab

LOOK_S = 10.0
"""How long one look takes: records are counted at its beginning and at its end."""
EVERY_S = 2.0
SCRAPE_S = 10.0
"""How long an exporter may take to answer; Prometheus waits as long."""
_SAMPLE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_COPIED = "kafka_connect_mirror_mirrorsourceconnector_record_count"
_LATENCY = "kafka_connect_mirror_mirrorsourceconnector_replication_latency_ms"
_LAG = "kafka_consumer_fetch_manager_records_lag"
_READER = "replication-consumer"
"""How the client id of a mirror's own consumer ends."""
_FAILED = "kafka_connect_worker_connector_failed_task_count"
Samples = list[tuple[str, dict[str, str], float]]
Look = tuple[dict[str, str], dict[str, float | None]]
"""The states by connector, and the metrics by name."""


def plain_looks(lab: Lab, mirror: Mirror) -> Look:
    """Asks again and again for ten seconds.

    Args:
        lab: a lab that was set up with ``-e jmx_metrics=true``.
        mirror: the mirror.

    Returns:
        The distinct states of each connector and its tasks, in their order; and the metrics.
    """
    exporters = [
        one for one in lab.region(mirror.region).exporters if one.cluster == mirror.name and one.kind != "Kafka"
    ]
    connect = ConnectClient.of(mirror.connect, timeout_s=EVERY_S, rebalance_s=0)
    seen: dict[str, list[str]] = {}
    first, began = _scrape(exporters), time.monotonic()
    while True:
        for name, states in _states(connect):
            if [states] != seen.setdefault(name, [])[-1:]:
                seen[name].append(states)
        if time.monotonic() - began >= LOOK_S:
            break
        time.sleep(EVERY_S)
    last = _scrape(exporters)
    return {name: ", then ".join(found) for name, found in sorted(seen.items())}, _metrics(
        first, last, mirror, time.monotonic() - began
    )


def measure(lab: Lab, mirror: Mirror, fault: Fault, before: Look, seconds: float) -> PlainFacts:
    """Looks while a fault is there, and writes what was seen beside the catalogue.

    Args:
        lab: the lab.
        mirror: where the fault is.
        fault: the fault.
        before: a look at the healthy lab.
        seconds: how long the fault has been there.
    """
    states, metrics = plain_looks(lab, mirror)
    facts = PlainFacts(
        fault=fault.name,
        scenario=lab.scenario,
        kafka=KAFKA_VERSION,
        seconds=round(seconds, 1),
        connect=states,
        metrics={name: Pair(before=before[1][name], during=metrics[name]) for name in METRICS},
    )
    write_facts(facts)
    return facts


def write_facts(facts: PlainFacts, folder: Path = MEASURED) -> None:
    """Writes a fault's measurements beside the catalogue."""
    folder.mkdir(exist_ok=True)
    text = yaml.safe_dump(facts.model_dump(mode="json"), sort_keys=False, width=110)
    (folder / f"{facts.fault}.yaml").write_text(f"---\n{text}", encoding="utf-8")


def _states(connect: ConnectClient) -> Iterator[tuple[str, str]]:
    try:
        found = connect.statuses()
    except LabError:
        yield "", "no answer"
        return
    for name, status in found.items():
        connector, *tasks = parts(name, status)
        yield name.rpartition(".")[2], f"{connector.state}, tasks: {', '.join(one.state for one in tasks) or 'none'}"


def _scrape(exporters: Iterable[Exporter]) -> Samples | None:
    """Returns all samples of a mirror's workers; None where no exporter answers."""
    found: Samples = []
    answered = False
    for one in exporters:
        password = Path(one.password_file).read_text(encoding="utf-8").strip()
        try:
            answer = requests.get(f"http://{one.address}/metrics", auth=(one.username, password), timeout=SCRAPE_S)
            answer.raise_for_status()
        except requests.RequestException:
            continue
        answered = True
        for sample in _SAMPLE.finditer(answer.text):
            labels = {name: text.replace('\\"', "").strip('"') for name, text in _LABEL.findall(sample["labels"] or "")}
            found.append((sample["name"], labels, float(sample["value"])))
    return found if answered else None


def _metrics(first: Samples | None, last: Samples | None, mirror: Mirror, seconds: float) -> dict[str, float | None]:
    if last is None:
        return dict.fromkeys(METRICS)
    ends = {"source": mirror.source_alias, "target": mirror.target_alias}
    reader = f"{mirror.connector}-"

    def values(samples: Samples | None, name: str) -> list[float]:
        """Returns the values of a metric; of this mirror alone where its labels name one."""
        return [
            value
            for known, labels, value in samples or ()
            if known == name
            and not math.isnan(value)  # nothing was measured in its window
            and all(labels.get(label, alias) == alias for label, alias in ends.items())
            and labels.get("connector", mirror.connector) == mirror.connector
        ]

    def highest(found: list[float]) -> float | None:
        return max(found, default=None)

    lag = [
        value
        for name, labels, value in last
        if name == _LAG and reader in labels["clientid"] and labels["clientid"].endswith(_READER)
    ]
    copied = None
    if before := values(first, _COPIED):
        copied = round((sum(values(last, _COPIED)) - sum(before)) * LOOK_S / seconds, 1)
    failed = values(last, _FAILED)
    return {
        "records_copied": copied,
        "failed_tasks": sum(failed) if failed else None,
        "series": float(len(values(last, _COPIED))),
        "consumer_lag": highest(lag),
        "latency_ms": highest(values(last, _LATENCY)),
    }
