"""Changes to the link between a mirror's source and target, by its relay."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from loosehanger.errors import LabError, WrongUseError
from loosehanger.faults.changes.change import Change, Undo
from loosehanger.faults.site import FaultSite
from loosehanger.kafka.links import OPEN, ask, link_state, wanted_change
from loosehanger.lab.link_settings import OneWay

_FORMED = ("delay", "jitter", "rate")


class DisturbLink(Change):
    """Makes the link between the mirror's source and target slow, narrow, silent or cut.

    A silent link accepts bytes and forwards none, so that connections stay open; a cut one refuses connections.
    """

    delay: float | None = None
    """Seconds that every byte takes longer, one way; None leaves it as it is."""
    rate: float | None = None
    """Bytes a second, one way; None leaves it as it is."""
    action: Literal["silent", "cut"] | None = None
    towards: Literal["source", "target"] | None = None
    """The only direction that is disturbed; None for both. What a mirror reads flows towards its target."""

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the link's folder and settings; refuses a link that is cut or silent already."""
        folder, status = _open_link(site)
        for way in status["directions"]:
            OneWay(*(way[name] for name in _FORMED)).with_(delay=self.delay, rate=self.rate)
        return {
            "relay": str(folder),
            "ways": [{name: way[name] for name in ("from", "to", *_FORMED)} for way in status["directions"]],
        }

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Asks the relay."""
        one, other = site.mirror.source, site.mirror.target
        if self.towards == "source":
            one, other = other, one
        values = {name: value for name, value in (("delay", self.delay), ("rate", self.rate)) if value is not None}
        _ask(Path(undo["relay"]), wanted_change(one, other, values, self.action, one_way=self.towards is not None))

    def heal(self, site: FaultSite, undo: Undo) -> None:  # noqa: ARG002 - as every change
        """Restores each direction's settings; a link that was silent continues where it stopped."""
        for way in undo["ways"]:
            values = {name: way[name] for name in _FORMED}
            _ask(Path(undo["relay"]), wanted_change(way["from"], way["to"], values, "heal", one_way=True))


class ResetConnections(Change):
    """Resets every connection through the link between the mirror's source and target, as a firewall's restart does.

    Clients connect again at once. A certificate or a password that was changed takes effect only then.
    """

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the link's folder; refuses a link that is cut or silent, which this would mend."""
        folder, _ = _open_link(site)
        return {"relay": str(folder)}

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Asks the relay."""
        mirror = site.mirror
        _ask(Path(undo["relay"]), wanted_change(mirror.source, mirror.target, {}, "forget", one_way=False))

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Does nothing: the connections are open again already."""


def _open_link(site: FaultSite) -> tuple[Path, dict[str, Any]]:
    """Returns the folder of the link's relay, and what it reports.

    Raises:
        WrongUseError: the link is cut or silent already.
    """
    folder = site.relay()
    status = _ask(folder)
    if (state := link_state(status)) != OPEN:
        raise WrongUseError(
            f"the link between {' and '.join(status['between'])} is {state} already; run ./lab link to see it"
        )
    return folder, status


def _ask(folder: Path, wanted: Mapping[str, Any] | None = None) -> dict[str, Any]:
    try:
        return ask(folder, wanted)
    except OSError as error:
        raise LabError(f"{folder}: the link's relay does not answer ({error.strerror or error})") from error
