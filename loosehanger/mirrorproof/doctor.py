"""``mirrorproof doctor SOURCE TARGET``: checks within seconds whether a proof between two clusters can run."""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import sys
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from loosehanger.arguments import Parser
from loosehanger.errors import ExitCode, LabError, WrongUseError
from loosehanger.mirrorproof.prove import ALL_TOPICS, add_clusters
from loosehanger.mirrorproof.rights import NEEDED, Operations, lacking, operations_of

if TYPE_CHECKING:
    from loosehanger.kafka.cluster import Cluster

_BOUND_S = 5.0
"""Seconds that the checks of both clusters may take; they run at the same time."""
_CONNECT_S = 2.0
_ANSWER_S = 3.0
_NAMED = 3
"""Most names in a message."""
_NOT_SIGNED_IN = ("refuses user", "refuses the token", "cannot be signed in to", "does not offer the mechanism")
_PLAIN_NAME = re.compile(r"[\w-]+")


@dataclass(frozen=True)
class ClusterCheck:
    """One thing that a proof needs of a cluster."""

    cluster: str
    what: str
    found: str
    remedy: str = ""
    """What to do; empty where there is no problem."""

    @property
    def line(self) -> str:
        """The check in a line."""
        verdict = "PROBLEM" if self.remedy else "ok"
        return f"{verdict:<9}{self.cluster:<8}{self.what:<12}{self.found}" + (f"; {self.remedy}" if self.remedy else "")


@dataclass
class ClusterState:
    """What one cluster answered."""

    name: str
    checks: list[ClusterCheck] = field(default_factory=list)
    id: str = ""
    topics: Operations = field(default_factory=dict)
    is_complete: bool = False
    """Whether everything was asked."""


def add_options(parser: Parser) -> None:
    """Adds the clusters and the topics."""
    add_clusters(parser)
    parser.add_argument(
        "--topics", metavar="REGEX", help="which topics, by their names at the source (comma-separated)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document in place of lines")


def run(options: argparse.Namespace) -> int:
    """Prints each check; returns ``FAILED`` if one of them is a problem.

    Raises:
        WrongUseError: a properties file or a pattern cannot be used.
    """
    checks = examine(options.source, options.target, options.topics or ALL_TOPICS)
    failed = any(check.remedy for check in checks)
    if options.json:
        listed = [asdict(check) | {"ok": not check.remedy} for check in checks]
        print(json.dumps({"ok": not failed, "checks": listed}, indent=2, ensure_ascii=False))
    else:
        for check in checks:
            print(check.line)
    return ExitCode.FAILED if failed else ExitCode.DONE


