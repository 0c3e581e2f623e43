"""Kafka's own metrics: what ``jmx_metrics`` adds to manifests, and what the local platform does with them."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from loosehanger.cli.monitoring import write_configuration
from loosehanger.errors import LabError, WrongUseError
from loosehanger.lab.manifests.documents import Document, read_documents
from loosehanger.lab.manifests.loader import check_document, ignored_fields
from loosehanger.lab.manifests.metrics import KEY, with_metrics
from loosehanger.lab.manifests.resources import ConfigMapKey, MetricsConfig, exporter_rules
from loosehanger.lab.record import Exporter, Lab, Region, WebConsole
from loosehanger.paths import ROOT
from loosehanger.platforms.local.jmx_exporter import SECRET, USER, agent, check_rules
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


def rules(key: str = "a.yml", name: str = "rules") -> ConfigMapKey:
    """A key of the ConfigMap."""
    return ConfigMapKey(name=name, key=key)


def test_a_mirror_gets_metrics_and_its_rules() -> None:
    given = mirror()
    config_map_, changed = with_metrics([given])
    assert "metricsConfig" not in given.content["spec"]
    reference = changed.content["spec"]["metricsConfig"]["valueFrom"]["configMapKeyRef"]
    assert (config_map_.kind, config_map_.namespace, config_map_.name) == (
        "ConfigMap",
        "north-america",
        reference["name"],
    )
    assert reference["key"] == KEY
    assert len(yaml.safe_load(config_map_.content["data"][KEY])["rules"]) > 5
    check_document(config_map_)
    check_document(changed)


def test_two_mirrors_and_a_cluster_share_what_they_can() -> None:
    one, other = mirror(), mirror()
    other.content["metadata"]["name"] = "other"
    kafka = Document("k.yaml", 1, {"kind": "Kafka", "metadata": {"name": "k"}, "spec": {"kafka": {}}})
    specs: tuple[Any, ...] = (None, [], {}, {"kafka": "x"})
    odd = [Document("o.yaml", 1, {"kind": "Kafka", "spec": spec}) for spec in specs]
    found = with_metrics([one, kafka, *odd, other])
    assert [document.name for document in found[:2]] == ["mirror-maker-2-metrics", "kafka-metrics"]
    assert found[3].content["spec"]["kafka"]["metricsConfig"]["valueFrom"]["configMapKeyRef"]["name"] == "kafka-metrics"
    assert found[4:-1] == odd
    assert "metricsConfig" in found[-1].content["spec"]


def test_rules_that_are_missing_are_found_before_anything_starts(region: LocalRegion) -> None:
    given = mirror()
    given.content["spec"]["metricsConfig"] = REFERENCE
    manifest = check_document(given)
    check_rules(region, [manifest])
    elsewhere = replace(region, name="north-america")
    with pytest.raises(WrongUseError, match=r"mm2-na.yaml: KafkaMirrorMaker2/mm2-na: metricsConfig: ConfigMap/rules"):
        check_rules(elsewhere, [manifest])
    check_rules(elsewhere, [check_document(Document("c.yaml", 1, config_map({"a.yml": "rules: []"}))), manifest])


def test_metrics_of_its_own_stay() -> None:
    given = mirror()
    given.content["spec"]["metricsConfig"] = REFERENCE
    assert with_metrics([given]) == [given]


def test_the_agent_asks_for_a_password_that_only_the_owner_reads(region: LocalRegion, tmp_path: Path) -> None:
    option, content = agent(region, rules(), tmp_path / "node", 20_003)
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
    assert agent(region, rules(), tmp_path / "node", 20_003) == (option, content)


@pytest.mark.parametrize(
    ("key", "name", "said"),
    [
        ("b.yml", "rules", r"europe: metricsConfig: ConfigMap/rules: b\.yml: not found; describe"),
        ("a.yml", "others", r"europe: metricsConfig: ConfigMap/others: a\.yml: not found"),
        ("list.yml", "rules", "is not the JMX exporter's configuration"),
        ("bad.yml", "rules", "is not YAML"),
    ],
)
def test_rules_that_cannot_be_used_are_named(
    region: LocalRegion, tmp_path: Path, key: str, name: str, said: str
) -> None:
    with pytest.raises(WrongUseError, match=said):
        agent(region, rules(key, name), tmp_path / "node", 20_003)


def test_the_exporter_needs_rules_and_the_reporter_is_named_as_ignored() -> None:
    with pytest.raises(ValueError, match=r"jmxPrometheusExporter needs valueFrom\.configMapKeyRef"):
        MetricsConfig.model_validate({"type": "jmxPrometheusExporter"})
    settings = REFERENCE | {"type": "strimziMetricsReporter", "values": {"allowList": ["x"]}}
    reporter = MetricsConfig.model_validate(settings)
    assert exporter_rules(reporter) is None
    assert exporter_rules(None) is None
    assert exporter_rules(MetricsConfig.model_validate(REFERENCE)) == rules()
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
        "strimzi_io_name": "mm2-mirrormaker2",
        "namespace": "europe",
        "kubernetes_pod_name": "mm2-mirrormaker2-0",
        "container": "mm2-mirrormaker2",
    }
