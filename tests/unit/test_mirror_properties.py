"""MirrorMaker 2's properties file, made from the scenarios' manifests."""

from __future__ import annotations

from typing import Any

from loosehanger.kafka.properties import parse_properties
from loosehanger.lab.manifests.views import MirrorMaker
from loosehanger.lab.scenario import MIRROR, read_scenario
from loosehanger.lab.scenario_index import SETUP
from loosehanger.platforms.mirror_properties import DedicatedFlow, flows_of, mirror_properties


def manifests(scenario: str) -> dict[str, MirrorMaker]:
    """A scenario's mirrors, by name."""
    documents = read_scenario(scenario).manifests(SETUP)
    return {document.name: MirrorMaker(document.content) for document in documents if document.kind == MIRROR}


def written(clients: dict[str, dict[str, str]], *flows: DedicatedFlow) -> dict[str, str]:
    """The properties of some flows, as Java reads them."""
    return parse_properties(mirror_properties(clients, flows))


def test_the_manifests_settings_are_in_the_file() -> None:
    (flow,) = flows_of(manifests("03-broadcast")["mm2-na"], "own-")
    found = written({"own-europe": {"bootstrap.servers": "a:1"}, "own-northamerica": {"x": r"C:\y"}}, flow)
    pair = "own-europe->own-northamerica"
    assert found["clusters"] == "own-europe, own-northamerica"
    assert found["own-europe.bootstrap.servers"] == "a:1"
    assert found["own-northamerica.x"] == r"C:\y"
    assert found["own-northamerica.exactly.once.source.support"] == "enabled"
    assert found["own-northamerica.offset.storage.partitions"] == "1"
    assert (found[f"{pair}.enabled"], found[f"{pair}.topics"], found[f"{pair}.tasks.max"]) == ("true", r"LH\..*", "1")
    assert found[f"{pair}.source.consumer.isolation.level"] == "read_committed"
    assert found[f"{pair}.emit.checkpoints.enabled"] == "false", "the manifest has no checkpoint connector"
    assert found["dedicated.mode.enable.internal.rest"] == "true", "exactly-once needs it"
    assert f"{pair}.exactly.once.support" not in found, "the heartbeat connector would not start"


def test_what_copies_nothing_has_no_workers_that_write_there() -> None:
    clients: dict[str, dict[str, str]] = {"a": {}, "b": {}, "c": {}}
    found = written(clients, DedicatedFlow("a", "b", ".*"), DedicatedFlow("a", "c", ".*"))
    off = {(key.rpartition(".enabled")[0]) for key, value in found.items() if value == "false"}
    pairs = ("b->a", "c->a", "b->c", "c->b")
    assert off == {*pairs, *(f"{pair}.emit.heartbeats" for pair in pairs)}
    assert "dedicated.mode.enable.internal.rest" not in found


def test_topics_that_have_three_replicas_by_default_have_as_many_as_the_cluster_says() -> None:
    found = written({"a": {}, "b": {}}, DedicatedFlow("a", "b", ".*", worker={"config.storage.replication.factor": 2}))
    assert found["a->b.heartbeats.topic.replication.factor"] == "-1"
    assert found["b.status.storage.replication.factor"] == "-1"
    assert found["b.config.storage.replication.factor"] == "2", "the manifest's own"


def test_a_checkpoint_connector_brings_its_groups_and_keeps_the_tasks_of_the_other() -> None:
    (flow,) = flows_of(manifests("05-active-passive")["mm2"])
    settings: dict[str, Any] = dict(flow.connector)
    assert settings.get("emit.checkpoints.enabled", True)
    assert settings["sync.group.offsets.enabled"] is True
    assert settings["groups"]
    assert settings["tasks.max"] == 1


def test_both_directions_and_other_topics_fit_into_one_file() -> None:
    flows = [flow for mirror in manifests("08-active-active").values() for flow in flows_of(mirror, "d-", "T")]
    found = written({"d-europe": {}, "d-northamerica": {}}, *flows)
    assert {found["d-europe->d-northamerica.topics"], found["d-northamerica->d-europe.topics"]} == {"T"}
    assert {found["d-europe->d-northamerica.enabled"], found["d-northamerica->d-europe.enabled"]} == {"true"}


def test_a_resource_with_two_sources_is_two_flows() -> None:
    assert [(flow.source, flow.target) for flow in flows_of(manifests("01-aggregate-central")["mm2"])] == [
        ("northamerica", "europe"),
        ("southamerica", "europe"),
    ]
