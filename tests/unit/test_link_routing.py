"""Which links a lab has, and which ports lead where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loosehanger.errors import LabError
from loosehanger.lab.manifests.resources import Kafka, KafkaNodePool
from loosehanger.lab.topology import Topology
from loosehanger.platforms.local.kafka_cluster import LocalCluster
from loosehanger.platforms.local.links import links_of, routes
from loosehanger.platforms.local.region import LocalRegion

from ..topologies import documents, mirror, program, resource, with_users

A, B, C, D = "region-a", "region-b", "region-c", "region-d"
PEERS = {A: 19100, B: 19200, C: 19300, D: 19400}


def region(folder: Path, name: str) -> LocalRegion:
    """A region of a lab of four."""
    return LocalRegion(folder, folder, name, PEERS[name], PEERS)


def pool(name: str, nodes: int) -> dict[str, Any]:
    """The nodes of a region's cluster."""
    return resource("kafka.strimzi.io/v1", "KafkaNodePool", "nodes", name, {"replicas": nodes})


def links(folder: Path, topology: Topology) -> dict[str, list[str]]:
    """The other ends of the links whose relays a region has."""
    found = {name: [link.other.name for link in links_of(region(folder, name), topology)] for name in PEERS}
    return {name: others for name, others in found.items() if others}


def test_there_is_a_link_where_something_crosses_and_from_the_prover_to_every_cluster(tmp_path: Path) -> None:
    chain = [mirror("bc", C, C, B), mirror("cd", D, D, C)]
    topology = Topology([*with_users(*chain, regions=[A, B, C]), *with_users(regions=[D])])
    # No control room: provers are with the first cluster.
    assert links(tmp_path, topology) == {A: [B, C, D], B: [C], C: [D]}
    alone = Topology([*with_users(regions=[B]), *documents(program(A, B), program(B, B, name="at-home"))])
    assert links(tmp_path, alone) == {A: [B]}
    assert links(tmp_path, Topology(with_users(regions=[B]))) == {}


def test_every_node_and_worker_has_a_port_of_its_own_for_every_other_region(tmp_path: Path) -> None:
    regions = [region(tmp_path, name) for name in PEERS]
    nodes = [pool(name, 3) for name in PEERS]
    topology = Topology(documents(*nodes, mirror("mm2", A, A, B)))
    listening: list[int] = []
    for server in regions:
        for client in regions:
            if server != client:
                found = list(routes(server, client, topology))
                assert len(found) == (4 if server.name == A else 3)
                assert {(route.client, route.server) for route in found} == {(client.name, server.name)}
                listening += [route.port for route in found] + [
                    route.target for route in found if route.target % 100 < 50
                ]
    own = [server.node_port(node, listener) for server in regions for node in range(3) for listener in range(3)]
    assert len({*listening, *own}) == len(listening) + len(own)


def test_a_region_without_peers_has_no_links(tmp_path: Path) -> None:
    alone = LocalRegion(tmp_path, tmp_path, A, 19100)
    assert links_of(alone, Topology(with_users(mirror("mm2", A, A, B), regions=[A, B]))) == []


def test_listeners_that_leave_no_room_for_links_are_refused(tmp_path: Path) -> None:
    def cluster(listeners: int) -> LocalCluster:
        authentication = {"type": "scram-sha-512"}
        own = [
            {
                "name": f"l{number}",
                "port": 9100 + number,
                "type": "internal",
                "tls": True,
                "authentication": authentication,
            }
            for number in range(listeners)
        ]
        spec = {"version": "4.3.1", "listeners": own, "authorization": {"type": "simple"}, "config": {}}
        kafka = resource("kafka.strimzi.io/v1", "Kafka", A, A, {"kafka": spec, "entityOperator": {}})
        storage = {"type": "jbod", "volumes": [{"id": 0, "type": "ephemeral", "kraftMetadata": "shared"}]}
        nodes = pool(A, 1)
        nodes["spec"] |= {"roles": ["controller", "broker"], "storage": storage}
        del kafka["metadata"]["labels"]
        return LocalCluster(region(tmp_path, A), Kafka.model_validate(kafka), [KafkaNodePool.model_validate(nodes)])

    assert cluster(3).ports() == [19100, 19101, 19102, 19103, 19104, 19107, 19106, 19105]
    with pytest.raises(
        LabError, match=f"{A}: Kafka/{A}: the local platform has 8 ports for a node: two of its own, one"
    ):
        cluster(4).ports()
