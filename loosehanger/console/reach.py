"""The regions that this console can reach: a link that is cut or silent separates it from those behind it.

A request into such a link times out, which looks like a region that is down. So the console sends none.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from loosehanger.kafka.links import closed_links


class Reach:
    """The lab's closed links.

    Args:
        home: the lab's home; None where the console knows no links.
    """

    def __init__(self, home: Path | None) -> None:
        self._home = home

    def closed(self, addresses: Iterable[str]) -> str:
        """The state of the closed link that leads to any of these addresses: ``cut`` or ``silent``; empty for none.

        Args:
            addresses: each as ``host:port``, or as a URL.
        """
        if self._home is None:
            return ""
        ports = {urlsplit(one if "//" in one else f"//{one}").port for one in addresses}
        return next((link.state for link in closed_links(self._home) if ports & link.ports), "")

    def between(self, one: str, other: str) -> str:
        """The state of the link between two regions, if it is closed; empty where it is open or does not exist."""
        if self._home is None:
            return ""
        return next((link.state for link in closed_links(self._home) if {one, other} == set(link.between)), "")
