"""A console for tests without a lab: the whole application behind a real server, in front of made-up clusters.

A real cluster cannot be had in a unit test, and no real one holds the hostile content that these do; tests/lab has the
same pages before real ones.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import requests
from kafka import TopicPartition
from kafka.structs import OffsetAndTimestamp

from loosehanger.console.__main__ import listen
from loosehanger.console.app import create_app
from loosehanger.console.cluster import ClusterView
from loosehanger.console.geography import Coordinates
from loosehanger.console.live import LINGER_S, Live
from loosehanger.console.mirrors import Action, MirrorMakerView, explain, judged
from loosehanger.console.models import (
    Broker,
    Connector,
    Group,
    GroupPartition,
    Member,
    Mirror,
    Partition,
    Position,
    Setting,
    Task,
    Topic,
)
from loosehanger.console.region_views import RegionView
from loosehanger.console.retention_risk import Losses, MirrorReading
from loosehanger.console.search import Searcher
from loosehanger.console.server import Server
from loosehanger.console.service import Service
from loosehanger.console.settings import ConnectAccess, RegionSettings, Settings
from loosehanger.errors import UnreachableError, WrongUseError
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.retention_risk import TopicRisk
from loosehanger.lab.mirrors.mirror import Mirror as Route
from tests.made_up_admin import MadeUpAdmin

T = TypeVar("T")
HOSTILE = '</pre><script>document.title="taken"</script><img src=x onerror=alert(1)>\x1b[31m\u202e"\'&'
PASSWORD = "a password of the tests"
NOWHERE = Connection(("127.0.0.1:1",))


class Clock:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def route(name: str, runs: str, source: str, target: str, policy: str = "default") -> Route:
    """A mirror of the shop's topics, its aliases without hyphens."""
    aliases = source.replace("-", ""), target.replace("-", "")
    return Route(
        name, *aliases, source, target, policy, ".", r"LH\..*", "", "->".join(aliases) + ".MirrorSourceConnector",
        region=runs,
    )  # fmt: skip


PLACES = {
    "europe": Coordinates(50.1, 8.7),
    "north-america": Coordinates(39.0, -77.5),
    "south-america": Coordinates(-23.5, -46.6),
}


def settings(*regions: str, **changes: Any) -> Settings:
    """The settings of a console for these regions, and of a broadcast from Europe."""
    given = regions or ("europe",)
    return replace(
        Settings(
            name="control-room" if len(given) > 1 else given[0],
            username="operator",
            password=PASSWORD,
            regions=tuple(
                RegionSettings(
                    name,
                    NOWHERE,
                    () if name == "europe" else (ConnectAccess("mm2", ("https://127.0.0.1:1",)),),
                    PLACES.get(name),
                )
                for name in given
            ),
            routes=tuple(
                route("mm2", name, "europe", name, "identity")
                for name in ("north-america", "south-america", *given)
                if name != "europe"
            ),
            control_room=len(given) > 1,
            scenario="03-broadcast",
        ),
        **changes,
    )


