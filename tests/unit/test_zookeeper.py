"""An old cluster with ZooKeeper: its settings, what follows its sign-in, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from loosehanger.errors import WrongUseError
from loosehanger.kafka.patches import _of_any_release, _with_a_time
from loosehanger.kafka.properties import parse_properties
from loosehanger.lab.followed_sign_ins import Following
from loosehanger.lab.manifests.documents import Document, read_resources
from loosehanger.lab.manifests.loader import read_manifests
from loosehanger.lab.manifests.resources import KafkaNodePool, needs_zookeeper
from loosehanger.lab.manifests.views import MirrorMaker
from loosehanger.lab.scenario import read_scenario
from loosehanger.paths import ROOT
from loosehanger.platforms.kubernetes import preflight
from loosehanger.platforms.kubernetes.resources import ManifestEntry
from loosehanger.platforms.local import processes
from loosehanger.platforms.local.kafka_cluster import LocalCluster
from loosehanger.platforms.local.region import LocalRegion

SCRAM_256 = "{type: custom, sasl: true, listenerConfig: {sasl.enabled.mechanisms: SCRAM-SHA-256}}"
NAME = "north-america"


def kafka(version: str = "2.8.2", authentication: str = SCRAM_256, tls: str = "false") -> str:
    return f"""\
apiVersion: kafka.strimzi.io/v1
kind: Kafka
metadata: {{name: {NAME}, namespace: {NAME}}}
spec:
  kafka:
    version: {version}
    listeners:
      - {{name: internal, port: 9098, type: internal, tls: {tls}, authentication: {authentication}}}
    authorization: {{type: simple}}
"""


POOL = f"""\
apiVersion: kafka.strimzi.io/v1
kind: KafkaNodePool
metadata: {{name: nodes, namespace: {NAME}, labels: {{strimzi.io/cluster: {NAME}}}}}
spec: {{replicas: 2, roles: [controller, broker], storage: {{type: ephemeral}}}}
"""


def cluster(home: Path, version: str = "2.8.2") -> LocalCluster:
    (of_kafka,) = read_manifests("file.yaml", kafka(version))
    (pool,) = read_manifests("file.yaml", POOL)
    return LocalCluster(
        LocalRegion(home, ROOT, NAME, 20_000), cast(Any, of_kafka.resource), [cast(KafkaNodePool, pool.resource)]
    )


def test_the_release_decides_whether_a_cluster_has_zookeeper(tmp_path: Path) -> None:
    assert [needs_zookeeper(version) for version in ("2.8.2", "3.2.3", "3.9.1", "4.3.1")] == [True, True, False, False]
    old, new = cluster(tmp_path), cluster(tmp_path, "3.9.1")
    nodes = [f"{NAME}-kafka-0", f"{NAME}-kafka-1"]
    assert old.process_names() == [f"{NAME}-zookeeper-0", *nodes]
    assert old.node_names() == new.process_names() == nodes
    assert [*old.disks] == nodes, "the records are the nodes'"


def test_the_nodes_keep_their_metadata_in_zookeeper_and_reach_it_by_certificate(tmp_path: Path) -> None:
    old = cluster(tmp_path)
    old._certificates()
    assert old.zookeeper
    text = old._properties(1)
    settings = parse_properties(text)
    assert settings["broker.id"] == "1"
    assert settings["zookeeper.connect"] == f"127.0.0.1:{old.region.node_port(0, 0)}"
    assert settings["authorizer.class.name"] == "kafka.security.authorizer.AclAuthorizer"
    of_kraft = {"process.roles", "node.id", "controller.quorum.voters", "controller.listener.names"}
    assert not of_kraft & settings.keys()
    assert settings["listeners"].split(":")[0] == "REPLICATION-9091", "there is no control plane"
    assert settings["listener.name.internal-9098.scram-sha-256.sasl.jaas.config"]
    password = (old.region.secrets / f"{NAME}-kafka-1" / "store.password").read_text()
    assert password not in text
    assert settings["listener.name.replication-9091.ssl.keystore.password"].startswith("${secrets:")

    process = old.zookeeper.process()
    assert process.priority < processes.BROKER, "it starts before the nodes, and stops after them"
    own = parse_properties((old.zookeeper.folder / "zookeeper.properties").read_text())
    assert own["ssl.clientAuth"] == "need"
    assert "clientPort" not in own, "no port takes clients without a certificate"
    assert own["secureClientPortAddress"] == "127.0.0.1"


def test_metadata_in_zookeeper_does_not_become_krafts(tmp_path: Path) -> None:
    folder = cluster(tmp_path).folder
    folder.mkdir(parents=True)
    (folder / "cluster.json").write_text(json.dumps({"id": "x", "nodes": [0, 1], "metadata": "2.8.2"}))
    cluster(tmp_path).check_kept()
    with pytest.raises(WrongUseError, match=r"has its metadata in ZooKeeper, which 4\.3\.1 cannot read; run \./lab cl"):
        cluster(tmp_path, "4.3.1").check_kept()


def test_no_mirror_runs_that_release() -> None:
    mirror = (ROOT / "playbooks/07-migration/manifests/mm2.yaml").read_text(encoding="utf-8")
    with pytest.raises(WrongUseError, match=r"spec\.version: '2\.8\.2' is not possible here; expected '3\.9\.1', "):
        read_manifests("file.yaml", mirror.replace("version: 4.3.1", "version: 2.8.2"))


def followed(*clusters: str) -> dict[tuple[str, str], Document]:
    scenario = read_scenario("07-migration")
    documents = [document for text in clusters for document in read_resources("file.yaml", text)]
    found = Following(scenario.sign_ins_follow, [documents]).of(scenario.manifests("mirror"))
    return {(document.kind, document.name): document for document in found if document.namespace}


def test_users_and_mirrors_follow_the_sign_in_of_the_old_cluster() -> None:
    found = followed(kafka())
    old = {name: one for (kind, name), one in found.items() if kind == "KafkaUser" and one.namespace == NAME}
    assert len(old) == 4
    assert not any("authentication" in one.spec for one in old.values())
    assert all(
        "authentication" in one.spec for one in found.values() if one.kind == "KafkaUser" and one.namespace != NAME
    )
    mirror = MirrorMaker(found["KafkaMirrorMaker2", "mm2"].content)
    (source,) = (entry["source"] for entry in mirror.mirrors)
    assert "tls" not in source
    assert source["authentication"]["type"] == "scram-sha-256"
    assert source["authentication"]["passwordSecret"]["secretName"] == "mm2-northamerica"
    assert mirror.target["tls"]
    assert mirror.target["authentication"]["type"] == "scram-sha-512"
    back = MirrorMaker(found["KafkaMirrorMaker2", "mm2-back"].content)
    assert back.target["authentication"]["type"] == "scram-sha-256"
    assert "tls" not in back.target


@pytest.mark.parametrize(
    "clusters",
    [
        (),
        (kafka("4.3.1", "{type: scram-sha-512}", "true"),),
        # Of two the first counts: that which is described now, and not that which was applied.
        (kafka("4.3.1", "{type: scram-sha-512}", "true"), kafka()),
        (kafka().replace(f"namespace: {NAME}", "namespace: europe"),),
    ],
)
def test_elsewhere_the_manifests_stay_as_they_are(clusters: Sequence[str]) -> None:
    scenario = read_scenario("07-migration")
    before = [one.content for one in scenario.manifests("mirror") if one.namespace]
    documents = [document for text in clusters for document in read_resources("file.yaml", text)]
    found = Following(scenario.sign_ins_follow, [documents]).of(scenario.manifests("mirror"))
    assert [one.content for one in found if one.namespace] == before


class NoList:
    """A Kubernetes cluster whose operator's list of releases may not be read."""

    def allowed(self, _: object) -> bool:
        return False


