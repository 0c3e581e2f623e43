"""Ports of this machine."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

LOOPBACK = "127.0.0.1"
_EVERY_ADDRESS = {"0.0.0.0": LOOPBACK, "::": "::1"}  # noqa: S104 - nothing is bound here
KERNEL = Path("/proc/sys/net/ipv4")


def is_taken(port: int) -> bool:
    """Whether a program listens on a port of the loopback address."""
    with socket.socket() as probe:
        # Connections of an earlier lab in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return True
    return False


def answering(bound: str) -> str:
    """Returns the address of this machine at which a server answers, from the one that it is bound to."""
    return _EVERY_ADDRESS.get(bound, bound)


def free_ports(count: int) -> list[int]:
    """Returns ports of the loopback address on which no program listens at the moment."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for opened in sockets:
            opened.bind((LOOPBACK, 0))
        return [opened.getsockname()[1] for opened in sockets]


def outgoing_ports(kernel: Path = KERNEL) -> range:
    """Returns the kernel's range of ports for outgoing connections; empty if it is not known.

    Args:
        kernel: the folder of the kernel's settings.
    """
    try:
        first, last = map(int, (kernel / "ip_local_port_range").read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return range(0)
    return range(first, last + 1)


def reserved_ports(kernel: Path = KERNEL) -> set[int]:
    """Returns the ports of that range that the kernel never uses for outgoing connections.

    Args:
        kernel: the folder of the kernel's settings.
    """
    found: set[int] = set()
    try:
        for part in (kernel / "ip_local_reserved_ports").read_text(encoding="ascii").strip().split(","):
            first, _, last = part.partition("-")
            found |= set(range(int(first), int(last or first) + 1)) if first else set()
    except (OSError, ValueError):
        return set()
    return found
