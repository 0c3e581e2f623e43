"""A region's mirrors: their state by Connect's REST interface, and pause, resume and restart."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from loosehanger.console.manifests import MirrorState
from loosehanger.console.models import Connector, Health, Mirror, Position, Task
from loosehanger.console.retention_risk import MirrorReading
from loosehanger.console.settings import ConnectAccess
from loosehanger.errors import UnreachableError, WrongUseError
from loosehanger.kafka.connector_states import Judgement, judge
from loosehanger.kafka.failed_topics import name_topics
from loosehanger.kafka.stalled import drops, found_s
from loosehanger.lab.mirrors.access import user_of
from loosehanger.lab.mirrors.mirror import Mirror as Described
from loosehanger.lab.mirrors.replication import DEFAULT_EXCLUDED, IDENTITY_POLICY, SYNCHRONISATION
from loosehanger.stack_traces import innermost_cause

if TYPE_CHECKING:
    from loosehanger.kafka.connect import ConnectClient

Offsets = Callable[[str], Mapping[tuple[str, int], tuple[int, int]]]
"""The first and the end offset of each partition of a region."""
T = TypeVar("T")
Action = Literal["pause", "resume", "restart"]
FRESH_S, STALE_S = 2.5, 20.0
"""Age at which a state is read again, and age up to which it is shown meanwhile: Connect is slow, because it reads its
offsets topic to the end for every request."""
TIMEOUT_S = 15.0
"""A worker without an answer within this time is busy; one that refuses the connection is down."""
RATE_WINDOW_S = 10.0
MOST_TRACE = 20_000
REMEMBERED_S = 30.0
"""How long a failure is shown after it: Connect forgets it at the next start, after which the task may fail again."""
SOURCE_CONNECTOR = "MirrorSourceConnector"
_SENDING = "producer send callback"
"""In the trace of a task that could not send a record: only the worker's log names its topic."""


class SlowWorkerError(UnreachableError):
    """A mirror's workers did not answer in time."""


