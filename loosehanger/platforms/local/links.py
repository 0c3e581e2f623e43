"""Links: what crosses from one region to another goes through a relay, one for each pair of regions.

A region offers each of its addresses once more for every other region, at a port of its own: there the relay listens,
and leads to a listener of the same node that is there for that region alone. So a client that asks a node for its
cluster's addresses is sent to the relay as well.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from loosehanger.files import remove_folder, write_file
from loosehanger.kafka.links import ROUTES, ask
from loosehanger.lab.link_settings import OneWay
from loosehanger.lab.programs import prover_region
from loosehanger.lab.scenario import MIRROR
from loosehanger.lab.topology import Topology
from loosehanger.platforms.local import processes
from loosehanger.platforms.local.processes import Process, tail
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.local.relay import Route
from loosehanger.waiting import wait_for


@dataclass(frozen=True)
class Link:
    """The link of two regions, whose relay is the first one's."""

    region: LocalRegion
    other: LocalRegion

    @property
    def folder(self) -> Path:
        """Its relay's folder."""
        return self.region.folder / "links" / self.other.name

    @property
    def process_name(self) -> str:
        """The name of its relay's process."""
        return process_name(self.other.name)

    def apply(self, topology: Topology, start: Mapping[tuple[str, str], OneWay]) -> bool:
        """Has the relay running; True when that changed anything.

        Args:
            topology: all regions, as they shall be.
            start: what each direction of every link begins with.
        """
        found = [*routes(self.region, self.other, topology), *routes(self.other, self.region, topology)]
        regions = [self.region.name, self.other.name]
        own = {f"{one}>{other}": asdict(way) for (one, other), way in start.items() if {one, other} == set(regions)}
        text = json.dumps({"regions": regions, "routes": [asdict(route) for route in found], "start": own}, indent=1)
        write_file(self.folder / ROUTES, text)
        process = Process(
            name=self.process_name,
            command=[sys.executable, "-P", "-m", processes.RELAY_MODULE, ROUTES],
            priority=processes.RELAY,
            directory=self.folder,
            environment={"PYTHONPATH": self.region.python_path},
            digest=processes.digest(text),
        )
        return processes.run(self.region, process)

    def wait_ready(self, bound: float) -> None:
        """Waits until the relay answers: only then does it listen for clients.

        Raises:
            LabError: not within ``bound`` seconds; the message has the end of its log.
        """
        wait_for(self._not_ready, bound, f"{self.region.name}: the link with {self.other.name}")

    def _not_ready(self) -> str | None:
        try:
            ask(self.folder)
        except OSError:
            return f"its relay does not answer; its log says: {tail(self.region.logs / f'{self.process_name}.log')}"
        return None

    def delete(self) -> None:
        """Ends the relay, and forgets what was set."""
        processes.remove(self.region, [self.process_name])
        remove_folder(self.folder)


def process_name(other: str) -> str:
    """The name of a relay's process in its own region: the other one tells them apart."""
    return f"link-{other}"


def links_of(region: LocalRegion, topology: Topology) -> list[Link]:
    """The links whose relays are a region's, for all that crosses from one region to another."""
    crossings = {frozenset(pair) for pair in topology.crossings}
    if prover := prover_region(topology):
        crossings |= {frozenset((prover, name)) for name in topology.regions if topology.clusters(name)}
    names = list(region.peers)
    later = names[names.index(region.name) + 1 :] if region.name in names else []
    return [Link(region, region.peer(name)) for name in later if {region.name, name} in crossings]


def apply_links(
    region: LocalRegion, topology: Topology, start: Mapping[tuple[str, str], OneWay], ready_seconds: float
) -> list[str]:
    """Has a region's relays running and ready; returns the names of the links that this changed.

    Args:
        region: whose relays.
        topology: all regions, as they shall be.
        start: what each direction begins with, by the regions that bytes flow from and to.
        ready_seconds: how long a relay may take to get ready.

    Raises:
        LabError: a relay does not get ready.
    """
    wanted = links_of(region, topology)
    changed = [link.other.name for link in wanted if link.apply(topology, start)]
    kept = {link.folder for link in wanted}
    for folder in (region.folder / "links").glob("*"):
        if folder not in kept:
            Link(region, region.peer(folder.name)).delete()
            changed.append(folder.name)
    for link in wanted:
        link.wait_ready(ready_seconds)
    return [f"Link/{region.name}-{name}" for name in changed]


def routes(server: LocalRegion, client: LocalRegion, topology: Topology) -> Iterator[Route]:
    """The ports at which one region's clients reach another one's services, and where they lead."""
    nodes = sum(int(pool.content["spec"].get("replicas", 1)) for pool in topology.of_kind("KafkaNodePool", server.name))
    for node in range(nodes):
        port, target = server.relay_port(node, client.name), server.hidden_port(node, client.name)
        yield Route(port, target, client.name, server.name)
    for slot in range(_workers(server, topology)):
        port, target = server.worker_relay_port(slot, client.name), server.worker_port(slot)
        yield Route(port, target, client.name, server.name)


def _workers(server: LocalRegion, topology: Topology) -> int:
    """How many workers' ports a region may use: as many as its mirrors have, and as far as they were numbered."""
    mirrors = topology.of_kind(MIRROR, server.name)
    wanted: int = sum(max(1, int(mirror.content["spec"].get("replicas", 1))) for mirror in mirrors)
    numbered = [json.loads(path.read_text()) for path in (server.folder / "connect").glob("*/slots.json")]
    return max(wanted, *(int(slot) + 1 for slots in numbered for slot in slots), 0)
