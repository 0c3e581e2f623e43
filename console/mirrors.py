"""A region's mirrors: what Connect's REST interface says of them, and what to do; pause, resume, restart."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from console.cluster import UnreachableError
from console.models import Connector, Health, Mirror, Position, Task
from console.settings import ConnectAccess
from lab.access import Mirror as Described
from lab.errors import WrongUseError

if TYPE_CHECKING:
    import requests

Ends = Callable[[str], Mapping[tuple[str, int], int]]
Action = Literal["pause", "resume", "restart"]
FRESH_S, STALE_S = 2.5, 10.0
"""When to look again, and how long the last look will do while the next one is under way: Connect takes its time, for
it reads its topic of offsets anew for every question."""
TIMEOUT_S = 5.0
RATE_WINDOW_S = 10.0
MOST_TRACE = 20_000
SOURCE_CONNECTOR = "MirrorSourceConnector"
IDENTITY = "IdentityReplicationPolicy"


class MirrorMaker:
    """One KafkaMirrorMaker2 of a region.

    Args:
        region: the region that it runs in and writes to.
        access: the way to its workers.
        ends: the end offsets of a source, by its alias; empty for a source that this console does not see.
    """

    def __init__(self, region: str, access: ConnectAccess, ends: Ends = lambda _: {}) -> None:
        self.region = region
        self.name = access.mirror
        self._access = access
        self._ends = ends
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"connect-{access.mirror}")
        self._session: requests.Session | None = None
        self._looked = 0.0
        self._known: Mirror | None = None
        self._look: asyncio.Task[Mirror] | None = None
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    async def state(self) -> Mirror:
        """Connectors, tasks and positions, as of some seconds ago; that nobody answers is a state as well."""
        now = time.monotonic()
        if self._look is None or (self._look.done() and now - self._looked > FRESH_S):
            self._look = asyncio.create_task(self._read())
        if self._known is not None and now - self._looked < STALE_S:
            return self._known
        return await asyncio.shield(self._look)

    async def act(self, connector: str, action: Action) -> None:
        """Pauses, resumes or restarts a connector, its tasks too.

        Raises:
            WrongUseError: there is no such connector.
            UnreachableError: no worker answers, or Connect refuses.
        """
        await asyncio.get_running_loop().run_in_executor(self._thread, self._act, connector, action)
        self._known = self._look = None

    def close(self) -> None:
        """Ends the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _read(self) -> Mirror:
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, self._state)
        except UnreachableError as error:
            self._seen.clear()
            found = Mirror(
                region=self.region,
                name=self.name,
                answers=False,
                connectors=[],
                latency_ms_p50=None,
                latency_ms_p99=None,
                health="bad",
                explanation=f"{error}; its worker is down or still starting, and is started again by itself. "
                "If it stays like this, ./status.sh tells why, and whether spec.replicas is 0",
            )
        self._known, self._looked = found, time.monotonic()
        return found

    def _state(self) -> Mirror:
        found: dict[str, Any] = self._call("GET", "/connectors?expand=status&expand=info").json()
        connectors = [
            self._connector(name, entry["info"]["config"], entry["status"])
            for name, entry in sorted(found.items())
            if "info" in entry and "status" in entry
        ]
        health, explanation = explain(self.region, self.name, connectors)
        return Mirror(
            region=self.region,
            name=self.name,
            answers=True,
            connectors=connectors,
            latency_ms_p50=None,
            latency_ms_p99=None,
            health=health,
            explanation=explanation,
        )

    def _connector(self, name: str, config: dict[str, str], status: dict[str, Any]) -> Connector:
        kind = config.get("connector.class", "").rpartition(".")[2]
        source = config.get("source.cluster.alias", "")
        # The end first: what is written in between is not counted as lag.
        ends = self._ends(source)
        positions = self._positions(name, source) if kind == SOURCE_CONNECTOR else []
        lags = [ends[p.topic, p.partition] - 1 - p.offset for p in positions if (p.topic, p.partition) in ends]
        return Connector(
            name=name,
            kind=kind,
            state=status["connector"]["state"],
            worker=status["connector"].get("worker_id", ""),
            trace=(status["connector"].get("trace") or "")[:MOST_TRACE],
            tasks=[
                Task(
                    number=task["id"],
                    state=task["state"],
                    worker=task.get("worker_id", ""),
                    trace=(task.get("trace") or "")[:MOST_TRACE],
                )
                for task in status["tasks"]
            ],
            source=source,
            target=config.get("target.cluster.alias", ""),
            topics=config.get("topics", ".*"),
            policy="identity" if config.get("replication.policy.class", "").endswith(IDENTITY) else "default",
            positions=positions,
            records_per_s=self._rate(name, positions),
            lag=sum(max(0, lag) for lag in lags) if lags else None,
        )

    def _positions(self, connector: str, alias: str) -> list[Position]:
        answer = self._call("GET", f"/connectors/{quote(connector, safe='')}/offsets", missing_ok=True)
        entries = answer.json()["offsets"] if answer.ok else []
        return sorted(
            (
                Position(
                    topic=entry["partition"]["topic"],
                    partition=entry["partition"]["partition"],
                    offset=entry["offset"]["offset"],
                )
                for entry in entries
                if entry["partition"].get("cluster") == alias and entry.get("offset")
            ),
            key=lambda position: (position.topic, position.partition),
        )

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
        known = self._call("GET", "/connectors").json()
        if connector not in known:
            raise WrongUseError(
                f"{self.region}: {self.name} has no connector '{connector}'; it has: {', '.join(known)}"
            )
        path = f"/connectors/{quote(connector, safe='')}"
        if action == "restart":
            self._call("POST", f"{path}/restart?includeTasks=true")
        else:
            self._call("PUT", f"{path}/{action}")

    def _call(self, method: str, path: str, *, missing_ok: bool = False) -> requests.Response:
        """Asks the workers one after the other until one answers."""
        import requests

        if self._session is None:
            self._session = requests.Session()
            # The environment's proxies and .netrc have no business between the lab's own processes.
            self._session.trust_env = False
            if self._access.username:
                self._session.auth = (self._access.username, self._access.password)
        last: Exception | None = None
        for url in self._access.urls:
            try:
                answer = self._session.request(
                    method,
                    f"{url}{path}",
                    timeout=TIMEOUT_S,
                    verify=str(self._access.ca_file) if self._access.ca_file else True,
                )
            except (requests.RequestException, OSError) as error:
                last = error
                continue
            if answer.ok or (missing_ok and answer.status_code == requests.codes.not_found):
                return answer
            reason = (
                "is sharing out its work; try again in a moment" if answer.status_code == 409 else answer.text[:200]
            )
            raise UnreachableError(f"{self.region}: {self.name}: Connect answers {answer.status_code}: {reason}")
        raise UnreachableError(
            f"{self.region}: {self.name}: no Connect worker answers at {', '.join(self._access.urls)} "
            f"({type(last).__name__})"
        )


