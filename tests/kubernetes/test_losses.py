"""Regions that die and are made again: what a real API server keeps of them. There are no nodes, so that no pod runs.

A stand-in says what operators would say; of Strimzi's own kind for pods there is only its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from loosehanger.errors import LabError, WrongUseError
from loosehanger.lab.topology import SecretCopy
from loosehanger.paths import ROOT
from loosehanger.platforms.kubernetes import region_failure
from loosehanger.platforms.kubernetes.apply import RegionNamespace, apply, delete_region
from loosehanger.platforms.kubernetes.copied_secrets import COPIED_FROM, copy_secrets
from loosehanger.platforms.kubernetes.resources import LABELS, ManifestEntry, labelled
from loosehanger.platforms.kubernetes.services import ClusterContext
from loosehanger.waiting import wait_for
from scripts.apiserver.server import ApiServer

from .commands import present, resource
from .conftest import namespace_document
from .stand_in import STRIMZI, StandIn
from .test_copied_secrets import secret

pytestmark = [pytest.mark.kubernetes, pytest.mark.usefixtures("controllers")]
PODSETS = "core.strimzi.io/v1"
OF_CLUSTER = {"strimzi.io/cluster": "west"}
BOUND = 40.0


@dataclass
class Dying:
    """A region with a cluster, and where all of it is."""

    server: ApiServer
    region: RegionNamespace
    other: str
    """Another region's namespace."""

    def get(self, version: str, kind: str, name: str) -> dict[str, Any] | None:
        return self.server.get(resource(version, kind, name, self.region.name))

    def pods(self) -> list[str]:
        found = self.server.request("GET", f"/api/v1/namespaces/{self.region.name}/pods")["items"]
        return sorted(pod["metadata"]["name"] for pod in found)


def kafka(namespace: str) -> dict[str, Any]:
    listeners = [{"name": "tls", "port": 9093, "type": "internal", "tls": True}]
    spec = {"kafka": {"version": "4.3.1", "listeners": listeners}}
    return labelled(resource(STRIMZI, "Kafka", "west", namespace) | {"spec": spec})


