"""Strimzi's own dashboards before a lab with Kafka's own metrics: each expression has data, or a reason stands here.

Their expressions are read from a clone of Strimzi's repository where STRIMZI_REPOSITORY names one. Always checked are
the metrics and labels that they ask for, which strimzi_dashboards.yaml keeps as facts.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from scripts.alerting import INSTALLED, NOT_INSTALLED, Monitoring, monitoring
from scripts.sandbox import Kit

from .conftest import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.skipif(not INSTALLED, reason=NOT_INSTALLED)]

FACTS = Path(__file__).with_name("strimzi_dashboards.yaml")
FOLDER = "packaging/examples/metrics/grafana-dashboards"
DASHBOARDS = {"mirror-maker-2": "KafkaMirrorMaker2", "connect": "KafkaMirrorMaker2", "kafka": "Kafka"}
"""The kind whose metrics each is asked about. A lab has no KafkaConnect: a mirror's workers have the same metrics."""
WITHOUT_DATA = {
    "container_": "needs cAdvisor, which a kubelet has",
    "kubelet_": "needs a kubelet",
    "failedfetchrequests": "a topic has it from its first failed request on",
    "failedproducerequests": "a topic has it from its first failed request on",
    "!= 0": "the panel lists connectors with a task that does not run, and here all run",
}
"""What has no data here, by a part of the expression, with the reason; docs/monitoring.md."""
SCENARIO = "05-active-passive"
"""Its mirror has checkpoints, which the broadcast's has not."""


class Target(NamedTuple):
    """What one exporter's series have in common."""

    kind: str
    labels: Mapping[str, str]


def targets(watched: Monitoring) -> list[Target]:
    """The exporters in the configuration of Prometheus."""
    jobs = yaml.safe_load((watched.folder / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    return [
        Target(found["labels"]["strimzi_io_kind"], found["labels"])
        for job in jobs
        for found in job.get("static_configs", ())
    ]


def from_facts(labels: Mapping[str, str]) -> dict[str, list[str]]:
    """Each dashboard's selectors for these labels."""
    found: dict[str, list[str]] = {}
    for name, groups in yaml.safe_load(FACTS.read_text(encoding="utf-8")).items():
        for group in groups:
            chosen = [f'{label}="{labels[label]}"' for label in group["labels"]] + group.get("matchers", [])
            found.setdefault(name, []).extend(f"{metric}{{{','.join(chosen)}}}" for metric in group["metrics"])
    return found


def from_repository(labels: Mapping[str, str]) -> dict[str, list[str]]:
    """Each dashboard's expressions, with Grafana's variables set to these labels; none without the repository."""
    if not (clone := os.environ.get("STRIMZI_REPOSITORY")):
        return {}
    cluster = "strimzi_(mirror_maker_|connect_)?cluster_name"
    found = {}
    for name in DASHBOARDS:
        command = [
            "git",
            "-C",
            clone,
            "show",
            f"HEAD:{FOLDER}/strimzi-kafka{f'-{name}' if name != 'kafka' else ''}.json",
        ]
        board = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        text = "\n".join(
            target["expr"] for panel in _panels(board) for target in panel.get("targets", ()) if "expr" in target
        )
        text = re.sub(rf"\${cluster}\b", labels["strimzi_io_cluster"], text)
        text = text.replace("$kubernetes_namespace", labels["namespace"]).replace(
            "KafkaConnect.*", DASHBOARDS["connect"]
        )
        found[name] = re.sub(r"\$kafka_(broker|topic|partition)\b", ".*", text).splitlines()
    return found


def _panels(holder: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for panel in holder.get("panels", ()):
        yield panel
        yield from _panels(panel)


def empty(watched: Monitoring, expressions: Mapping[str, list[str]], kind: str) -> list[str]:
    """Those of the dashboards of a kind without data, and without a reason for that."""
    return [
        f"{name}: {text}"
        for name, texts in expressions.items()
        if DASHBOARDS[name] == kind
        for text in texts
        if not any(part in text for part in WITHOUT_DATA) and not watched.query(text)
    ]


def test_every_expression_of_strimzis_dashboards_has_data(bare_kit: Kit, tmp_path: Path) -> None:
    done = bare_kit.run("setup", SCENARIO, "-e", "jmx_metrics=true", timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    with monitoring(bare_kit, tmp_path / "monitoring") as watched:
        asked = targets(watched)
        assert {one.kind for one in asked} == set(DASHBOARDS.values())
        # The source's metrics are those of a cluster that is written to; each mirror counts.
        wanted = [one for one in asked if one.kind != "Kafka"]
        wanted += [one for one in asked if one.kind == "Kafka"][:1]
        checked = [(one, given(one.labels)) for one in wanted for given in (from_facts, from_repository)]
        missing: list[str] = []

        def have_data() -> bool:
            missing[:] = [line for one, texts in checked for line in empty(watched, texts, one.kind)]
            return not missing

        try:
            wait_until(have_data, 120, "data for every expression")
        finally:
            print(*missing, sep="\n")
        for reason in ("container_", "kubelet_"):
            texts = [text for one, found in checked for lines in found.values() for text in lines if reason in text]
            assert not any(watched.query(text) for text in texts), f"{reason}: this has data after all"
