"""The flows that copiers' own configurations describe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loosehanger.errors import WrongUseError
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import DEFAULT_EXCLUDED, selected_topics, target_topic
from loosehanger.mirrorproof.configuration import read_configuration
from loosehanger.mirrorproof.flows import read_flows

MM2 = """\
# Two clusters, both ways but one is off.
clusters = berlin, lima , oslo
berlin.bootstrap.servers = b1:9092, b2:9092
lima.bootstrap.servers = l1:9092
oslo.bootstrap.servers = o1:9092
security.protocol = SASL_SSL
lima.security.protocol = PLAINTEXT
lima.producer.linger.ms = 5
berlin->lima.enabled = true
berlin->lima.topics = shop\\\\..*, stock
berlin->lima.topics.exclude = shop\\\\.secret
berlin->oslo.enabled = true
berlin->oslo.replication.policy.class = org.apache.kafka.connect.mirror.DefaultReplicationPolicy
berlin->oslo.replication.policy.separator = _
lima->berlin.enabled = false
topics = own-.*
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
replication.factor = 1
"""

V1 = """\
apiVersion: kafka.strimzi.io/v1
kind: KafkaMirrorMaker2
metadata: {name: mm2}
spec:
  replicas: 1
  target: {alias: lima, bootstrapServers: "l1:9092", groupId: g}
  mirrors:
    - source: {alias: berlin, bootstrapServers: "b1:9092"}
      sourceConnector:
        config:
          replication.policy.separator: "-"
      topicsPattern: shop.*
      topicsExcludePattern: shop-secret
"""

V1BETA2 = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata: {name: mm2}
spec:
  connectCluster: lima
  clusters:
    - {alias: berlin, bootstrapServers: "b1:9092"}
    - alias: lima
      bootstrapServers: l1:9092
      tls: {trustedCertificates: []}
  mirrors:
    - sourceCluster: berlin
      targetCluster: lima
      sourceConnector:
        config:
          replication.policy.class: org.apache.kafka.connect.mirror.IdentityReplicationPolicy
      topicsPattern: .*
      topicsBlacklistPattern: secret
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def copies(mirror: Mirror, *there: str) -> dict[str, str]:
    return {topic: target_topic(mirror, topic) for topic in selected_topics(mirror, there)}


def test_mm2s_own_properties(tmp_path: Path) -> None:
    found = read_flows(written(tmp_path, "mm2.properties", MM2))
    lima, oslo = found.mirrors
    assert [mirror.name for mirror in found.mirrors] == ["external/berlin-lima", "external/berlin-oslo"]
    assert copies(lima, "shop.a", "shop.secret", "stock", "own-x") == {"shop.a": "shop.a", "stock": "stock"}
    assert copies(oslo, "shop.a", "own-x", "oslo_own-x") == {"own-x": "berlin_own-x"}
    assert oslo.topics_exclude == DEFAULT_EXCLUDED
    assert found.clusters["berlin"] == {"bootstrap.servers": "b1:9092, b2:9092", "security.protocol": "SASL_SSL"}
    assert found.clusters["lima"] == {"bootstrap.servers": "l1:9092", "security.protocol": "PLAINTEXT"}


def test_a_copier_whose_names_are_unknown_is_refused_with_what_to_do(tmp_path: Path) -> None:
    text = MM2.replace("org.apache.kafka.connect.mirror.DefaultReplicationPolicy", "com.example.Own")
    with pytest.raises(WrongUseError, match=r"berlin->oslo: replication.policy.class: .*'com.example.Own'.*'names'"):
        read_flows(written(tmp_path, "mm2.properties", text))
    with pytest.raises(WrongUseError, match=r"no flow is enabled; MM2 copies where it has SOURCE->TARGET.enabled"):
        read_flows(written(tmp_path, "mm2.properties", "clusters = a, b\n"))
    with pytest.raises(WrongUseError, match="describes no flows"):
        read_flows(written(tmp_path, "client.properties", "bootstrap.servers = a:1\n"))


def test_a_manifest_of_v1(tmp_path: Path) -> None:
    found = read_flows(written(tmp_path, "mm2.yaml", V1))
    (mirror,) = found.mirrors
    assert (mirror.source, mirror.target) == ("berlin", "lima")
    assert copies(mirror, "shop-a", "shop-secret", "x") == {"shop-a": "berlin-shop-a"}
    # The manifest alone is enough, as it names no credentials.
    assert list(read_configuration(tmp_path / "mm2.yaml").lab({}).clusters) == ["berlin", "lima"]


def test_a_manifest_of_v1beta2_takes_the_credentials_from_the_configuration(tmp_path: Path) -> None:
    (mirror,) = read_flows(written(tmp_path, "mm2.yaml", V1BETA2)).mirrors
    assert copies(mirror, "a", "secret") == {"a": "a"}
    with pytest.raises(WrongUseError, match=r"mm2.yaml:12: .*credentials of cluster 'lima' are in Secrets; give"):
        read_configuration(tmp_path / "mm2.yaml")
    text = "clusters:\n  lima: {properties: {bootstrap.servers: 'x:1'}}\nread: [mm2.yaml]\n"
    lab = read_configuration(written(tmp_path, "flows.yaml", text)).lab({})
    assert {name: region.properties["prover"]["bootstrap.servers"] for name, region in lab.clusters.items()} == {
        "berlin": "b1:9092",
        "lima": "x:1",
    }
    wrong = V1BETA2.replace("targetCluster: lima", "targetCluster: lina")
    with pytest.raises(WrongUseError, match=r"mm2.yaml:13: .*'lina' is not in spec.clusters; it has: berlin, lima"):
        read_flows(written(tmp_path, "mm2.yaml", wrong))


@pytest.mark.parametrize("as_json", [True, False])
def test_replicators_suffix(as_json: bool, tmp_path: Path) -> None:
    config = {
        "connector.class": "io.confluent.connect.replicator.ReplicatorSourceConnector",
        "src.kafka.bootstrap.servers": "s:1",
        "src.kafka.security.protocol": "PLAINTEXT",
        "dest.kafka.bootstrap.servers": "d:1",
        "topic.whitelist": "a.b,c",
        "topic.regex": "x-.*",
        "topic.blacklist": "x-y",
        "topic.rename.format": "${topic}.replica",
    }
    text = json.dumps({"name": "r", "config": config}) if as_json else "".join(f"{k}={v}\n" for k, v in config.items())
    found = read_flows(written(tmp_path, f"r.{'json' if as_json else 'properties'}", text))
    (mirror,) = found.mirrors
    # A copy of the copies' suffix is what MM2 leaves out; it is no topic of the source here.
    assert copies(mirror, "a.b", "a-b", "c", "x-1", "x-y", "d") == {
        "a.b": "a.b.replica",
        "c": "c.replica",
        "x-1": "x-1.replica",
    }
    assert found.clusters["source"] == {"bootstrap.servers": "s:1", "security.protocol": "PLAINTEXT"}