def examine(source: Path, target: Path, topics: str, environment: Mapping[str, str] = os.environ) -> list[ClusterCheck]:
    """Checks both clusters at the same time, within the bound.

    Args:
        source: client properties of the source.
        target: client properties of the target.
        topics: patterns of topics at the source, comma-separated.
        environment: the variables that placeholders in the files may name.

    Raises:
        WrongUseError: a properties file or a pattern cannot be used.
    """
    from loosehanger.kafka.clients import Bounds  # slow to import
    from loosehanger.kafka.cluster import Cluster
    from loosehanger.kafka.connection import Connection
    from loosehanger.kafka.patches import repair

    repair()
    wanted = [_compiled(text.strip()) for text in topics.split(",")]
    states: list[ClusterState] = []
    threads = []
    for name, path in (("source", source), ("target", target)):
        connection = Connection.from_properties(path, environment, lambda line: print(line, file=sys.stderr))
        state = ClusterState(name)
        cluster = Cluster(name, connection, Bounds(_CONNECT_S, _ANSWER_S))
        states.append(state)
        # A daemon: a client that hangs must not keep the command.
        threads.append(Thread(target=_ask, args=(cluster, state), daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_BOUND_S)
    for state in states:
        if not state.is_complete and not any(check.remedy for check in state.checks):
            remedy = "check bootstrap.servers, and the network in between"
            state.checks.append(ClusterCheck(state.name, "reachable", f"no answer within {_BOUND_S:.0f} s", remedy))
    return [*states[0].checks, *states[1].checks, *_together(states[0], states[1], wanted)]


def _compiled(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise WrongUseError(f"--topics: '{text}' is not a regular expression: {error}") from error


def _ask(cluster: Cluster, state: ClusterState) -> None:
    user = cluster.connection.username or "anonymous"
    servers = ",".join(cluster.connection.bootstrap_servers)
    try:
        described: dict[str, Any] = cluster.ask(lambda admin: admin.describe_cluster())
        state.id = str(described["cluster_id"] or "")
        state.checks.append(
            ClusterCheck(state.name, "reachable", f"{servers} answers, cluster {state.id or 'unnamed'}")
        )
        state.checks.append(ClusterCheck(state.name, "signed in", f"as {user}"))
        state.checks.append(_advertised(state.name, described["brokers"]))
        state.topics = operations_of(topic for topic in cluster.described() if not topic["is_internal"])
        state.is_complete = True
        cluster.close()
    except LabError as error:
        text = str(error).removeprefix(f"{state.name}: ")
        found, _, remedy = text.partition("; ")
        refused = any(words in text for words in _NOT_SIGNED_IN)
        named = "advertises the address" in text
        what = "signed in" if refused else "addresses" if named else "reachable"
        if "refuses user" in text:
            remedy = "check the user, the password and the mechanism"
        elif named:
            remedy = "use a listener whose address is valid here"
        state.checks.append(ClusterCheck(state.name, what, found, remedy or "check bootstrap.servers"))


def _advertised(name: str, brokers: Collection[Mapping[str, Any]]) -> ClusterCheck:
    """Checks that this machine reaches every broker at the address that it advertises."""
    places = {(str(broker["host"]), int(broker["port"])) for broker in brokers}
    with ThreadPoolExecutor(max(1, len(places))) as threads:
        problems = sorted(filter(None, threads.map(_unreached, places)))
    if not problems:
        return ClusterCheck(name, "addresses", f"{len(places)} brokers are reachable at their advertised addresses")
    remedy = "use a listener whose advertised.listeners are valid here"
    return ClusterCheck(name, "addresses", _some(problems), remedy)


def _unreached(place: tuple[str, int]) -> str:
    try:
        socket.create_connection(place, _CONNECT_S).close()
    except socket.gaierror:
        return f"the advertised name {place[0]} does not resolve"
    except OSError as error:
        return f"the advertised address {place[0]}:{place[1]} is not reachable ({error.strerror or error})"
    return ""


def _together(
    source: ClusterState, target: ClusterState, wanted: Collection[re.Pattern[str]]
) -> Iterator[ClusterCheck]:
    """What concerns both clusters: that they are two, and the rights on the topics."""
    if source.id and source.id == target.id:
        remedy = "give the client properties of two clusters"
        yield ClusterCheck("both", "clusters", f"source and target are the same cluster (id {source.id})", remedy)
    elif source.id and target.id:
        yield ClusterCheck("both", "clusters", "source and target are two clusters")
    if not source.is_complete:
        return
    chosen = [topic for topic in source.topics if any(pattern.fullmatch(topic) for pattern in wanted)]
    for pattern in wanted:
        if _PLAIN_NAME.fullmatch(pattern.pattern) and pattern.pattern not in source.topics:
            found = f"there is no topic {pattern.pattern}, or the user lacks Describe on it"
            yield ClusterCheck("source", "topics", found, "correct --topics, or grant Describe")
    if not chosen:
        found = "no topic matches, or the user lacks Describe"
        yield ClusterCheck("source", "topics", found, "correct --topics, or grant Describe")
        return
    yield from _rights(source, chosen)
    if target.is_complete:
        copies = [name for name in target.topics if any(name == one or name.endswith(f".{one}") for one in chosen)]
        if not copies:
            found = "no topic has the name of a source's topic, or the user lacks Describe"
            yield ClusterCheck("target", "topics", found, "check that the mirror runs, or grant Describe")
            return
        yield from _rights(target, copies)


def _rights(state: ClusterState, topics: Collection[str]) -> Iterator[ClusterCheck]:
    yield ClusterCheck(state.name, "topics", f"{len(topics)} topics")
    for right in NEEDED.values():
        if without := sorted(topic for topic in topics if right in lacking(state.topics[topic])):
            yield ClusterCheck(state.name, "rights", f"{right} is missing on {_some(without)}", f"grant {right}")


def _some(names: Collection[str]) -> str:
    shown = ", ".join(list(names)[:_NAMED])
    return shown + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
