"""What users of the scenarios' mirrors may do: read where they read, and write the copies and their own state only."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import STATE_TOPICS, offset_syncs, target_topic
from loosehanger.lab.scenario import MIRROR, read_scenario, scenario_names
from loosehanger.lab.scenario_index import SETUP
from loosehanger.lab.topology import Topology

from ..topologies import documents, kafka

EVENTS = "LH."
OF_TENANT = "tenant7.WEB."
"""The same of what a managed cluster's tenant writes there."""


@cache
def topology(scenario: str) -> Topology:
    """A scenario's manifests, with a cluster in every region that they name."""
    manifests = read_scenario(scenario).manifests(SETUP)
    users = {document.namespace for document in manifests if document.kind == "KafkaUser"}
    return Topology([*documents(*(kafka(region) for region in users)), *manifests])


def flows() -> Iterator[Any]:
    """Every source of every mirror, with its scenario."""
    for scenario in scenario_names():
        for mirror in topology(scenario).mirrors:
            yield pytest.param(scenario, mirror, id=f"{scenario}-{mirror.source_alias}-{mirror.target_alias}")


def rights(scenario: str, region: str, user: str) -> dict[tuple[str, str], set[str]]:
    """What a user may do: the operations on each kind and name."""
    (document,) = [found for found in topology(scenario).of_kind("KafkaUser", region) if found.name == user]
    found: dict[tuple[str, str], set[str]] = {}
    for acl in document.content["spec"]["authorization"]["acls"]:
        resource = acl["resource"]
        found.setdefault((resource["type"], resource.get("name", "")), set()).update(acl["operations"])
    return found


def ends(scenario: str, mirror: Mirror) -> tuple[Document, str, str]:
    """A mirror's resource, and its users at the source and at the target."""
    (document,) = [found for found in topology(scenario).of_kind(MIRROR, mirror.region) if found.name == mirror.name]
    spec = document.content["spec"]
    (source,) = [entry["source"] for entry in spec["mirrors"] if entry["source"]["alias"] == mirror.source_alias]
    return document, source["authentication"]["username"], spec["target"]["authentication"]["username"]


def copies(mirror: Mirror) -> tuple[str, ...]:
    """What the names of its copies begin with: of the source's own events, or of all that the source has."""
    return (target_topic(mirror, EVENTS), target_topic(mirror, "")) if mirror.policy != "identity" else (EVENTS,)


@pytest.mark.parametrize(("scenario", "mirror"), list(flows()))
def test_a_mirror_cannot_change_events_where_it_reads(scenario: str, mirror: Mirror) -> None:
    _, reader, writer = ends(scenario, mirror)
    found = rights(scenario, mirror.source, reader)
    # All of them by their prefix, or each by its name where some must stay.
    of_events = [
        operations
        for (kind, name), operations in found.items()
        if kind == "topic" and name.startswith((EVENTS, OF_TENANT))
    ]
    assert of_events
    assert all(operations == {"Read", "DescribeConfigs"} for operations in of_events)
    assert reader != writer or mirror.source != mirror.target
    for (kind, name), operations in found.items():
        if name != offset_syncs(mirror)[1] or mirror.offset_syncs != "source":
            assert kind != "topic" or not operations & {"Write", "Alter", "AlterConfigs", "Delete"}, name


@pytest.mark.parametrize(("scenario", "mirror"), list(flows()))
def test_a_mirror_writes_its_copies_and_nothing_that_applications_write(scenario: str, mirror: Mirror) -> None:
    document, _, writer = ends(scenario, mirror)
    found = rights(scenario, mirror.target, writer)
    reads = {"Read"} if mirror.groups else set()
    copied = [found["topic", name] - reads for name in copies(mirror) if ("topic", name) in found]
    assert copied == [{"Create", "Write", "Alter", "AlterConfigs"}]
    of_writer = [
        name
        for other in topology(scenario).mirrors
        if other.target == mirror.target and ends(scenario, other)[2] == writer
        for name in copies(other)
    ]
    state = [document.content["spec"]["target"][key] for key in STATE_TOPICS]
    for (kind, name), operations in found.items():
        if kind == "topic" and "Write" in operations and name not in of_writer:
            own = name.startswith(("mm2-offset-syncs.", "__", f"{mirror.source_alias}.checkpoints."))
            assert own or all(topic.startswith(name) for topic in state)
        if kind == "transactionalId":
            assert name != "*"
    group = document.content["spec"]["target"]["groupId"]
    assert found["transactionalId", f"connect-cluster-{group}"] == {"Describe", "Write"}
    tasks = [
        name for kind, name in found if kind == "transactionalId" and f"{group}-{mirror.connector}-".startswith(name)
    ]
    assert tasks
    assert all(name.startswith(f"{group}-") for name in tasks)