class MadeUpCluster(ClusterView):
    """A cluster with one topic, or with some, whose configuration can be changed."""

    def __init__(self, region: str) -> None:
        super().__init__(region, NOWHERE)
        self.down = False
        self.admin = MadeUpAdmin({"LH.ORDERS": [(0, 9)]})
        self.names: tuple[str, ...] = ("LH.ORDERS",)
        self.config: dict[str, str] = {"retention.ms": "1000", "segment.bytes": HOSTILE}

    async def topics(self) -> list[Topic]:
        """Its topics."""
        self._check()
        partition = Partition(number=0, leader=0, replicas=[0], in_sync=[0], first_offset=0, end_offset=9, bytes=999)
        return [
            Topic(
                region=self.region, name=name, partitions=[partition], bytes=999, records_per_s=None,
                bytes_per_s=None, mirror=None, settings=self._own(), health="good",
            )
            for name in self.names
        ]  # fmt: skip

    async def settings(self, topic: str) -> list[Setting]:
        """Its settings; none for any other topic."""
        self._check()
        return (
            []
            if topic not in self.names
            else [*self._own(), Setting(name="cleanup.policy", value="delete", source="default")]
        )

    async def groups(self) -> list[Group]:
        """One group, with a name that was chosen to do harm."""
        self._check()
        rows = [GroupPartition(topic="LH.ORDERS", partition=0, committed=4, end_offset=9, lag=5)]
        member = Member(identity="1", client=HOSTILE, host="127.0.0.1", partitions=1)
        return [
            Group(
                region=self.region,
                name=HOSTILE,
                kind="consumer",
                state="Stable",
                members=[member],
                partitions=rows,
                lag=5,
            )
        ]

    async def brokers(self) -> list[Broker]:
        """One node."""
        self._check()
        return [
            Broker(
                region=self.region, node=0, host="127.0.0.1", port=1, rack=None, controller=True, leads=1, replicas=1,
                behind=0, bytes=999, health="good",
            )
        ]  # fmt: skip

    async def change(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Changes it, if there is such a topic."""
        self._check()
        if topic != "LH.ORDERS":
            raise WrongUseError(f"{self.region} has no topic '{topic}'")
        for name, value in changes.items():
            self.config[name] = value if value is not None else ""

    def warm(self) -> None:
        """Nothing is there to connect to."""

    async def ask(self, work: Callable[[Any], T]) -> T:
        """Asks the made-up client."""
        self._check()
        return await self._run(lambda: work(self.admin))

    def _own(self) -> list[Setting]:
        return [Setting(name=name, value=value, source="topic") for name, value in self.config.items()]

    def _check(self) -> None:
        if self.down:
            raise UnreachableError(f"{self.region}: Kafka does not answer; ./lab status names the process that is down")


class MadeUpMirror(MirrorMakerView):
    """A mirror whose connector does as it is asked."""

    connector_state = "RUNNING"
    wanted = ""
    trace = ""
    open_to_pods = False

    async def state(self) -> Mirror:
        """One connector with one task."""
        task = Task(number=0, state=self.connector_state, worker="127.0.0.1:1", trace=self.trace)
        connector = Connector(
            name="europe->here.MirrorSourceConnector", kind="MirrorSourceConnector", state=self.connector_state,
            wanted=self.wanted, worker="127.0.0.1:1", tasks=[task], source="europe", target="here", topics=r"LH\..*",
            policy="identity",
            reads="europe", writes=self.region,
            positions=[Position(topic="LH.ORDERS", partition=0, offset=3)], records_per_s=1.5,
        )  # fmt: skip
        health, explanation = explain(self.region, self.name, [connector])
        return Mirror(
            region=self.region, name=self.name, answers=True, state=judged([connector]).state,
            connectors=[connector], latency_ms_p50=None, latency_ms_p99=None, health=health, explanation=explanation,
            open_to_pods=self.open_to_pods,
        )  # fmt: skip

    def reading(self, _connector: Connector, *, answers: bool) -> MirrorReading:  # noqa: ARG002 - as the real one has it
        """What the made-up losses need."""
        return MirrorReading({})

    async def act(self, connector: str, action: Action) -> None:
        """Does it at once."""
        if connector != "europe->here.MirrorSourceConnector":
            raise WrongUseError(f"{self.name} has no connector '{connector}'")
        self.connector_state = "PAUSED" if action == "pause" else "RUNNING"

    async def ask(self, question: Callable[[Any], T]) -> T:
        """Asks a Connect that has this connector, with a setting of its own and one of its plugin's."""
        kind = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
        config = {"connector.class": kind, "topics": HOSTILE, "source.cluster.sasl.jaas.config": "a secret"}
        plugin = {"name": "topics", "type": "LIST", "default_value": ".*", "documentation": HOSTILE}
        return question(
            SimpleNamespace(
                connectors=lambda: {"europe->here.MirrorSourceConnector": {"info": {"config": config}}},
                described_settings=lambda _: [plugin],
            )
        )


@dataclass
class Record:
    """A record as kafka-python has it."""

    value: bytes | None = b"{}"
    key: bytes | None = b"key"
    topic: str = "LH.ORDERS"
    partition: int = 0
    offset: int = 0
    timestamp: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)

    @property
    def serialized_key_size(self) -> int:
        """Bytes of the key."""
        return -1 if self.key is None else len(self.key)

    @property
    def serialized_value_size(self) -> int:
        """Bytes of the value."""
        return -1 if self.value is None else len(self.value)

    @property
    def serialized_header_size(self) -> int:
        """Bytes of the headers, names included."""
        return sum(len(name.encode()) + len(value or b"") for name, value in self.headers) or -1


