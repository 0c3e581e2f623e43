"""A region's Kafka cluster for its console: topics, groups, brokers, and changes of configurations.

kafka-python's clients are synchronous and each is for one thread, so every cluster has a thread of its own. Requests
share an answer while it is fresh, and for a while longer when a busy cluster takes its time for the next one. An idle
client is closed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from loosehanger.console.models import Broker, Group, GroupPartition, Member, Partition, Setting, Topic
from loosehanger.errors import UnreachableError, WrongUseError
from loosehanger.kafka.connection import Connection

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient
    from kafka.errors import KafkaError

    from loosehanger.acls import AclRule
    from loosehanger.kafka.cluster import Cluster

FRESH_S, STALE_S = 1.5, 5.0
"""Seconds until the next request, and until the last answer expires while that one is under way."""
REST, MOST_FRESH_S = 3.0, 6.0
"""A question rests for so many times as long as it took, and for so many seconds at most: a cluster with hundreds of
topics would keep a processor busy with answers that no viewer has seen yet."""
SETTINGS_REST, MOST_SETTINGS_S = 20.0, 15.0
"""The same for the settings of all topics, of which Kafka sends every one, and which change seldom."""
IDLE_S = 60.0
CONSUMERS = "consumer"
T = TypeVar("T")
_Settings = tuple[dict[str, list[Setting]], "dict[str, KafkaError]"]

_SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_BROKER_CONFIG": "broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "broker",
    "STATIC_BROKER_CONFIG": "broker",
}


_PREPARING = threading.Lock()


def prepare_clients() -> None:
    """Loads and patches kafka-python. A thread must call this before it uses the library.

    Its modules import each other: two threads that load it at the same time see incomplete modules, and fail.
    """
    with _PREPARING:
        _prepare_clients()


@lru_cache(maxsize=1)
def _prepare_clients() -> None:
    from loosehanger.kafka.patches import prepare

    # A broker that is down makes it log a lot: the log gets a rate-limited part.
    prepare(lambda line: print(line, flush=True))


class ClusterView:
    """One region's cluster.

    Args:
        region: its name, for messages.
        connection: the console's way into the cluster.
    """

    def __init__(self, region: str, connection: Connection) -> None:
        self.region = region
        self._connection = connection
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"admin-{region}")
        self._cluster: Cluster | None = None
        self._used = 0.0
        self._answers: dict[str, tuple[float, asyncio.Future[Any]]] = {}
        """The latest answer to each shared question, and when it was asked for, or arrived."""
        self._known: dict[str, tuple[float, Any]] = {}
        """The last answer, and when it arrived."""
        self._took: dict[str, float] = {}
        """How long the last answer took, in seconds."""
        self._modified: tuple[float, float, frozenset[str], _Settings] | None = None
        """The settings made on topics: when they were read, how long that took, of which topics, and what was found."""
        self._warming: Future[None] | None = None

    async def topics(self) -> list[Topic]:
        """Every topic that the console's user may see, internal ones left out, with the settings made on each.

        Raises:
            UnreachableError: no broker answers.
        """
        return await self._shared("topics", self._topics)

    async def settings(self, topic: str) -> list[Setting]:
        """Every setting of a topic; empty when there is no such topic.

        Raises:
            UnreachableError: no broker answers.
        """

        def read() -> list[Setting]:
            settings, refused = self._settings([topic], "all")
            if topic in refused:
                raise refused[topic]
            return settings.get(topic, [])

        return await self._run(read)

    async def groups(self) -> list[Group]:
        """Every consumer group, Connect's own too.

        Raises:
            UnreachableError: no broker answers.
        """
        return await self._shared("groups", self._groups)

    async def brokers(self) -> list[Broker]:
        """Every node.

        Raises:
            UnreachableError: no broker answers.
        """
        return await self._shared("brokers", self._brokers)

    async def rules(self) -> list[AclRule]:
        """Every rule of the cluster's authorizer.

        Raises:
            UnreachableError: no broker answers, or Kafka refuses.
        """
        return await self._shared("rules", lambda: self._asked().rules())

    async def change(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Changes settings of a topic; None gives a setting its default again.

        Raises:
            WrongUseError: there is no such topic, or Kafka refuses the change.
            UnreachableError: no broker answers.
        """
        await self._run(lambda: self._change(topic, changes))
        self._outdate()

    async def ask(self, work: Callable[[KafkaAdminClient], T]) -> T:
        """Runs a question in the cluster's thread, with its admin client.

        Raises:
            UnreachableError: no broker answers, or Kafka refuses the user.
        """
        return await self._run(lambda: self._asked().ask(work))

    async def operate(self, work: Callable[[KafkaAdminClient], T]) -> T:
        """Runs a change, and forgets what was known before it.

        Raises:
            UnreachableError: no broker answers, or Kafka refuses the user.
        """
        try:
            return await self.ask(work)
        finally:
            self._outdate()

    def _outdate(self) -> None:
        """Forgets what was known before a change."""
        self._answers.clear()
        self._known.clear()
        self._modified = None

    def answered_at(self, name: str) -> float:
        """When the current answer to a shared question, such as ``topics``, arrived, on the monotonic clock."""
        return self._known[name][0] if name in self._known else time.monotonic()

    def warm(self) -> None:
        """Connects ahead of the first request; once, however many ask for it, signed in or not."""
        if not self._is_open and (self._warming is None or self._warming.done()):
            self._warming = self._thread.submit(self._connect_quietly)

    def close_if_idle(self) -> None:
        """Closes a client that has been idle for ``IDLE_S``."""
        if self._is_open and time.monotonic() - self._used > IDLE_S:
            self._thread.submit(self._forget)

    def drop(self) -> None:
        """Closes the client after a closed link has cut its connections: a new client need not wait to reconnect."""
        if self._is_open:
            self._thread.submit(self._forget)

    def close(self) -> None:
        """Stops the thread and closes its client."""
        self._thread.submit(self._forget)
        self._thread.shutdown(wait=True, cancel_futures=False)

    async def _shared(self, name: str, ask: Callable[[], T]) -> T:
        """Returns the answer to the same question of a moment ago, or a new one."""
        now = time.monotonic()
        at, answer = self._answers.get(name, (0.0, None))
        fresh = min(max(FRESH_S, REST * self._took.get(name, 0.0)), MOST_FRESH_S)
        if answer is None or (answer.done() and now - at > fresh):
            answer = asyncio.ensure_future(self._run(ask))
            self._answers[name] = (now, answer)
            _when_done(answer, lambda done: self._take(name, done))
        if name in self._known and now - self._known[name][0] < STALE_S + fresh - FRESH_S:
            known: T = self._known[name][1]
            return known
        # A request that is cancelled must not cancel the others' answer.
        return await asyncio.shield(answer)

    def _take(self, name: str, answer: asyncio.Future[Any]) -> None:
        # Only the requests that wait for a failure see it.
        failed = answer.cancelled() or answer.exception() is not None
        if self._answers.get(name, (0.0, None))[1] is not answer:
            return
        now = time.monotonic()
        # A cluster that does not answer is asked again at once.
        self._took[name] = 0.0 if failed else now - self._answers[name][0]
        self._answers[name] = (now, answer)
        if failed:
            self._known.pop(name, None)
        else:
            self._known[name] = (now, answer.result())

    def _run(self, work: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, self._explained, work)

    def _explained(self, work: Callable[[], T]) -> T:
        prepare_clients()
        from kafka.errors import AuthorizationError, KafkaError, SaslAuthenticationFailedError

        from loosehanger.kafka.patches import explain, is_refusal

        self._used = time.monotonic()
        try:
            return work()
        except ValueError as error:
            # What kafka-python raises at an answer that it cannot decode.
            raise UnreachableError(f"{self.region}: Kafka's answer cannot be decoded ({error})") from error
        except (UnreachableError, KafkaError, OSError) as error:
            cause = error.__cause__ or error
            if isinstance(cause, AuthorizationError):
                raise UnreachableError(
                    f"{self.region}: Kafka refuses the console's user '{self._connection.username}' "
                    f"({type(cause).__name__}); its KafkaUser lists what it may do"
                ) from error
            self._forget()
            if is_refusal(cause):
                of_password = isinstance(cause, SaslAuthenticationFailedError)
                remedy = "; the set-up gives the console its password" if of_password else ""
                said = explain(cause, self._connection.username)
                raise UnreachableError(f"{self.region}: Kafka {said}{remedy}") from error
            servers = ",".join(self._connection.bootstrap_servers)
            raise UnreachableError(
                f"{self.region}: Kafka does not answer at {servers} ({type(cause).__name__}); "
                "./lab status shows what is down, and the platform restarts it"
            ) from error

    def _asked(self) -> Cluster:
        if self._cluster is None:
            from loosehanger.kafka.clients import PAGE
            from loosehanger.kafka.cluster import Cluster

            self._cluster = Cluster(self.region, self._connection, PAGE, client_id="lab-console")
        return self._cluster

    @property
    def _is_open(self) -> bool:
        return self._cluster is not None and self._cluster.is_open

    def _connect(self) -> None:
        self._asked().connect()

    def _connect_quietly(self) -> None:
        with suppress(UnreachableError):  # The next request reports it.
            self._explained(self._connect)

    def _forget(self) -> None:
        if self._cluster is not None:
            self._cluster.close()

    def _described(self) -> list[dict[str, Any]]:
        return [t for t in self._asked().described() if not t["is_internal"] and not t["name"].startswith("__")]

    def _offsets(self, partitions: list[tuple[str, int]]) -> tuple[dict[Any, int], dict[Any, int]]:
        from kafka import TopicPartition

        wanted = [TopicPartition(*partition) for partition in partitions]
        cluster = self._asked()
        return cluster.start_offsets(wanted), cluster.written_offsets(wanted)

    def _sizes(self) -> dict[tuple[str, int], int]:
        sizes: dict[tuple[str, int], int] = {}
        for entry in self._asked().log_dirs():
            for topic in entry["topics"]:
                for partition in topic["partitions"]:
                    place = (topic["name"], partition["partition_index"])
                    sizes[place] = sizes.get(place, 0) + partition["partition_size"]
        return sizes

    def _topics(self) -> list[Topic]:
        described = self._described()
        names = [topic["name"] for topic in described]
        first, end = self._offsets(
            [(t["name"], p["partition_index"]) for t in described for p in t["partitions"] if p["leader_id"] >= 0]
        )
        sizes, (settings, refused) = self._sizes(), self._modified_settings(names)
        topics = []
        for topic in sorted(described, key=lambda found: str(found["name"])):
            name = topic["name"]
            partitions = [
                Partition(
                    number=p["partition_index"],
                    leader=p["leader_id"] if p["leader_id"] >= 0 else None,
                    replicas=sorted(p["replica_nodes"]),
                    in_sync=sorted(p["isr_nodes"]),
                    first_offset=first.get((name, p["partition_index"])),
                    end_offset=end.get((name, p["partition_index"])),
                    bytes=sizes.get((name, p["partition_index"])),
                )
                for p in sorted(topic["partitions"], key=lambda found: int(found["partition_index"]))
            ]
            topics.append(
                Topic(
                    region=self.region,
                    name=name,
                    partitions=partitions,
                    bytes=sum(p.bytes or 0 for p in partitions),
                    records_per_s=None,
                    bytes_per_s=None,
                    mirror=None,
                    settings=[setting for setting in settings.get(name, []) if setting.source == "topic"],
                    **_topic_health(partitions, readable=name not in refused),
                )
            )
        return topics

    def _modified_settings(self, topics: list[str]) -> _Settings:
        """The settings made on topics, as of some seconds ago where there are many."""
        names, now = frozenset(topics), time.monotonic()
        if self._modified is not None:
            at, took, of, found = self._modified
            if of == names and now - at < min(SETTINGS_REST * took, MOST_SETTINGS_S):
                return found
        found = self._settings(topics, "modified")
        self._modified = time.monotonic(), time.monotonic() - now, names, found
        return found

    def _settings(self, topics: list[str], which: str) -> _Settings:
        return _settings_of(self._asked(), topics, which)

    def _change(self, topic: str, changes: Mapping[str, str | None]) -> None:
        known = [found["name"] for found in self._described()]
        if topic not in known:
            raise WrongUseError(f"{self.region} has no topic '{topic}'; it has: {', '.join(sorted(known)) or 'none'}")
        self._asked().alter(topic, changes)

    def _groups(self) -> list[Group]:
        cluster = self._asked()
        listed = {group["group_id"]: group for group in cluster.ask(lambda admin: admin.list_groups())}
        names = sorted(listed)
        if not names:
            return []
        described = self._described_groups([name for name in names if listed[name]["protocol_type"] == CONSUMERS])
        committed = cluster.ask(lambda admin: admin.list_group_offsets(dict.fromkeys(names)))
        partitions = sorted({part for found in committed.values() for part in found})
        present = {
            (topic["name"], p["partition_index"])
            for topic in self._described()
            for p in topic["partitions"]
            if p["leader_id"] >= 0
        }
        _, ends = self._offsets([tuple(part) for part in partitions if tuple(part) in present])
        return [_group(self.region, listed[name], described.get(name), committed.get(name, {}), ends) for name in names]

    def _described_groups(self, names: list[str]) -> dict[str, dict[str, Any]]:
        """The members of groups of consumers. A member may send any metadata: kafka-python 3.0.12 fails at
        what it cannot decode, and then that group's members are left out."""
        if not names:
            return {}
        try:
            found: dict[str, dict[str, Any]] = self._asked().ask(lambda admin: admin.describe_groups(names))
        except ValueError:
            half = len(names) // 2
            return self._described_groups(names[:half]) | self._described_groups(names[half:]) if half else {}
        return found

    def _brokers(self) -> list[Broker]:
        cluster = self._asked().ask(lambda admin: admin.describe_cluster())
        partitions = [p for topic in self._described() for p in topic["partitions"]]
        sizes: dict[int, int] = {}
        for folder in self._asked().log_dirs():
            held = sum(p["partition_size"] for topic in folder["topics"] for p in topic["partitions"])
            sizes[folder["broker"]] = sizes.get(folder["broker"], 0) + held
        brokers = []
        for broker in cluster["brokers"]:
            node = broker.get("broker_id", broker.get("node_id"))
            holds = [p for p in partitions if node in p["replica_nodes"]]
            behind = sum(node not in p["isr_nodes"] for p in holds)
            brokers.append(
                Broker(
                    region=self.region,
                    node=node,
                    host=broker["host"],
                    port=broker["port"],
                    rack=broker.get("rack"),
                    controller=cluster.get("controller_id") == node,
                    leads=sum(p["leader_id"] == node for p in partitions),
                    replicas=len(holds),
                    behind=behind,
                    bytes=sizes.get(node),
                    health="warning" if behind else "good",
                )
            )
        return sorted(brokers, key=lambda broker: broker.node)


