"""Kafka's own metrics: what ``jmx_metrics`` adds to manifests, and what the local platform does with them."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from loosehanger.cli.monitoring import write_configuration
from loosehanger.errors import LabError
from loosehanger.lab.manifests.documents import Document, read_documents
from loosehanger.lab.manifests.loader import check_document, ignored_fields
from loosehanger.lab.manifests.metrics import KEY, with_metrics
from loosehanger.lab.manifests.resources import MetricsConfig
from loosehanger.lab.record import Exporter, Lab, Region, WebConsole
from loosehanger.paths import ROOT
from loosehanger.platforms.local.jmx_exporter import SECRET, USER, agent
from loosehanger.platforms.local.region import LocalRegion

MANIFESTS = ROOT / "playbooks" / "03-broadcast" / "manifests"
REFERENCE = {"type": "jmxPrometheusExporter", "valueFrom": {"configMapKeyRef": {"name": "rules", "key": "a.yml"}}}


def mirror() -> Document:
    """One of the broadcast's."""
    path = MANIFESTS / "mm2-na.yaml"
    return read_documents(str(path), path.read_text(encoding="utf-8"))[0]


@pytest.fixture
def region(tmp_path: Path) -> LocalRegion:
    """With the agent's jar, and a ConfigMap with rules."""
    jar = tmp_path / "jars" / "agent" / "jmx_prometheus_javaagent-1.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    made = LocalRegion(tmp_path, tmp_path, "europe", 20_000)
    made.store(config_map({"a.yml": "rules: [{pattern: x}]\n", "list.yml": "[]\n", "bad.yml": "{\n"}))
    return made


def config_map(data: dict[str, str]) -> dict[str, Any]:
    """One with rules."""
    metadata = {"name": "rules", "namespace": "europe"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def metrics(key: str = "a.yml", name: str = "rules") -> MetricsConfig:
    """Settings that name the ConfigMap."""
    reference = {"name": name, "key": key}
    return MetricsConfig.model_validate({"type": "jmxPrometheusExporter", "valueFrom": {"configMapKeyRef": reference}})


def test_a_mirror_gets_metrics_and_its_rules() -> None:
    given = mirror()
    rules, changed = with_metrics([given])
    assert "metricsConfig" not in given.content["spec"]
    reference = changed.content["spec"]["metricsConfig"]["valueFrom"]["configMapKeyRef"]
    assert (rules.kind, rules.namespace, rules.name) == ("ConfigMap", "north-america", reference["name"])
    assert reference["key"] == KEY
    assert len(yaml.safe_load(rules.content["data"][KEY])["rules"]) > 5
    check_document(rules)
    check_document(changed)


def test_metrics_of_its_own_stay() -> None:
    given = mirror()
    given.content["spec"]["metricsConfig"] = REFERENCE
    assert with_metrics([given]) == [given]


def test_the_agent_asks_for_a_password_that_only_the_owner_reads(region: LocalRegion, tmp_path: Path) -> None:
    option, content = agent(region, metrics(), tmp_path / "node", 20_003)
    path = tmp_path / "node" / "jmx-exporter.yaml"
    jar = tmp_path / "jars" / "agent" / "jmx_prometheus_javaagent-1.jar"
    assert option == f"-javaagent:{jar}=127.0.0.1:20003:{path}"
    assert path.read_bytes() == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    password = (region.secrets / SECRET / "password").read_text()
    assert password not in option
    written = yaml.safe_load(content)
    assert written["httpServer"]["authentication"]["basic"] == {"username": USER, "password": password}
    assert written["rules"] == [{"pattern": "x"}]
    assert agent(region, metrics(), tmp_path / "node", 20_003) == (option, content)


@pytest.mark.parametrize(
    ("key", "name", "said"),
    [
        ("b.yml", "rules", r"europe: ConfigMap/rules: b\.yml: not found; metricsConfig"),
        ("a.yml", "others", r"europe: ConfigMap/others: a\.yml: not found"),
        ("list.yml", "rules", "is not the JMX exporter's configuration"),
        ("bad.yml", "rules", "is not YAML"),
    ],
)
def test_rules_that_cannot_be_used_are_named(
    region: LocalRegion, tmp_path: Path, key: str, name: str, said: str
) -> None:
    with pytest.raises(LabError, match=said):
        agent(region, metrics(key, name), tmp_path / "node", 20_003)


def test_the_exporter_needs_rules_and_the_reporter_is_named_as_ignored() -> None:
    with pytest.raises(ValueError, match=r"jmxPrometheusExporter needs valueFrom\.configMapKeyRef"):
        MetricsConfig.model_validate({"type": "jmxPrometheusExporter"})
    assert not MetricsConfig.model_validate({"type": "strimziMetricsReporter", "values": {"allowList": ["x"]}}).exported
    ignored = {(kind, field) for kind, field, _ in ignored_fields()}
    assert ("KafkaMirrorMaker2", "spec.metricsConfig.values") in ignored
    assert ("Kafka", "spec.kafka.metricsConfig.values") in ignored


def test_metrics_of_workers_and_their_rest_interfaces_never_meet(region: LocalRegion) -> None:
    workers = [region.worker_port(index) for index in range(10)]
    exporters = [region.exporter_port(index) for index in range(10)]
    assert len({*workers, *exporters}) == 20
    with pytest.raises(LabError, match="europe: the local platform has ports for the metrics of 10 mirror workers"):
        region.exporter_port(10)


def test_prometheus_is_given_strimzis_labels_and_the_password_by_file(tmp_path: Path) -> None:
    exporter = Exporter("KafkaMirrorMaker2", "mm2", "mm2-mirrormaker2-0", "127.0.0.1:1234", USER, "/secret/password")
    console = WebConsole("control-room", "http://127.0.0.1:8081/", "operator", scraper="scraper")
    europe = Region("europe", "europe", {}, {}, (), consoles=(console,), exporters=(exporter,))
    lab = Lab("03-broadcast", "local", "inventories/local", {"europe": europe})
    write_configuration(lab, tmp_path, lambda *_: "token")
    jobs = yaml.safe_load((tmp_path / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    (job,) = (job for job in jobs if job["job_name"] == "kafka-resources-metrics-europe")
    assert job["basic_auth"] == {"username": USER, "password_file": "/secret/password"}
    (target,) = job["static_configs"]
    assert target["targets"] == ["127.0.0.1:1234"]
    assert target["labels"] == {
        "strimzi_io_kind": "KafkaMirrorMaker2",
        "strimzi_io_cluster": "mm2",
        "namespace": "europe",
        "kubernetes_pod_name": "mm2-mirrormaker2-0",
    }