class MirrorMakerView:
    """One KafkaMirrorMaker2 of a region.

    Args:
        region: the region that it runs in.
        access: its workers' addresses and credentials.
        offsets: a region's offsets; empty for a region that this console does not see.
        named: the region of an alias.
        wanted: the state that its manifest asks for.
        home: the lab's home, with the workers' logs; None where it is on another machine.
    """

    def __init__(
        self,
        region: str,
        access: ConnectAccess,
        offsets: Offsets = lambda _: {},
        named: Callable[[str], str] = str,
        wanted: Callable[[], MirrorState] = MirrorState,
        home: Path | None = None,
    ) -> None:
        self._home = home
        self.region = region
        self.name = access.mirror
        self._access = access
        self._offsets = offsets
        self._named = named
        self._wanted = wanted
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"connect-{access.mirror}")
        self._rest: ConnectClient | None = None
        self._looked = 0.0
        self._known: Mirror | None = None
        self._look: asyncio.Task[Mirror] | None = None
        self._seen: dict[str, deque[tuple[float, int]]] = {}
        self._failures: dict[tuple[str, int | None], tuple[float, str]] = {}
        self._last: list[Connector] = []
        self._readings: dict[str, MirrorReading] = {}

    async def state(self) -> Mirror:
        """Connectors, tasks and positions, as of some seconds ago; no answer is a state as well."""
        now = time.monotonic()
        if self._look is None or (self._look.done() and now - self._looked > FRESH_S):
            self._look = asyncio.create_task(self._read())
        if self._known is not None and now - self._looked < STALE_S:
            return self._known
        return await asyncio.shield(self._look)

    @property
    def read_at(self) -> float:
        """When the state was last read, on the monotonic clock."""
        return self._looked

    def last(self) -> list[Connector]:
        """Its connectors as of the workers' last answer, with their present lag: without workers they do not move."""
        return [self._measured(one, self._offsets(one.reads)) for one in self._last]

    def reading(self, connector: Connector, *, answers: bool) -> MirrorReading | None:
        """A source connector's positions; None where the source's end offsets are not known.

        Args:
            connector: one of its own.
            answers: whether its workers answer; if not, its last positions count.
        """
        if answers:
            return self._readings.get(connector.name)
        offsets = self._offsets(connector.reads)
        return MirrorReading(_waiting(self.name, connector, offsets)) if offsets else None

    def forget(self) -> None:
        """Drops its state but not its connectors' positions, and ignores an answer that is under way."""
        self._known = self._look = None

    async def act(self, connector: str, action: Action) -> None:
        """Pauses, resumes or restarts a connector with its tasks.

        Raises:
            WrongUseError: the mirror has no such connector.
            UnreachableError: no worker answers, or Connect refuses.
        """
        await asyncio.get_running_loop().run_in_executor(self._thread, self._act, connector, action)
        self._known = self._look = None

    async def ask(self, question: Callable[[ConnectClient], T]) -> T:
        """Asks its workers something, in its thread.

        Raises:
            UnreachableError: no worker answers, or Connect refuses.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, question)

    def close(self) -> None:
        """Stops the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _read(self) -> Mirror:
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, self._state)
        except UnreachableError as error:
            self._seen.clear()
            busy, stopped = isinstance(error, SlowWorkerError), not self._wanted().replicas
            advice = (
                "it is busy, or it hangs. If this persists, run ./lab status, which shows its process and log"
                if busy
                else "its worker is down or still starting, and is restarted automatically. If this persists, "
                "run ./lab status, which shows the cause, and whether spec.replicas is 0"
            )
            found = Mirror(
                region=self.region,
                name=self.name,
                answers=False,
                connectors=[],
                latency_ms_p50=None,
                latency_ms_p99=None,
                state="Stopped" if stopped else "",
                health="good" if stopped else "warning" if busy else "bad",
                explanation="" if stopped else f"{error}; {advice}",
                open_to_pods=self._wanted().open,
            )
        if self._look is asyncio.current_task():  # else it was dropped meanwhile
            self._known, self._looked = found, time.monotonic()
        return found

    def _state(self) -> Mirror:
        found = self._ask(lambda rest: rest.connectors())
        statuses = {name: entry["status"] for name, entry in found.items()}
        if any(task.get("trace") for status in statuses.values() for task in status["tasks"]):
            statuses = name_topics(statuses, self._home, self.region, self.name)
        connectors = [self._connector(name, entry["info"]["config"], statuses[name]) for name, entry in found.items()]
        self._last = [one.model_copy(update={"records_per_s": None}) for one in connectors]
        health, explanation = explain(self.region, self.name, connectors, by_resource=self._home is None)
        traces = [task.trace for connector in connectors for task in connector.tasks]
        if self._home is None and health == "bad" and any(_SENDING in trace for trace in traces):
            # A console in a pod has no right to read the worker's log.
            explanation += ". ./lab status names the topic"
        return Mirror(
            region=self.region,
            name=self.name,
            answers=True,
            state=judged(connectors).state if connectors else "",
            connectors=connectors,
            latency_ms_p50=None,
            latency_ms_p99=None,
            health=health,
            explanation=explanation,
            open_to_pods=self._wanted().open,
        )

    def _connector(self, name: str, config: dict[str, str], status: Mapping[str, Any]) -> Connector:
        kind = config.get("connector.class", "").rpartition(".")[2]
        source = config.get("source.cluster.alias", "")
        # The end offsets first, so that records written in between do not count as lag.
        at, offsets = time.time(), self._offsets(self._named(source))
        positions = self._positions(name, source) if kind == SOURCE_CONNECTOR else []
        found = Connector(
            name=name,
            kind=kind,
            state=status["connector"]["state"],
            wanted=self._wanted().connectors.get(name, ""),
            worker=status["connector"].get("worker_id", ""),
            trace=self._trace((name, None), status["connector"], time.monotonic()),
            tasks=[
                Task(
                    number=task["id"],
                    state=task["state"],
                    worker=task.get("worker_id", ""),
                    trace=self._trace((name, task["id"]), task, time.monotonic()),
                )
                for task in status["tasks"]
            ],
            source=source,
            target=config.get("target.cluster.alias", ""),
            reads=self._named(source),
            writes=self._named(config.get("target.cluster.alias", "")),
            topics=config.get("topics", ".*"),
            topics_exclude=config.get("topics.exclude", DEFAULT_EXCLUDED),
            policy="identity" if config.get("replication.policy.class") == IDENTITY_POLICY else "default",
            separator=config.get("replication.policy.separator", "."),
            synchronisation={name: config[name] for name in SYNCHRONISATION if name in config},
            positions=positions,
            records_per_s=self._rate(name, positions),
            drops=drops(config),
            reads_as=user_of(config, "source"),
            writes_as=user_of(config, "target"),
            found_s=None if math.isinf(found := found_s(config)) else found,
        )
        if kind == SOURCE_CONNECTOR and offsets:
            ends = {place: end for place, (_, end) in offsets.items()}
            self._readings[name] = MirrorReading(_waiting(self.name, found, offsets), ends, at)
        else:
            self._readings.pop(name, None)
        return self._measured(found, offsets)

    def _measured(self, connector: Connector, offsets: Mapping[tuple[str, int], tuple[int, int]]) -> Connector:
        """The connector with its lag, where that is known: all of a partition of which it has copied nothing."""
        if connector.kind != SOURCE_CONNECTOR or not offsets:
            return connector
        lags: dict[str, int] = {}
        for (topic, partition), last in _waiting(self.name, connector, offsets).items():
            first, end = offsets[topic, partition]
            behind = end - 1 - (first - 1 if last is None else last)
            lags[topic] = lags.get(topic, 0) + max(0, behind)
        return connector.model_copy(update={"lag": sum(lags.values()), "lags": lags})

    def _trace(self, part: tuple[str, int | None], status: Mapping[str, Any], now: float) -> str:
        """The trace of a connector or task that has failed, failed recently, or hangs after a restart."""
        state, trace = status["state"], (status.get("trace") or "")[:MOST_TRACE]
        seen, known = self._failures.get(part, (0.0, ""))
        if state in ("PAUSED", "STOPPED") or (state == "RUNNING" and now - seen > REMEMBERED_S):
            self._failures.pop(part, None)
            return ""
        if trace or (known and state != "RUNNING"):
            self._failures[part] = now, trace or known
        return trace or known

    def _positions(self, connector: str, alias: str) -> list[Position]:
        found = self._ask(lambda rest: rest.positions(connector, alias))
        return [
            Position(topic=topic, partition=partition, offset=offset)
            for (topic, partition), offset in sorted(found.items())
        ]

    def _rate(self, connector: str, positions: list[Position]) -> float | None:
        if not positions:
            return None
        seen = self._seen.setdefault(connector, deque(maxlen=30))
        now, total = time.monotonic(), sum(position.offset + 1 for position in positions)
        while seen and now - seen[0][0] > RATE_WINDOW_S:
            seen.popleft()
        seen.append((now, total))
        then, before = seen[0]
        return max(0.0, (total - before) / (now - then)) if now - then >= FRESH_S else None

    def _act(self, connector: str, action: Action) -> None:
        known = self._ask(lambda rest: rest.connectors())
        if connector not in known:
            raise WrongUseError(
                f"{self.region}: {self.name} has no connector '{connector}'; it has: {', '.join(known)}"
            )
        self._ask(lambda rest: rest.act(connector, action))

    def _ask(self, question: Callable[[ConnectClient], T]) -> T:
        from loosehanger.kafka.connect import ConnectClient, ConnectError, SlowError

        if self._rest is None:
            access = self._access
            self._rest = ConnectClient(
                access.urls, access.username, access.password, access.ca_file, timeout_s=TIMEOUT_S, rebalance_s=0
            )
        try:
            return question(self._rest)
        except SlowError as error:
            raise SlowWorkerError(
                f"{self.region}: {self.name}: its worker did not answer within {TIMEOUT_S:.0f} s"
            ) from error
        except ConnectError as error:
            raise UnreachableError(f"{self.region}: {self.name}: {error}") from error


