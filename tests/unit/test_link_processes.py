"""A link's relay under the process manager: started once, back after a kill, alive when its region dies."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from loosehanger.errors import LabError
from loosehanger.kafka.links import ask, relay_folders
from loosehanger.lab.link_settings import OneWay
from loosehanger.lab.topology import Topology
from loosehanger.paths import ROOT
from loosehanger.platforms.local import processes
from loosehanger.platforms.local.apply import delete_region
from loosehanger.platforms.local.links import apply_links
from loosehanger.platforms.local.region import LocalRegion

from ..topologies import documents, kafka, program, resource

A, B = "region-a", "region-b"
PEERS = {A: 24700, B: 24800}
READY_S = 120.0
NODES = {"replicas": 1}
TOPOLOGY = Topology(
    documents(
        *(kafka(name) for name in PEERS),
        *(resource("kafka.strimzi.io/v1", "KafkaNodePool", "nodes", name, NODES) for name in PEERS),
        program(B, A),
    )
)


@pytest.fixture
def region(tmp_path: Path) -> Iterator[LocalRegion]:
    """The region that has the relay."""
    region = LocalRegion(tmp_path, ROOT, A, PEERS[A], PEERS)
    yield region
    delete_region(region, 20)


def relays(region: LocalRegion) -> list[psutil.Process]:
    """The processes of the region's relay; one that was killed may end between two looks at it."""
    found = []
    for process in processes.marked_processes(region):
        with contextlib.suppress(psutil.NoSuchProcess):
            if processes.RELAY_MODULE in process.cmdline():
                found.append(process)
    return found


def relay(region: LocalRegion) -> psutil.Process:
    """The relay's process."""
    deadline = time.monotonic() + 120
    while True:
        if found := relays(region):
            return found[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def until(condition: Callable[[], bool]) -> None:
    """Waits for something that comes soon."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def answers(region: LocalRegion) -> bool:
    """Whether the relay can be asked."""
    try:
        ask(relay_folders(region.home)[A, B])
    except OSError:
        return False
    return True


def test_a_relay_is_started_once_and_lives_as_long_as_it_should(region: LocalRegion) -> None:
    start = {(A, B): OneWay(delay=0.05)}
    assert apply_links(region, TOPOLOGY, start, READY_S) == [f"Link/{A}-{B}"]
    first = relay(region)
    until(lambda: answers(region))
    reported = ask(relay_folders(region.home)[A, B])
    assert [(way["from"], way["to"], way["delay"]) for way in reported["directions"]] == [(A, B, 0.05), (B, A, 0)]
    listening = {c.laddr.port for c in first.net_connections() if c.status == psutil.CONN_LISTEN}
    assert listening == {PEERS[A] + 72, PEERS[B] + 72}
    assert apply_links(region, TOPOLOGY, start, READY_S) == []

    first.kill()
    until(lambda: relay(region).pid != first.pid and answers(region))

    # Whatever else there is dies with the region, its process manager first.
    second = relay(region)
    assert processes.kill_everything(region)
    assert [process.pid for process in processes.marked_processes(region)] == [second.pid]
    assert answers(region)
    apply_links(region, TOPOLOGY, start, READY_S)
    until(lambda: relay(region).pid != second.pid and answers(region))

    assert delete_region(region, 20)
    assert processes.marked_processes(region) == []
    assert relay_folders(region.home) == {}


def test_where_nothing_crosses_any_longer_there_is_no_relay(region: LocalRegion) -> None:
    apply_links(region, TOPOLOGY, {}, READY_S)
    relay(region)
    alone = Topology(documents(kafka(A), program(A, A)))
    assert apply_links(region, alone, {}, READY_S) == [f"Link/{A}-{B}"]
    assert relays(region) == []
    assert relay_folders(region.home) == {}


def test_a_relay_whose_port_another_program_has_is_not_ready(region: LocalRegion) -> None:
    port = PEERS[B] + 72
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(LabError, match=rf"^{A}: the link with {B}: not within 20 seconds: .*{port}") as failed:
            apply_links(region, TOPOLOGY, {}, 20)
        assert f"link-{B}.log" in str(failed.value)
    apply_links(region, TOPOLOGY, {}, READY_S)
    assert answers(region), "and it is, once the port is free"