class FedLive(Live):
    """A reader that reads what the test feeds it."""

    def keep_going(self, seconds: float = LINGER_S) -> None:  # noqa: ARG002 - as the real one has it
        """Starts no thread."""
        with self._lock:
            if self._rates.since is None:
                self._rates.since = time.monotonic()

    def feed(self, *records: Record) -> None:
        """Lets records arrive."""

        class Consumer:
            def highwater(self, _: object) -> int:
                return 0

        by_partition: dict[Any, list[Any]] = {}
        for record in records:
            by_partition.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        self._take(Consumer(), by_partition, {})


class MadeUpLosses(Losses):
    """What is in danger, as a test says."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.dangers: dict[str, TopicRisk] = {}

    def of(self, _mirror: str, _reading: MirrorReading) -> dict[str, TopicRisk]:
        """As it says."""
        return self.dangers


class MadeUpLog:
    """What a consumer finds in a region: the records of a test."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._at: dict[Any, int] = {}
        self._paused: set[Any] = set()

    def topics(self) -> set[str]:
        """Their topics, and one of Kafka's own."""
        return {record.topic for record in self._records} | {"__consumer_offsets"}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Of a topic; None for one that is not there."""
        return {record.partition for record in self._records if record.topic == topic} or None

    def beginning_offsets(self, places: Sequence[Any]) -> dict[Any, int]:
        """The first of each."""
        return {place: min(record.offset for record in self._of(place)) for place in places}

    def end_offsets(self, places: Sequence[Any]) -> dict[Any, int]:
        """That behind the last of each."""
        return {place: max(record.offset for record in self._of(place)) + 1 for place in places}

    def offsets_for_times(self, times: Mapping[Any, int]) -> dict[Any, Any]:
        """The first of each that is not older."""
        found = {}
        for place, since in times.items():
            offset = min((record.offset for record in self._of(place) if record.timestamp >= since), default=None)
            found[place] = None if offset is None else OffsetAndTimestamp(offset, since, None)
        return found

    def assign(self, places: Sequence[Any]) -> None:
        """Has these read."""
        self._at = dict.fromkeys(places, 0)

    def seek(self, place: Any, offset: int) -> None:
        """Goes to an offset."""
        self._at[place] = offset

    def pause(self, place: Any) -> None:
        """Reads a partition no further."""
        self._paused.add(place)

    def resume(self, place: Any) -> None:
        """Reads it on."""
        self._paused.discard(place)

    def position(self, place: Any) -> int:
        """The next offset."""
        return self._at[place]

    def poll(self, _milliseconds: int, max_records: int) -> dict[Any, list[Record]]:
        """The next records."""
        found: dict[Any, list[Record]] = {}
        for place, at in self._at.items():
            if place not in self._paused and (batch := [one for one in self._of(place) if one.offset >= at]):
                found[place] = batch[:max_records]
                self._at[place] = found[place][-1].offset + 1
        return found

    def unsubscribe(self) -> None:
        """Has nothing assigned any more."""
        self._at, self._paused = {}, set()

    def close(self, **_: object) -> None:
        """Nothing is open."""

    def _of(self, place: Any) -> list[Record]:
        return [one for one in self._records if (one.topic, one.partition) == (place.topic, place.partition)]


class MadeUpSearcher(Searcher):
    """Searches the records that a test has put there."""

    records: Sequence[Record] = ()

    def _connect(self, skipped: Callable[[str], object], *, whole: bool) -> Any:  # noqa: ARG002 - as the real one
        return MadeUpLog(self.records)


class MadeUpRegion(RegionView):
    """A region of the above."""

    def __init__(self, given: RegionSettings) -> None:
        self.name = given.name
        self.cluster: MadeUpCluster = MadeUpCluster(given.name)
        self.live: FedLive = FedLive(given.name, NOWHERE)
        self.losses: MadeUpLosses = MadeUpLosses(NOWHERE)
        self.searcher: MadeUpSearcher = MadeUpSearcher(given.name, NOWHERE)
        self.mirrors = {access.mirror: MadeUpMirror(given.name, access) for access in given.mirrors}


class MadeUpService(Service):
    """What a console knows, made up."""

    regions: dict[str, MadeUpRegion]  # type: ignore[assignment]

    def region_of(self, settings: RegionSettings) -> RegionView:
        """A region, made up."""
        return MadeUpRegion(settings)


class Browser(requests.Session):
    """A user of a console."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.trust_env = False
        self.url = url

    def request(self, method: Any, url: Any, *args: Any, **kwargs: Any) -> requests.Response:
        """As requests has it, with a path in place of an address."""
        kwargs = {"timeout": 10, "allow_redirects": False, **kwargs}
        return super().request(method, self.url + url if str(url).startswith("/") else url, *args, **kwargs)

    def get(self, url: Any, **kwargs: Any) -> requests.Response:
        """As requests has it, but goes nowhere else by itself."""
        return self.request("GET", url, **kwargs)

    def sign_in(self, username: str = "operator", password: str = PASSWORD, **more: str) -> requests.Response:
        """Fills the form in."""
        data = {"username": username, "password": password, **more}
        return self.post("/sign-in", data=data, timeout=120)  # where others guess, it waits for its turn

    def token(self) -> str:
        """What changes have to bring along."""
        token: str = self.get("/api/session").json()["csrf_token"]
        return token

    def view(self, name: str) -> str:
        """A view's HTML from its stream, which waits for its data as no page does."""
        answer = self.get(f"/events/views/{name}", stream=True)
        lines: list[str] = []
        for line in answer.iter_lines(decode_unicode=True):
            lines.append(line)
            if not line and any(previous.startswith("data:") for previous in lines):
                break
        answer.close()
        return "".join(json.loads(line[5:]) for line in lines if line.startswith("data:"))

    def change(self, method: str, path: str, **more: Any) -> requests.Response:
        """A change through the API, with the token."""
        return self.request(method, path, headers={"X-CSRF-Token": self.token()}, **more)


@dataclass
class Running:
    """A console that is running."""

    url: str
    service: MadeUpService
    app: Any

    def browser(self, *, signed_in: bool = True) -> Browser:
        """A new user."""
        browser = Browser(self.url)
        if signed_in:
            assert browser.sign_in().status_code == 303
        return browser


@contextmanager
def running(given: Settings, service: Service | None = None) -> Iterator[Running]:
    """A console on a port of its own, in front of made-up clusters unless it gets others."""
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    known: Any = service or MadeUpService(given)
    app = create_app(given, known)
    server = Server(app, given)
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]), daemon=True)
    thread.start()
    try:
        yield Running(f"{'https' if given.secure else 'http'}://127.0.0.1:{port}", known, app)
    finally:
        server.stop()
        thread.join(timeout=10)
        listener.close()
        assert not thread.is_alive()


def secret(folder: Path, name: str, text: str) -> str:
    """A file of a secret."""
    path = folder / name
    path.write_text(text)
    return str(path)
