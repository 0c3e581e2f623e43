"""Who is connected to whom in a lab, read from the machine's sockets: what crosses regions must go through a relay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from loosehanger.platforms.local.region import PORTS_OF_A_NODE, RELAY_PORTS
from scripts.sandbox import Kit

REGIONS = ("europe", "north-america", "south-america")
"""The inventory's, in its order."""
OF_NODES_ONLY = (0, 1)
"""The numbers of the listeners for the controllers, and for replication and the platform itself."""
OF_RELAYS_ONLY = range(PORTS_OF_A_NODE - len(REGIONS) + 1, PORTS_OF_A_NODE)
NODE_PORTS = range(40)
"""Where nodes listen, in the ports of their region."""


@dataclass(frozen=True)
class Crossing:
    """A connection from a program of a region to a port of the lab."""

    region: str
    is_relay: bool
    program: str
    to: str
    """The region whose port it is."""
    port: int
    """Counted from the region's first."""

    @property
    def is_right(self) -> bool:
        """Whether it goes where it may: at home anywhere, abroad to a relay; a relay to what it leads to."""
        if self.is_relay:
            return self.port not in RELAY_PORTS and self._listener not in OF_NODES_ONLY
        if self._listener in OF_RELAYS_ONLY:
            return False
        return self.region == self.to or self.port in RELAY_PORTS

    @property
    def _listener(self) -> int | None:
        return self.port % PORTS_OF_A_NODE if self.port in NODE_PORTS else None


def crossings(kit: Kit) -> Iterator[Crossing]:
    """Every open connection of the lab's programs to the lab's ports."""
    for process in psutil.process_iter():
        try:
            folder = Path(process.environ().get("LAB_REGION_FOLDER", ""))
            if folder.parent != kit.home / "regions":
                continue
            command = " ".join(process.cmdline())
            for connection in process.net_connections(kind="tcp"):
                index, port = divmod(connection.raddr.port - kit.port_base, 100) if connection.raddr else (0, 0)
                if 1 <= index <= len(REGIONS) and connection.status == psutil.CONN_ESTABLISHED:
                    yield Crossing(folder.name, "local.relay" in command, command[-80:], REGIONS[index - 1], port)
        except psutil.Error:
            continue