def pod(
    namespace: str, name: str, labels: Mapping[str, str] = MappingProxyType({}), owner: dict[str, Any] | None = None
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": dict(labels)}
    if owner:
        of = {"apiVersion": PODSETS, "kind": "StrimziPodSet", "name": "west-dual", "controller": True}
        metadata["ownerReferences"] = [{**of, "uid": owner["metadata"]["uid"]}]
    container = {"name": "main", "image": "none"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def unanswered(server: ApiServer, document: dict[str, Any]) -> str | None:
    """What is missing until an operator has given a document its status."""
    found = server.get(document)
    return None if found and found.get("status") else "it has no status"


@pytest.fixture(scope="module", autouse=True)
def podsets(api_server: ApiServer) -> None:
    """Strimzi's kind that keeps pods; whatever it is said to hold is kept."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "strimzipodsets", "singular": "strimzipodset", "kind": "StrimziPodSet"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "strimzipodsets.core.strimzi.io"},
        "spec": {"group": "core.strimzi.io", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    api_server.install([definition])


@pytest.fixture
def dying(api_server: ApiServer, kubeconfig: Path, make_namespace: Callable[[], str]) -> Iterator[Dying]:
    """A region with brokers, a topic that only its operator lets go, a user, volumes and authorities."""
    name, other = make_namespace(), make_namespace()
    api_server.apply(labelled(namespace_document(name)))
    place = ClusterContext(str(kubeconfig))
    region = RegionNamespace(name, place, {name: place, other: place}, True, "", ROOT, print)
    made = Dying(api_server, region, other)
    with StandIn(api_server, [name]):
        region.cluster.apply(kafka(name))
        topic = labelled(resource(STRIMZI, "KafkaTopic", "orders", name))
        topic["metadata"] |= {"finalizers": ["strimzi.io/topic-operator"]}
        topic["metadata"]["labels"] |= OF_CLUSTER
        api_server.apply(topic | {"spec": {"partitions": 1, "replicas": 1}})
        user = labelled(resource(STRIMZI, "KafkaUser", "producer", name))
        user["metadata"]["labels"] |= OF_CLUSTER
        api_server.apply(user | {"spec": {"authentication": {"type": "scram-sha-512"}}})
        # Its operator makes the user's secret before it says "done"; what is written here comes after that.
        wait_for(lambda: unanswered(api_server, user), BOUND, "the operator's word of the user")
        uid = present(api_server, STRIMZI, "KafkaUser", "producer", name)["metadata"]["uid"]
        owner = {"apiVersion": STRIMZI, "kind": "KafkaUser", "name": "producer", "uid": uid}
        for of_user in ("producer", "other"):
            owned = secret(name, of_user, "old", ownerReferences=[owner], labels=OF_CLUSTER)
            api_server.apply(owned, manager="operator")
        api_server.apply(secret(name, "west-cluster-ca", "key", labels=OF_CLUSTER))
        claim = resource("v1", "PersistentVolumeClaim", "data-west-0", name)
        claim["metadata"]["labels"] = OF_CLUSTER
        storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        api_server.apply(claim | {"spec": storage})
        podset = api_server.apply(resource(PODSETS, "StrimziPodSet", "west-dual", name) | {"spec": {}})
        api_server.apply(pod(name, "west-0", OF_CLUSTER, podset))
        api_server.apply(pod(name, "producer-1", LABELS))
        yield made


def test_a_region_dies_and_nothing_of_somebody_elses(dying: Dying) -> None:
    dying.server.apply(pod(dying.region.name, "a-strangers"))
    outcome = region_failure.lose(dying.region, deleted=False, bound=BOUND)
    assert outcome.died_ms is not None
    assert outcome.changed == ["Pod/producer-1", "Pod/west-0"]
    assert dying.pods() == ["a-strangers"]
    wait_for(lambda: "there" if dying.get(PODSETS, "StrimziPodSet", "west-dual") else None, BOUND, "what keeps pods")
    assert region_failure.is_dead(dying.region)
    again = region_failure.lose(dying.region, deleted=False, bound=BOUND)
    assert (again.died_ms, again.changed) == (None, []), "it can die once"


def test_nobody_brings_a_program_back(dying: Dying) -> None:
    name = dying.region.name
    template = {"metadata": {"labels": {"app": "x", **LABELS}}, "spec": pod(name, "x")["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "x"}}, "template": template}
    for app, labels in (("kits", LABELS), ("operators", OF_CLUSTER), ("a-strangers", {})):
        deployment = resource("apps/v1", "Deployment", app, name)
        deployment["metadata"]["labels"] = dict(labels)
        dying.server.apply(deployment | {"spec": spec})
    region_failure.lose(dying.region, deleted=False, bound=BOUND)
    copies = {
        app: present(dying.server, "apps/v1", "Deployment", app, name)["spec"]["replicas"]
        for app in ("kits", "operators", "a-strangers")
    }
    assert copies == {"kits": 0, "operators": 0, "a-strangers": 1}


def test_what_died_is_its_operators_again_when_it_is_carried_out(dying: Dying) -> None:
    region_failure.lose(dying.region, deleted=False, bound=BOUND)
    manifest = ManifestEntry("kafka.yaml:1", kafka(dying.region.name))
    apply(dying.region, region_failure.revived(dying.region, [manifest]), ready_seconds=BOUND)
    assert not region_failure.is_dead(dying.region)
    assert region_failure.revived(dying.region, [manifest]) == [manifest]
    apply(dying.region, [manifest], ready_seconds=BOUND)
    annotations = present(dying.server, STRIMZI, "Kafka", "west", dying.region.name)["metadata"].get("annotations")
    assert region_failure.PAUSED not in (annotations or {})


def test_a_region_is_deleted_although_nobody_lets_its_topics_go(dying: Dying) -> None:
    outcome = region_failure.lose(dying.region, deleted=True, bound=BOUND)
    assert {"KafkaTopic/orders", f"Namespace/{dying.region.name}"} <= set(outcome.changed)
    assert dying.server.get(namespace_document(dying.region.name)) is None


def test_a_dead_region_can_be_cleaned_up(dying: Dying) -> None:
    region_failure.lose(dying.region, deleted=False, bound=BOUND)
    delete_region(dying.region, bound=BOUND, dead=region_failure.is_dead(dying.region), clusters=["west"])
    assert dying.server.get(namespace_document(dying.region.name)) is None


def test_without_an_operator_that_lets_go_nothing_dies(api_server: ApiServer, kubeconfig: Path, namespace: str) -> None:
    place = ClusterContext(str(kubeconfig))
    region = RegionNamespace(namespace, place, {namespace: place}, True, "", ROOT, print)
    region.cluster.apply(kafka(namespace))
    api_server.apply(pod(namespace, "west-0", OF_CLUSTER))
    with pytest.raises(LabError, match=r"Kafka/west: its operator has not confirmed the pause; check that it runs"):
        region_failure.lose(region, deleted=False, bound=1)
    assert api_server.get(pod(namespace, "west-0")) is not None


@pytest.mark.parametrize("dead", [False, True])
def test_a_region_is_wiped_and_its_identity_stays(dead: bool, dying: Dying) -> None:
    name = dying.region.name
    if dead:
        region_failure.lose(dying.region, deleted=False, bound=BOUND)
    kept = ["producer", "west-cluster-ca"]
    gone = region_failure.wipe(dying.region, ["west"], kept, [], bound=BOUND)
    assert {"KafkaTopic/orders", "KafkaUser/producer", "Kafka/west", "Secret/other"} <= set(gone)
    for version, kind, what in (
        (STRIMZI, "Kafka", "west"),
        (STRIMZI, "KafkaUser", "producer"),
        ("v1", "PersistentVolumeClaim", "data-west-0"),
        ("v1", "Secret", "other"),
    ):
        found = dying.get(version, kind, what)
        # A volume's own controller lets it go.
        assert found is None or "deletionTimestamp" in found["metadata"], f"{kind}/{what}"
    for what in kept:
        assert not present(dying.server, "v1", "Secret", what, name)["metadata"].get("ownerReferences")
    assert dying.pods() == []
    assert dying.server.get(namespace_document(name)) is not None
    assert region_failure.wipe(dying.region, ["west"], kept, [], bound=BOUND) == []


def test_what_only_others_have_comes_back(dying: Dying) -> None:
    """Also where nothing is left, not even the namespace."""
    name, other = dying.region.name, dying.other
    generation = {"strimzi.io/ca-key-generation": "1"}
    dying.server.apply(secret(name, "west-clients-ca", "key", labels=OF_CLUSTER, annotations=generation))
    holder = RegionNamespace(other, dying.region.place, dying.region.places, True, "", ROOT, print)
    copies = [
        SecretCopy(name, "producer", other, "kept-producer", "KafkaUser"),
        SecretCopy(name, "west-clients-ca", other, "kept-west-clients-ca", "Kafka"),
    ]
    copy_secrets(holder, copies)
    region_failure.lose(dying.region, deleted=True, bound=BOUND)
    returns = [SecretCopy(other, copy.as_name, name, copy.name, copy.maker) for copy in copies]
    missing = SecretCopy(other, "exists-nowhere", name, "x", "KafkaUser")
    assert region_failure.wipe(dying.region, ["west"], [], [*returns, missing], bound=BOUND) == [
        "Secret/producer",
        "Secret/west-clients-ca",
    ]
    producer = present(dying.server, "v1", "Secret", "producer", name)
    assert producer["data"] == secret(name, "producer", "old")["data"]
    assert COPIED_FROM not in (producer["metadata"].get("annotations") or {}), "its own, and no copy"
    authority = present(dying.server, "v1", "Secret", "west-clients-ca", name)["metadata"]
    assert authority["labels"].items() >= OF_CLUSTER.items()
    assert authority["annotations"].items() >= generation.items()


def test_a_region_that_kept_its_data_in_pods_does_not_come_back_as_it_died(dying: Dying) -> None:
    volume = {"id": 0, "type": "ephemeral"}
    pool = {"kind": "KafkaNodePool", "metadata": {"name": "dual"}, "spec": {"storage": {"volumes": [volume]}}}
    with pytest.raises(WrongUseError, match="KafkaNodePool/dual has no volumes, so its data was lost with its pods"):
        region_failure.check_data(dying.region, [kafka(dying.region.name), pool])
    volume["type"] = "persistent-claim"
    region_failure.check_data(dying.region, [kafka(dying.region.name), pool])
