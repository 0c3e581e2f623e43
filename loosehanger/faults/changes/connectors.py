"""Changes to a mirror's connectors, by Connect's REST interface."""

from __future__ import annotations

from typing import Literal

from loosehanger.errors import WrongUseError
from loosehanger.faults.changes.change import Change, Undo
from loosehanger.faults.site import FaultSite
from loosehanger.waiting import wait_for

CONNECTOR_S = 30
"""Seconds until a connector has the state that it was asked for."""


class PauseConnector(Change):
    """Pauses or stops a connector of the mirror, as an operator does by hand and forgets."""

    connector: Literal["source", "checkpoint"] = "source"
    state: Literal["paused", "stopped"] = "paused"

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the connector's name; refuses a mirror that has none, or whose connector does not run."""
        name = site.mirror.connector if self.connector == "source" else site.mirror.checkpoint_connector
        status = site.connect().status(name) if name else None
        if status is None:
            raise WrongUseError(f"{site.mirror.name} in {site.mirror.region} has no {self.connector} connector")
        if status["connector"]["state"] != "RUNNING":
            raise WrongUseError(f"{name} is {status['connector']['state'].lower()} already")
        return {"connector": name}

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Asks Connect, and waits until the connector has that state."""
        site.connect().act(undo["connector"], "pause" if self.state == "paused" else "stop")
        _await_state(site, undo["connector"], self.state.upper())

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Resumes the connector."""
        site.connect().act(undo["connector"], "resume")
        _await_state(site, undo["connector"], "RUNNING")


def _await_state(site: FaultSite, connector: str, wanted: str) -> None:
    def other() -> str | None:
        status = site.connect().status(connector)
        state = status["connector"]["state"] if status else "missing"
        return None if state == wanted else f"it is {state}"

    wait_for(other, CONNECTOR_S, f"{connector} to be {wanted}")