def _waiting(
    mirror: str, connector: Connector, offsets: Mapping[tuple[str, int], tuple[int, int]]
) -> dict[tuple[str, int], int | None]:
    """The existing partitions that a connector copies, each with the last offset that it has copied."""
    from loosehanger.lab.mirrors.replication import selected_topics

    copied = {(p.topic, p.partition): p.offset for p in connector.positions}
    try:
        selected = set(selected_topics(described(mirror, connector), {topic for topic, _ in offsets}))
    except WrongUseError:
        selected = set()
    return {place: copied.get(place) for place in offsets if place[0] in selected or place in copied}


def judged(connectors: Sequence[Connector]) -> Judgement:
    """The state of these connectors compared with their manifest, as ``./lab status`` shows it."""
    present = {
        one.name: {
            "connector": {"state": one.state, "trace": one.trace},
            "tasks": [{"id": task.number, "state": task.state, "trace": task.trace} for task in one.tasks],
        }
        for one in connectors
    }
    found = judge({one.name: one.wanted or "RUNNING" for one in connectors}, present)
    stalled = found.state == "Running" and any(one.stalled for one in connectors)
    return replace(found, state="Stalled") if stalled else found


def explain(region: str, mirror: str, connectors: list[Connector], *, by_resource: bool = False) -> tuple[Health, str]:
    """A mirror's health, and its problem with a remedy; ``by_resource`` where only its resource resumes a connector."""
    if not connectors:
        return "bad", f"{region}'s mirror {mirror} has no connector; run the set-up again"
    bad, still, starting, found = [], [], [], judged(connectors)
    for part, wanted in found.wrong:
        name = part.name if part.task is None else f"task {part.task} of {part.name}"
        if part.state == "FAILED":
            bad.append(f"{name} has failed: {part.cause or 'no reason given'}")
        elif part.state in ("PAUSED", "STOPPED") or wanted != "RUNNING":
            still.append((f"{name} is {part.state.lower()}", part.name))
        elif part.cause:
            bad.append(f"{name} is {part.state.lower()} after a failure: {part.cause}")
        else:
            starting.append(f"{name} is {part.state.lower()}")
    starting += [f"{name} has no task yet" for name in found.idle]
    if bad:
        return "bad", f"{'; '.join(bad)}. Its stack trace is below; remove the cause, then restart it here"
    if stalled := [f"{connector.name} is {connector.stalled}" for connector in connectors if connector.stalled]:
        return "bad", "; ".join(stalled)
    if still:
        fact, name = still[0]
        advice = _advice(next(c for c in connectors if c.name == name), by_resource=by_resource)
        return "warning", f"{region}'s mirror {mirror}: {fact}{advice}"
    if starting:
        return "warning", f"{'; '.join(starting)}: this takes a few seconds after a start"
    again = [
        f"{name} runs again, and failed a moment ago: {innermost_cause(trace)}"
        for connector in connectors
        for name, state, trace in (
            (connector.name, connector.state, connector.trace),
            *((f"task {one.number} of {connector.name}", one.state, one.trace) for one in connector.tasks),
        )
        if state == "RUNNING" and trace
    ]
    if again:
        return "warning", f"{'; '.join(again)}. Unless it fails again, this clears within {REMEMBERED_S:.0f} seconds"
    return "good", ""


def _advice(connector: Connector, *, by_resource: bool) -> str:
    """The remedy for a connector that is paused or stopped, or must be."""
    if by_resource:
        return ". Its KafkaMirrorMaker2 resource decides that, and the operator applies it within minutes"
    if not connector.wanted:
        return ". Start it with Resume. If its manifest has a state, remove it, or the next set-up stops it again"
    if connector.wanted == "RUNNING":
        return ", and must be running. Start it with Resume"
    return f", and its manifest says {connector.wanted.lower()}: the next set-up applies that"


def described(mirror: str, connector: Connector) -> Described:
    """A source connector as a mirror of the kit's model."""
    return Described(
        name=mirror,
        source_alias=connector.source,
        target_alias=connector.target,
        source=connector.reads,
        target=connector.writes,
        policy=connector.policy,
        separator=connector.separator,
        topics=connector.topics,
        topics_exclude=connector.topics_exclude,
        connector=connector.name,
        connect={},
        synchronisation=connector.synchronisation,
    )
