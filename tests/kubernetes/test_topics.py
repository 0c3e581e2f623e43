"""Changing a topic where it is declared: the KafkaTopic, which its operator holds Kafka to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loosehanger.errors import LabError, WrongUseError
from loosehanger.lab.record import Kubernetes, Region
from loosehanger.platforms.kubernetes import topics
from loosehanger.platforms.kubernetes.resources import labelled
from scripts.apiserver.server import ApiServer

from .stand_in import STRIMZI, StandIn

pytestmark = pytest.mark.kubernetes


@pytest.fixture
def operator(api_server: ApiServer, namespace: str) -> Iterator[StandIn]:
    with StandIn(api_server, [namespace]) as stand_in:
        yield stand_in


@pytest.fixture
def region(namespace: str, kubeconfig: Path) -> Region:
    return Region(namespace, "europe", {}, {}, (), kubernetes=Kubernetes(str(kubeconfig), ""))


@pytest.fixture
def orders(api_server: ApiServer, namespace: str) -> dict[str, Any]:
    """The topic LH.ORDERS, declared under another name, as names of resources have no capitals."""
    metadata = {"name": "lh.orders", "namespace": namespace, "labels": {"strimzi.io/cluster": "europe"}}
    spec = {"topicName": "LH.ORDERS", "partitions": 3, "config": {"retention.bytes": 1000, "segment.bytes": 500}}
    document = labelled({"apiVersion": STRIMZI, "kind": "KafkaTopic", "metadata": metadata, "spec": spec})
    api_server.apply(document, manager="loosehanger-lab")
    return document


def config(server: ApiServer, topic: dict[str, Any]) -> dict[str, Any]:
    found = server.get(topic)
    assert found
    settings: dict[str, Any] = found["spec"]["config"]
    return settings


def test_settings_are_changed_and_taken_away(
    api_server: ApiServer, operator: StandIn, region: Region, orders: dict[str, Any]
) -> None:
    assert topics.change(region, "LH.ORDERS", {"retention.ms": "3600000", "segment.bytes": None})
    assert config(api_server, orders) == {"retention.bytes": 1000, "retention.ms": "3600000"}
    assert operator.failure is None
    # The next set-up gives back what its manifest says, and leaves alone what it does not.
    api_server.apply(orders, manager="loosehanger-lab")
    assert config(api_server, orders) == orders["spec"]["config"] | {"retention.ms": "3600000"}


def test_a_change_that_the_operator_refuses_is_taken_back(
    api_server: ApiServer, operator: StandIn, region: Region, orders: dict[str, Any]
) -> None:
    def says(topic: dict[str, Any]) -> dict[str, Any]:
        wrong = topic["spec"]["config"].get("retention.ms") == "soon"
        said = {"reason": "KafkaError", "message": "Invalid value soon for retention.ms"} if wrong else {}
        condition = {"type": "Ready", "status": "False" if wrong else "True", **said}
        return {"observedGeneration": topic["metadata"]["generation"], "conditions": [condition]}

    operator.says["KafkaTopic"] = says
    with pytest.raises(
        WrongUseError, match=r"LH\.ORDERS: the operator refuses the change: KafkaError: Invalid value soon"
    ):
        topics.change(region, "LH.ORDERS", {"retention.ms": "soon", "segment.bytes": "600"})
    assert config(api_server, orders) == orders["spec"]["config"]


def test_partitions_are_changed_and_taken_back(
    api_server: ApiServer, operator: StandIn, region: Region, orders: dict[str, Any]
) -> None:
    def spec() -> dict[str, Any]:
        found = api_server.get(orders)
        assert found
        wanted: dict[str, Any] = found["spec"]
        return wanted

    assert topics.change(region, "LH.ORDERS", {"partitions": "5"})
    assert spec() == orders["spec"] | {"partitions": 5}

    def says(topic: dict[str, Any]) -> dict[str, Any]:
        wrong = topic["spec"]["partitions"] < 5
        said = {"reason": "NotSupported", "message": "Decreasing partitions not supported"} if wrong else {}
        condition = {"type": "Ready", "status": "False" if wrong else "True", **said}
        return {"observedGeneration": topic["metadata"]["generation"], "conditions": [condition]}

    operator.says["KafkaTopic"] = says
    with pytest.raises(WrongUseError, match="Decreasing partitions not supported"):
        topics.change(region, "LH.ORDERS", {"partitions": "4", "retention.ms": "3600000"})
    assert spec() == orders["spec"] | {"partitions": 5}


def test_a_change_that_no_operator_looks_at_is_told(
    region: Region, orders: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "SEEN_SECONDS", 0.5)
    name = orders["metadata"]["name"]
    with pytest.raises(LabError, match=rf"KafkaTopic/{name} was changed but not reconciled"):
        topics.change(region, "LH.ORDERS", {"retention.ms": "3600000"})


def test_a_topic_that_nobody_declares_is_left_to_kafka(region: Region, orders: dict[str, Any]) -> None:
    assert not topics.change(region, "LH.STOCK", {"retention.ms": "3600000"})
    assert orders