def explain(region: str, mirror: str, connectors: list[Connector]) -> tuple[Health, str]:
    """What is wrong with a mirror, and what to do."""
    bad, still, starting = [], [], []
    for connector in connectors:
        parts = [(connector.name, connector.state, connector.trace)]
        parts += [(f"task {task.number} of {connector.name}", task.state, task.trace) for task in connector.tasks]
        for name, state, trace in parts:
            if state == "FAILED":
                reason = trace.strip().splitlines()[0] if trace.strip() else "it left no reason"
                bad.append(f"{name} has failed: {reason}")
            elif state in ("PAUSED", "STOPPED"):
                still.append(f"{name} is {state.lower()}")
            elif state != "RUNNING":
                starting.append(f"{name} is {state.lower()}")
        if connector.state == "RUNNING" and not connector.tasks:
            starting.append(f"{connector.name} has no task yet")
    if not connectors:
        return "bad", f"{region}'s mirror {mirror} has no connector; run the set-up again"
    if bad:
        return "bad", f"{'; '.join(bad)}. Its trace is below; once the cause is gone, restart it here"
    if still:
        return "warning", (
            f"{region}'s mirror is stopped: {still[0]}. Start it with Resume. "
            "If its manifest has `state:`, take that out, or the next set-up stops it again"
        )
    if starting:
        return "warning", f"{'; '.join(starting)}: this takes a few seconds after a start"
    return "good", ""


def described(region: str, mirror: str, connector: Connector) -> Described:
    """A source connector as the kit's own rules about mirrored topics take it."""
    return Described(
        name=mirror,
        source_alias=connector.source,
        target_alias=connector.target,
        source=connector.source,
        target=region,
        policy=connector.policy,
        separator=".",
        topics=connector.topics,
        topics_exclude="",
        connector=connector.name,
        connect={},
    )
