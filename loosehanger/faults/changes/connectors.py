"""Changes to a mirror's connectors, by Connect's REST interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from loosehanger.errors import WrongUseError
from loosehanger.faults.changes.change import Change, Undo
from loosehanger.faults.site import FaultSite
from loosehanger.kafka.connect import parts
from loosehanger.lab.mirrors.replication import selected_topics
from loosehanger.waiting import wait_for

CONNECTOR_S = 60
"""Seconds until a connector and its tasks have the state that they were asked for."""
Kind = Literal["source", "checkpoint"]


class PauseConnector(Change):
    """Pauses or stops a connector of the mirror, as an operator does by hand and forgets."""

    connector: Kind = "source"
    state: Literal["paused", "stopped"] = "paused"

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the connector's name; refuses a mirror that has none, or whose connector does not run."""
        return {"connector": _running(site, self.connector)}

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Asks Connect, and waits until the connector has that state."""
        site.connect().act(undo["connector"], "pause" if self.state == "paused" else "stop")
        _await_state(site, undo["connector"], self.state.upper())

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Resumes the connector."""
        site.connect().act(undo["connector"], "resume")
        _await_running(site, undo["connector"])


class DeleteConnector(Change):
    """Deletes a connector of the mirror; its offsets stay in Connect's topic."""

    connector: Kind = "source"

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the connector's configuration."""
        name = _running(site, self.connector)
        return {"connector": name, "configuration": _configuration(site, name)}

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Deletes the connector, and waits until it is gone."""
        if site.connect().status(undo["connector"]) is not None:
            site.connect().delete(undo["connector"])
        wait_for(
            lambda: None if site.connect().status(undo["connector"]) is None else "it is there",
            CONNECTOR_S,
            f"deleting {undo['connector']}",
        )

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Creates the connector again, with its old configuration."""
        _configure(site, undo["connector"], undo["configuration"])


class ConfigureConnector(Change):
    """Changes settings of a connector by hand, as Connect's REST interface allows beside any manifest."""

    connector: Kind = "source"
    settings: Mapping[str, str]
    then: Literal["RUNNING", "FAILED"] = "RUNNING"
    """What becomes of its tasks."""

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the connector's configuration; refuses settings that Connect does."""
        name = _running(site, self.connector)
        before = _configuration(site, name)
        if objections := site.connect().objections({**before, **self.settings}):
            raise WrongUseError(f"{name}: {'; '.join(objections)}")
        return {"connector": name, "configuration": before}

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Changes the settings, and waits until the connector has restarted with them."""
        site.connect().configure(undo["connector"], {**undo["configuration"], **self.settings})
        if self.then == "FAILED":
            _await_failure(site, undo["connector"])
        else:
            _await_running(site, undo["connector"])

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Restores the configuration, and restarts what failed."""
        _configure(site, undo["connector"], undo["configuration"])


class MistypePattern(Change):
    """Changes one character of the source connector's topic pattern, so that it does not match the site's topic."""

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the connector's configuration, and the mistyped pattern."""
        name = _running(site, "source")
        before = _configuration(site, name)
        return {"connector": name, "configuration": before, "topics": mistyped(site, before.get("topics", ""))}

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Configures the connector with the mistyped pattern, and waits until it runs."""
        site.connect().configure(undo["connector"], {**undo["configuration"], "topics": undo["topics"]})
        _await_running(site, undo["connector"], tasks=False)

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Restores the pattern."""
        _configure(site, undo["connector"], undo["configuration"])


def mistyped(site: FaultSite, pattern: str) -> str:
    """Returns a topic pattern with one wrong character, which does not match the site's topic any more.

    Raises:
        WrongUseError: every such pattern still matches, as ``.*`` does.
    """
    for place, character in enumerate(pattern):
        if not character.isalpha() or (place and pattern[place - 1] == "\\"):
            continue
        wrong = f"{pattern[:place]}{character.swapcase()}{pattern[place + 1 :]}"
        if not selected_topics(replace(site.mirror, topics=wrong), [site.topic]):
            return wrong
    raise WrongUseError(f"{site.mirror.name} in {site.mirror.region}: '{pattern}' has no character to mistype")


def _running(site: FaultSite, kind: Kind) -> str:
    """Returns the name of a connector that runs.

    Raises:
        WrongUseError: the mirror has none, or it does not run.
    """
    name = site.mirror.connector if kind == "source" else site.mirror.checkpoint_connector
    status = site.connect().status(name) if name else None
    if status is None:
        raise WrongUseError(f"{site.mirror.name} in {site.mirror.region} has no {kind} connector")
    if status["connector"]["state"] != "RUNNING":
        raise WrongUseError(f"{name} is {status['connector']['state'].lower()} already")
    return name


def _configuration(site: FaultSite, connector: str) -> dict[str, str]:
    found: dict[str, str] = site.connect().connectors()[connector]["info"]["config"]
    return found


def _configure(site: FaultSite, connector: str, configuration: Mapping[str, Any]) -> None:
    """Configures a connector, restarts what failed, and waits until it runs."""
    site.connect().configure(connector, configuration)
    _await_running(site, connector)


def _await_state(site: FaultSite, connector: str, wanted: str) -> None:
    def other() -> str | None:
        status = site.connect().status(connector)
        state = status["connector"]["state"] if status else "missing"
        return None if state == wanted else f"it is {state}"

    wait_for(other, CONNECTOR_S, f"{connector} to be {wanted}")


def _await_running(site: FaultSite, connector: str, *, tasks: bool = True) -> None:
    """Waits until a connector runs, with at least one task where it must have one."""
    restarted = False

    def other() -> str | None:
        nonlocal restarted
        status = site.connect().status(connector)
        found = list(parts(connector, status)) if status else []
        if any(part.state == "FAILED" for part in found) and not restarted:
            # It failed with its earlier settings.
            restarted = True
            site.connect().restart_failed(connector)
        wrong = [f"{part.label} is {part.state}" for part in found if part.state != "RUNNING"]
        if not found or (tasks and len(found) == 1):
            wrong.append("it has no task" if found else "it is missing")
        return "; ".join(wrong) or None

    wait_for(other, CONNECTOR_S, f"{connector} to be running")


def _await_failure(site: FaultSite, connector: str) -> None:
    def other() -> str | None:
        status = site.connect().status(connector)
        found = list(parts(connector, status)) if status else []
        if any(part.state == "FAILED" for part in found):
            return None
        return "; ".join(f"{part.label} is {part.state}" for part in found) or "it is missing"

    wait_for(other, CONNECTOR_S, f"a task of {connector} to fail")
