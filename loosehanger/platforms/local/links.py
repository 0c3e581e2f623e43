"""Links: traffic between two regions goes through a relay, one for each pair of regions.

For every other region, each node has a relay port and a listener of its own that advertises the relay port. So a client
that connects through the relay also gets the relay's addresses in the cluster's metadata.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loosehanger.files import remove_folder, write_file
from loosehanger.kafka.links import ROUTES, ask
from loosehanger.lab.link_settings import OneWay
from loosehanger.lab.manifests.views import MIRROR, MirrorMaker
from loosehanger.lab.programs import prover_region
from loosehanger.lab.topology import Topology
from loosehanger.platforms.local import processes
from loosehanger.platforms.local.processes import Process, tail
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.waiting import wait_for

if TYPE_CHECKING:
    from loosehanger.platforms.local.relay import Route


@dataclass(frozen=True)
class Link:
    """The link of two regions; its relay runs in the first one."""

    region: LocalRegion
    other: LocalRegion

    @property
    def folder(self) -> Path:
        """Its relay's folder."""
        return self.region.folder / "links" / self.other.name

    @property
    def process_name(self) -> str:
        """The process name of its relay."""
        return process_name(self.other.name)

    def apply(self, topology: Topology, start: Mapping[tuple[str, str], OneWay]) -> bool:
        """Brings the relay into its desired state; True when that changed anything.

        Args:
            topology: all regions, in their desired state.
            start: the initial settings of each direction of every link.
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
        """Waits until the relay answers, which is when it listens for clients.

        Raises:
            LabError: it does not within ``bound`` seconds; the message has the end of its log.
        """
        wait_for(self._not_ready, bound, f"{self.region.name}: the link with {self.other.name}")

    def _not_ready(self) -> str | None:
        try:
            ask(self.folder)
        except OSError:
            return f"its relay does not answer; its log says: {tail(self.region.logs / f'{self.process_name}.log')}"
        return None

    def delete(self) -> None:
        """Stops the relay and deletes its settings."""
        processes.remove(self.region, [self.process_name])
        remove_folder(self.folder)


def process_name(other: str) -> str:
    """Returns the process name of a region's relay, which contains the other region."""
    return f"link-{other}"


def links_of(region: LocalRegion, topology: Topology) -> list[Link]:
    """Returns the links whose relays run in a region."""
    crossings = {frozenset(pair) for pair in topology.crossings}
    if prover := prover_region(topology):
        crossings |= {frozenset((prover, name)) for name in topology.regions if topology.clusters(name)}
    names = list(region.peers)
    later = names[names.index(region.name) + 1 :] if region.name in names else []
    return [Link(region, region.peer(name)) for name in later if {region.name, name} in crossings]


def apply_links(
    region: LocalRegion, topology: Topology, start: Mapping[tuple[str, str], OneWay], ready_seconds: float
) -> list[str]:
    """Starts a region's relays and waits until they are ready; returns the names of the links that changed.

    Args:
        region: the region.
        topology: all regions, in their desired state.
        start: initial settings by direction: the regions that bytes flow from and to.
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
    """Yields the ports at which one region's clients reach another one's services, and their destinations."""
    from loosehanger.platforms.local.relay import Route  # slow to import

    nodes = sum(int(pool.content["spec"].get("replicas", 1)) for pool in topology.of_kind("KafkaNodePool", server.name))
    for node in range(nodes):
        port, target = server.relay_port(node, client.name), server.hidden_port(node, client.name)
        yield Route(port, target, client.name, server.name)
    for slot in range(_workers(server, topology)):
        port, target = server.worker_relay_port(slot, client.name), server.worker_port(slot)
        yield Route(port, target, client.name, server.name)


def _workers(server: LocalRegion, topology: Topology) -> int:
    """Returns how many worker ports a region uses: those of its mirrors' workers, up to the highest number in use."""
    mirrors = topology.of_kind(MIRROR, server.name)
    wanted = sum(max(1, MirrorMaker(mirror.content).replicas) for mirror in mirrors)
    numbered = [json.loads(path.read_text()) for path in (server.folder / "connect").glob("*/slots.json")]
    return max(wanted, *(int(slot) + 1 for slots in numbered for slot in slots), 0)