def test_on_kubernetes_it_is_refused_in_one_line() -> None:
    (document,) = read_resources("file.yaml", kafka())
    entry = ManifestEntry("file.yaml:1", dict(document.content))
    (refused,) = preflight._unsupported_versions(cast(Any, NoList()), [entry])
    assert refused == (
        "file.yaml:1: Kafka/north-america: spec.kafka.version: '2.8.2' needs ZooKeeper, which Strimzi's operator no "
        "longer runs: let the old cluster stand outside it, and set bootstrapServers of the mirror to its address"
    )


def test_a_record_without_a_time_has_minus_one() -> None:
    class Record:
        def __init__(self, time: int | None) -> None:
            self._timestamp = time

    begin = _with_a_time(Record.__init__)
    found = [Record.__new__(Record) for _ in range(2)]
    for record, time in zip(found, (None, 1234), strict=True):
        begin(record, time)
    assert [record._timestamp for record in found] == [-1, 1234]


def test_a_cluster_whose_answer_lacks_a_field_is_described_by_its_metadata() -> None:
    class Old:
        async def _get_cluster_metadata(self, topics: list[str]) -> dict[str, Any]:
            assert topics == []
            return {"cluster_id": "c", "controller_id": 0, "brokers": [{"node_id": 0, "host": "h"}], "topics": []}

    async def lacking(_: Any) -> dict[str, Any]:
        raise KeyError("endpoint_type")

    async def described() -> dict[str, Any]:
        return await _of_any_release(lacking)(Old())

    assert asyncio.run(described()) == {
        "cluster_id": "c",
        "controller_id": 0,
        "brokers": [{"node_id": 0, "broker_id": 0, "host": "h"}],
    }
