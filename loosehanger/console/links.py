"""The control room's links: the state of the relays between the regions, and changes of it.

Only the local platform has relays, in the lab's home.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from loosehanger.console.models import Link, LinkChange, LinkClient, LinkDirection
from loosehanger.console.region_views import UnknownError
from loosehanger.errors import WrongUseError
from loosehanger.kafka.links import OPEN, ask, link_state, relay_folders, wanted_change
from loosehanger.lab.link_settings import OneWay, parse_rate, parse_time, rate_text, time_text

DELAYS = ("0ms", "40ms", "120ms")
"""The delays that the page offers; the API and ``./lab link`` take any."""


class LinkState(NamedTuple):
    """What a link does, or would do."""

    refused: bool
    """Whether it refuses connections, as it does while it is cut."""
    directions: list[LinkDirection]


class LinkView:
    """The links of a lab.

    Args:
        home: the lab's home; None where it is on another machine, which has no links for this console.
    """

    def __init__(self, home: Path | None) -> None:
        self._home = home

    async def all(self) -> list[Link]:
        """Every link, with its settings and counters."""
        folders = self._folders()
        return list(await asyncio.gather(*(asyncio.to_thread(_link, pair, folder) for pair, folder in folders.items())))

    def pairs(self) -> list[tuple[str, str]]:
        """The regions at the ends of each link."""
        return list(self._folders())

    async def change(self, one: str, other: str, change: LinkChange) -> str:
        """Changes a link; settings that the change leaves out stay as they are.

        Args:
            one: a region.
            other: the region at the link's other end.
            change: the new settings, or an action.

        Returns:
            The link's new state, in a sentence.

        Raises:
            UnknownError: the link does not exist, or does not answer.
            WrongUseError: the change is invalid.
        """
        folder, values = self._wanted(one, other, change)
        relay = await _asked(
            one, other, folder, wanted_change(one, other, values, change.action, one_way=change.one_way)
        )
        return f"The link between {one} and {other} is {link_state(relay)}"

    async def preview(self, one: str, other: str, change: LinkChange) -> tuple[LinkState, LinkState]:
        """What a link does now, and what it would do after a change.

        Raises:
            UnknownError: the link does not exist, or does not answer.
            WrongUseError: the change is invalid.
        """
        folder, values = self._wanted(one, other, change)
        relay = await _asked(one, other, folder)
        then = []
        for way in relay["directions"]:
            settings = OneWay(**{field.name: way[field.name] for field in fields(OneWay)})
            if not change.one_way or way["from"] == one:
                settings = settings.changed(values, change.action)
            then.append(_direction({**way, **settings.as_json()}))
        refused = {"cut": True, "heal": False, "forget": False}.get(change.action or "", relay["refused"])
        return LinkState(relay["refused"], list(map(_direction, relay["directions"]))), LinkState(refused, then)

    def _wanted(self, one: str, other: str, change: LinkChange) -> tuple[Path, dict[str, float]]:
        """The folder of a link's relay, and the values of a change as the relay takes them."""
        folder = next((folder for pair, folder in self._folders().items() if {one, other} == set(pair)), None)
        if folder is None:
            raise UnknownError(f"there is no link between {one} and {other} here")
        if change.one_way and change.action in ("cut", "forget"):
            raise WrongUseError(f"{change.action} closes connections in both directions; only silent works one way")
        return folder, {
            name: parse(text)
            for name, parse in (("delay", parse_time), ("jitter", parse_time), ("rate", parse_rate))
            if (text := getattr(change, name)) is not None
        }

    def _folders(self) -> dict[tuple[str, str], Path]:
        return relay_folders(self._home) if self._home else {}


async def _asked(one: str, other: str, folder: Path, wanted: Mapping[str, Any] | None = None) -> dict[str, Any]:
    try:
        return await asyncio.to_thread(ask, folder, wanted)
    except OSError as error:
        raise UnknownError(f"the link between {one} and {other} does not answer: {error.strerror or error}") from error


def shaping(way: LinkDirection) -> str:
    """The settings of a direction of a link, as ./lab link takes them; empty where it is unshaped."""
    return " ".join(
        f"{name} {text}"
        for name, value, text in (
            ("delay", way.delay_ms, time_text(way.delay_ms / 1000)),
            ("jitter", way.jitter_ms, time_text(way.jitter_ms / 1000)),
            ("rate", way.bytes_per_s, rate_text(way.bytes_per_s or 0)),
        )
        if value
    )


def _link(pair: tuple[str, str], folder: Path) -> Link:
    try:
        relay = ask(folder)
    except OSError as error:
        explanation = f"The link does not answer ({error.strerror or error}); run ./lab status for details"
        return Link(between=pair, state="down", health="bad", explanation=explanation, since=None, directions=[])
    state = link_state(relay)
    return Link(
        between=pair,
        state=state,
        health="good" if state == OPEN else "warning",
        explanation="",
        since=relay["since"],
        directions=[_direction(way) for way in relay["directions"]],
    )


def _direction(way: dict[str, Any]) -> LinkDirection:
    return LinkDirection(
        source=way["from"],
        target=way["to"],
        delay_ms=way["delay"] * 1000,
        jitter_ms=way["jitter"] * 1000,
        bytes_per_s=way["rate"] or None,
        silent=way["silent"],
        refuses=way["refuses"],
        connections=way["connections"],
        turned_away=way["turned_away"],
        carried=way["bytes"],
        on_the_way=way["held"],
        clients=[LinkClient(**client) for client in way["clients"]],
    )
