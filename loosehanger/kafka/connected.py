"""``python -m loosehanger.kafka.connected``: whether a program in this pod is connected to anything.

A pod's probes ask it. The programs of the lab serve no port. What can be seen from outside is whether they have a
broker to talk to; the kernel knows that without their help.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

_ESTABLISHED = "01"
_TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))


def connected(tables: Iterable[Path] = _TABLES) -> bool:
    """Whether any TCP connection of this network namespace is established (proc(5), ``/proc/net/tcp``)."""
    return any(
        line.split()[3] == _ESTABLISHED
        for table in tables
        if table.exists()
        for line in table.read_text(encoding="ascii").splitlines()[1:]
    )


if __name__ == "__main__":
    sys.exit(not connected())
