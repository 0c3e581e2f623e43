"""The states of a mirror's connectors: those that its manifest and its stage want, and those that they are in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loosehanger.kafka.connect import ConnectorPart, parts

ConnectorStates = Mapping[str, str]
"""The state that each connector must be in: RUNNING, PAUSED or STOPPED."""


def wanted_connectors(spec: Mapping[str, Any]) -> dict[str, str]:
    """The connectors that a KafkaMirrorMaker2 has, and the state that its manifest wants of each.

    Both dialects are read: Strimzi's v1, and v1beta2 with its list of clusters.
    """
    states = {"running": "RUNNING", "paused": "PAUSED", "stopped": "STOPPED"}
    wanted = {}
    for mirror in spec.get("mirrors") or ():
        source = mirror["source"]["alias"] if "source" in mirror else mirror["sourceCluster"]
        target = spec["target"]["alias"] if "target" in spec else mirror["targetCluster"]
        for field, connector in (
            ("sourceConnector", "MirrorSourceConnector"),
            ("checkpointConnector", "MirrorCheckpointConnector"),
            ("heartbeatConnector", "MirrorHeartbeatConnector"),
        ):
            if mirror.get(field) is not None:
                wanted[f"{source}->{target}.{connector}"] = states[mirror[field].get("state", "running")]
    return wanted


@dataclass(frozen=True)
class Judgement:
    """The states of a mirror's connectors compared with its manifest, for the status and the consoles alike."""

    state: str
    """In a word: Running, Paused, Stopped, Failed, Restarting, or Degraded."""
    wrong: tuple[tuple[ConnectorPart, str], ...] = ()
    """The connectors and tasks in a wrong state, each with the state that is wanted."""
    absent: tuple[str, ...] = ()
    """The connectors that are not there."""
    idle: tuple[str, ...] = ()
    """The connectors that run, and have no task."""

    @property
    def healthy(self) -> bool:
        """Whether everything is as the manifest wants it."""
        return not (self.wrong or self.absent or self.idle)


def judge(wanted: ConnectorStates, present: Mapping[str, Mapping[str, Any]]) -> Judgement:
    """Judges a mirror whose workers answer.

    Args:
        wanted: the state of each connector.
        present: what Connect says of each, with ``connector`` and ``tasks``.
    """
    there = {name: state for name, state in wanted.items() if name in present}
    absent = tuple(name for name in wanted if name not in present)
    wrong = tuple((p, state) for name, state in there.items() for p in parts(name, present[name]) if p.state != state)
    idle = tuple(
        name
        for name, state in there.items()
        if state == present[name]["connector"]["state"] == "RUNNING" and not present[name].get("tasks")
    )
    states = {part.state for part, _ in wrong}
    if "FAILED" in states:
        return Judgement("Failed", wrong, absent, idle)
    if wrong and not absent and not idle and len(states) == 1:
        (one,) = states
        shown = {"PAUSED": "Paused", "STOPPED": "Stopped", "RESTARTING": "Restarting"}
        return Judgement(shown.get(one, "Degraded"), wrong)
    if wrong or absent or idle:
        return Judgement("Degraded", wrong, absent, idle)
    as_wanted = held(wanted)
    return Judgement(as_wanted[0] if as_wanted else "Running")


def connector_problems(wanted: ConnectorStates, present: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """The parts that are not in the state that is wanted.

    Args:
        wanted: the state of each connector.
        present: what Connect says of each, with ``connector`` and ``tasks``.

    Yields:
        The state that is wrong, empty for a connector that is not there, and a sentence about it.
    """
    for name, state in wanted.items():
        if name not in present:
            yield "", f"{name} is not there"
            continue
        for part in parts(name, present[name]):
            if part.state != state:
                instead = "" if state == "RUNNING" else f" and should be {state}"
                because = f": {part.cause}" if part.cause else ""
                yield part.state, f"{part.label} is {part.state}{instead}{because}"


def held(wanted: ConnectorStates) -> tuple[str, str] | None:
    """The display of a mirror that matches its manifest and must run no connector; None for any other.

    Returns:
        In a word, and in a sentence.
    """
    if not wanted or "RUNNING" in wanted.values():
        return None
    state = "Paused" if set(wanted.values()) == {"PAUSED"} else "Stopped"
    return state, f"as it should be: {', '.join(f'{name} is {state}' for name, state in wanted.items())}"