def _when_done(answer: asyncio.Future[T], take: Callable[[asyncio.Future[T]], None]) -> None:
    """Calls it with the answer; at once, if that is there: Python 3.14 does not wait for what a thread has already."""
    if answer.done():
        take(answer)
    else:
        answer.add_done_callback(take)


def _settings_of(cluster: Cluster, topics: list[str], which: str) -> _Settings:
    """The settings of each topic, and Kafka's error for each of the others."""
    from kafka.errors import UnknownTopicOrPartitionError

    found, errors = cluster.described_configs(topics, which)
    # A topic may have been deleted in the meantime.
    refused = {name: error for name, error in errors.items() if not isinstance(error, UnknownTopicOrPartitionError)}
    settings = {
        topic: [
            Setting(
                name=name,
                value=None if entry.get("is_sensitive") else entry["value"],
                source=_SOURCES.get(entry["config_source"], "default"),  # type: ignore[arg-type]
                read_only=bool(entry["read_only"]),
                documentation=entry.get("documentation") or "",
            )
            for name, entry in sorted(entries.items())
        ]
        for topic, entries in found.items()
    }
    return settings, refused


def _group(
    region: str,
    listed: Mapping[str, Any],
    described: Mapping[str, Any] | None,
    committed: Mapping[Any, Any],
    ends: Mapping[Any, int],
) -> Group:
    rows = [
        GroupPartition(
            topic=part.topic,
            partition=part.partition,
            committed=position.offset,
            end_offset=ends.get(part),
            lag=max(0, ends[part] - position.offset) if part in ends else None,
        )
        for part, position in sorted(committed.items())
        if position.offset >= 0
    ]
    return Group(
        region=region,
        name=listed["group_id"],
        kind=listed["protocol_type"] or CONSUMERS,
        state=str(listed.get("group_state") or "Unknown"),
        members=[_member(member) for member in described["members"]] if described else None,
        partitions=rows,
        lag=sum(row.lag or 0 for row in rows) if rows else None,
    )


def _topic_health(partitions: list[Partition], *, readable: bool) -> dict[str, Any]:
    leaderless = [p.number for p in partitions if p.leader is None]
    behind = [p.number for p in partitions if len(p.in_sync) < len(p.replicas)]
    if leaderless:
        return {
            "health": "bad",
            "explanation": f"partitions without a leader, which cannot be read or written: {_numbers(leaderless)}; "
            "a broker is down, see Brokers",
        }
    if behind:
        return {"health": "warning", "explanation": f"partitions with replicas out of sync: {_numbers(behind)}"}
    if not readable:
        return {"health": "warning", "explanation": "its settings are unknown: the console lacks DescribeConfigs on it"}
    return {"health": "good"}


def _numbers(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def _member(member: Mapping[str, Any]) -> Member:
    from loosehanger.kafka.groups import partitions_held

    return Member(
        identity=str(member.get("member_id", "")),
        client=str(member.get("client_id", "")),
        host=str(member.get("client_host", "")).lstrip("/"),
        partitions=partitions_held(member),
    )
