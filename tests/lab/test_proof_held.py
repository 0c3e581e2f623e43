"""What real brokers do to records, and what the proof reports: exactly what was damaged, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, KafkaAdminClient

from loosehanger.kafka.connection import connection_for, parse_properties
from scripts.sandbox import Kit

from .conftest import admin, batches, wait_until
from .faults import FAULTS, count, prove

pytestmark = [pytest.mark.lab, pytest.mark.slow]

ALIAS = "old"
FOR_EVER = {"retention.ms": "-1"}
ANY_TIME = FOR_EVER | {"message.timestamp.after.max.ms": str(2**63 - 1)}
LARGE = {"max.message.bytes": "11000000"}
FAR_MS = 300_000_000_000_000
"""In the year 11476, which no Python date can be."""
YEAR_MS = 365 * 86_400_000


class Record(NamedTuple):
    """What a record consists of."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Sequence[tuple[str, bytes]] = ()


Tamper = Callable[[list[Record]], list[Record]]


@dataclass(frozen=True)
class Case:
    """A topic, what a bad copier makes of it, and what the proof must report."""

    records: Sequence[Record]
    expected: dict[str, int] = field(default_factory=dict)
    tamper: Tamper = list
    config: dict[str, str] = field(default_factory=dict)
    copied: bool = True


def events(number: int, first_ms: int, apart_ms: int = 1) -> list[Record]:
    """Events over three partitions."""
    return [
        Record(n % 3, b"key-%d" % n, b"value-%d" % n, first_ms + n * apart_ms, (("h", b"%d" % n),))
        for n in range(number)
    ]


def changed(place: int, **changes: Any) -> Tamper:
    """Changes one record."""
    return lambda records: [r._replace(**changes) if n == place else r for n, r in enumerate(records)]


def seven_lost_five_doubled(records: list[Record]) -> list[Record]:
    """The first seven of a partition are lost; five others come twice."""
    return [*records[7:], *records[20:25]]


def cases(now_ms: int) -> dict[str, Case]:
    """Every case by its topic's name."""
    usual = events(300, now_ms)
    # Null headers, and records without key and value, are more than this client can write.
    nulls = [
        Record(0, key, value, now_ms + n, (("h", b""),))
        for n, (key, value) in enumerate(
            [(None, b""), (b"", None), (b"", b""), (b"k", None), (None, b"v"), (b"k", b"v")]
        )
    ]
    many = [Record(0, b"k", b"v", now_ms, [(f"h-{n % 100}", b"%d" % n) for n in range(300)])]
    return {
        "copied": Case(usual),
        "copied-twice": Case(usual, {"duplicates": 300}, lambda records: [*records, *records]),
        "sent-twice": Case([*usual, *usual]),
        "lost-and-doubled": Case(usual, {"missing": 7, "duplicates": 5}, seven_lost_five_doubled),
        "headers": Case(usual, {"altered": 1}, changed(9, headers=[("h", b"other")])),
        "one-time": Case(events(300, now_ms, apart_ms=0), {"missing": 1}, lambda records: records[1:]),
        "nulls": Case(nulls),
        "null-to-empty": Case(nulls, {"altered": 1}, changed(3, value=b"")),
        "many-headers": Case(many),
        "1970": Case(events(30, 0), {"missing": 1}, lambda records: records[1:], FOR_EVER),
        "next-year": Case(events(30, now_ms + YEAR_MS), {"altered": 1}, changed(3, value=b"x"), ANY_TIME),
        "far": Case(events(30, FAR_MS), {"altered": 1}, changed(3, value=b"x"), ANY_TIME),
        "append-time": Case(events(30, 0), config={"message.timestamp.type": "LogAppendTime"}),
        "large": Case(
            [Record(0, b"%d" % n, bytes([n]) * 10_000_000, now_ms) for n in range(2)],
            {"altered": 1},
            changed(1, value=bytes([1]) * 9_999_999 + b"x"),
            LARGE,
        ),
        "gone": Case(events(10, now_ms), {"missing": 10}, copied=False),
        # A partition may end in any number of offsets without a record.
        "aborted": Case(usual),
    }


def arguments(kit: Kit, region: str) -> dict[str, Any]:
    """A client that may do everything in a region."""
    return connection_for(kit.lab.region(region), "admin").kafka_python()


def platform(kit: Kit, region: str) -> dict[str, Any]:
    """A client that acts as the platform, who may do what no user may: transactions, and settings of brokers."""
    (properties,) = (kit.home / "regions" / region / "kafka").rglob("server.properties")
    listeners = parse_properties(properties.read_text(encoding="utf-8"))["advertised.listeners"]
    secrets = kit.home / "regions" / region / "secrets"
    operator = secrets / f"{region}-cluster-operator-certs"
    return {
        "bootstrap_servers": listeners.split(",")[0].partition("://")[2],
        "security_protocol": "SSL",
        "ssl_cafile": str(secrets / f"{region}-cluster-ca-cert" / "ca.crt"),
        "ssl_certfile": str(operator / "tls.crt"),
        "ssl_keyfile": str(operator / "tls.key"),
    }


def send(producer: KafkaProducer, topic: str, records: Sequence[Record]) -> None:
    """Writes the records."""
    sent = [
        producer.send(
            topic, r.value, key=r.key, partition=r.partition, timestamp_ms=r.timestamp, headers=list(r.headers)
        )
        for r in records
    ]
    producer.flush()
    for future in sent:
        future.get(timeout=30)


def read(kit: Kit, region: str, topics: Sequence[str]) -> dict[str, list[Record]]:
    """The committed records of the topics."""
    found: dict[str, list[Record]] = {topic: [] for topic in topics}
    with KafkaConsumer(**arguments(kit, region), isolation_level="read_committed") as consumer:
        partitions = [TopicPartition(topic, p) for topic in topics for p in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        for batch in batches(consumer, ends):
            for r in batch:
                found[r.topic].append(Record(r.partition, r.key, r.value, r.timestamp, r.headers))
    return found


def create(kit: Kit, region: str, topics: dict[str, dict[str, str]]) -> None:
    """Makes topics of three partitions with these settings."""
    client = admin(kit, region)
    client.create_topics(
        {topic: {"num_partitions": 3, "replication_factor": 1, "configs": config} for topic, config in topics.items()}
    )
    client.close()


def delete(kit: Kit, topics: Sequence[str]) -> None:
    """Deletes topics wherever they are."""
    for region in kit.lab.regions:
        client = admin(kit, region)
        client.delete_topics([topic for topic in client.list_topics() if topic in topics])
        client.close()


@pytest.fixture(scope="module")
def reported(kit: Kit) -> Iterator[dict[str, Any]]:
    """The document of one proof of all cases, between two clusters whose copier is unknown.

    The copies bear an alias before their names, as a MirrorMaker with the default policy gives it.
    """
    found = cases(int(time.time() * 1000))
    topics = {name: f"HELD.{name}" for name in found}
    copies = {name: f"{ALIAS}.{topic}" for name, topic in topics.items()}
    try:
        create(kit, "europe", {topics[name]: case.config for name, case in found.items()})
        # No mirror makes its copies' topic stamp them anew.
        stamped = {"message.timestamp.type"}
        create(
            kit,
            "south-america",
            {
                copies[name]: {key: value for key, value in case.config.items() if key not in stamped}
                for name, case in found.items()
                if case.copied
            },
        )
        with KafkaProducer(**arguments(kit, "europe"), max_request_size=11_000_000) as producer:
            for name, case in found.items():
                send(producer, topics[name], case.records)
        with KafkaProducer(**platform(kit, "europe"), transactional_id="held") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            send(producer, topics["aborted"], events(120, int(time.time() * 1000)))
            producer.abort_transaction()
        at_source = read(kit, "europe", list(topics.values()))
        with KafkaProducer(**arguments(kit, "south-america"), max_request_size=11_000_000) as producer:
            for name, case in found.items():
                if case.copied:
                    send(producer, copies[name], case.tamper(at_source[topics[name]]))
        files = {region: str(kit.lab.region(region).clients["admin"]) for region in ("europe", "south-america")}
        code, document = prove(
            kit,
            *("--source-config", files["europe"], "--target-config", files["south-america"]),
            *("--topics", r"HELD\..*", "--policy", "default", "--source-alias", ALIAS, "--timeout", "5"),
        )
        assert (code, document["verdict"]) == (1, "disproved"), document["reasons"]
        yield document
    finally:
        delete(kit, [*topics.values(), *copies.values()])


@pytest.mark.parametrize("name", cases(0))
def test_exactly_the_damage_is_told(reported: dict[str, Any], name: str) -> None:
    (flow,) = (flow for flow in reported["flows"] if flow["topic"] == f"HELD.{name}")
    case = cases(0)[name]
    assert {fault: flow[fault] for fault in FAULTS if flow[fault]} == case.expected
    assert flow["source_records"] == len(case.records)
    assert [entry["name"] for entry in flow["config_differences"]] == ([] if case.copied else ["topic"])


def test_nothing_stays_undecided(reported: dict[str, Any]) -> None:
    assert [reason for reason in reported["reasons"] if not reason.startswith("HELD.")] == []


def test_a_time_after_the_year_9999_is_shown(reported: dict[str, Any]) -> None:
    (flow,) = (flow for flow in reported["flows"] if flow["topic"] == "HELD.far")
    (example,) = flow["examples"]
    assert example["timestamp"].startswith("+11476-08-15T05:20:00.0")


CLEANED = {"LH.CLEANED": "compact", "LH.CLEANED.TOO": "compact,delete"}
KEYS = 10


def set_cleaner(kit: Kit, region: str, backoff_ms: int | None) -> None:
    """How long a region's log cleaner rests between two looks; None for the default."""
    client = KafkaAdminClient(**platform(kit, region))
    brokers = [str(broker["broker_id"]) for broker in client.describe_cluster()["brokers"]]
    change = (AlterConfigOp.SET, str(backoff_ms)) if backoff_ms else (AlterConfigOp.DELETE, None)
    answers = client.alter_configs(
        [ConfigResource(ConfigResourceType.BROKER, broker, {"log.cleaner.backoff.ms": change}) for broker in brokers],
        raise_on_unknown=False,
    )
    client.close()
    assert set(answers["broker"].values()) == {"OK"}, answers


def arrived(kit: Kit, topic: str, records: int, last: Record) -> bool:
    """Whether so many records are in South America, and the last of them, if not all, in North America."""
    if count(kit, "south-america", topic) != records or not count(kit, "north-america", topic):
        return False
    there = read(kit, "north-america", [topic])[topic]
    return (last.partition, last.value) in [(found.partition, found.value) for found in there]


@pytest.fixture(scope="module")
def cleaned(kit: Kit) -> Iterator[dict[tuple[str, str], dict[str, Any]]]:
    """The flows of compacted topics: North America has cleaned its copies, South America has one foreign value."""
    # Segments are closed by the times in them. A mirror's transaction marker has the clock's: records that are older
    # would all stay in the segment that the first marker began, which nothing closes.
    begin = int(time.time() * 1000)
    versions = [
        [
            Record(key % 3, b"key-%d" % key, b"version %d" % version, begin + version * 600_000 + key)
            for key in range(KEYS)
        ]
        for version in range(3)
    ]
    each = sum(record.partition == 0 for records in versions for record in records)
    config = {"retention.ms": "-1", "segment.ms": "60000", "min.cleanable.dirty.ratio": "0.01"}
    try:
        for region in kit.lab.regions:
            set_cleaner(kit, region, 100 if region == "north-america" else 3_600_000)
        create(kit, "europe", {topic: {"cleanup.policy": policy} | config for topic, policy in CLEANED.items()})
        with KafkaProducer(**arguments(kit, "europe")) as producer:
            # One after the other: of what comes in one batch, however far apart its times are, no segment is closed.
            for number, records in enumerate(versions, 1):
                for topic in CLEANED:
                    send(producer, topic, records)
                for topic in CLEANED:
                    done = partial(arrived, kit, topic, each * number // len(versions), records[0])
                    wait_until(done, 60, f"version {number} of {topic} in both Americas")
        for topic in CLEANED:
            wait_until(lambda t=topic: 0 < count(kit, "north-america", t) < each, 60, f"a clean {topic}")  # type: ignore[misc]
        with KafkaProducer(**arguments(kit, "south-america")) as producer:
            send(producer, "LH.CLEANED", [versions[-1][-1]._replace(value=b"of nobody's")])
        code, document = prove(kit)
        assert (code, document["verdict"]) == (1, "disproved"), document["reasons"]
        yield {(flow["topic"], flow["target"]): flow for flow in document["flows"] if flow["topic"] in CLEANED}
    finally:
        for region in kit.lab.regions:
            set_cleaner(kit, region, None)
        delete(kit, list(CLEANED))


def test_what_one_region_compacted_is_no_fault_of_it_or_of_another(
    cleaned: dict[tuple[str, str], dict[str, Any]],
) -> None:
    reported = {place: {fault: flow[fault] for fault in FAULTS if flow[fault]} for place, flow in cleaned.items()}
    assert reported == {
        ("LH.CLEANED", "north-america"): {},
        ("LH.CLEANED", "south-america"): {"altered": 1},
        ("LH.CLEANED.TOO", "north-america"): {},
        ("LH.CLEANED.TOO", "south-america"): {},
    }
    for topic in CLEANED:
        assert cleaned[topic, "north-america"]["target_records"] < cleaned[topic, "south-america"]["target_records"]


def test_a_wrong_password_says_so(kit: Kit, tmp_path: Path) -> None:
    files = {region: kit.lab.region(region).clients["admin"] for region in ("europe", "south-america")}
    password = connection_for(kit.lab.region("europe"), "admin").password
    assert password
    right = files["europe"].read_text(encoding="utf-8")
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(right.replace(password, "wrong"), encoding="utf-8")
    code, document = prove(
        kit, "--source-config", str(wrong), "--target-config", str(files["south-america"]), "--topics", "x"
    )
    assert (code, document["verdict"]) == (4, "inconclusive")
    (reason,) = document["reasons"]
    assert reason.startswith("source: the cluster refuses user 'admin': ")
    assert "invalid credentials" in reason
    try:
        files["europe"].write_text(wrong.read_text(encoding="utf-8"), encoding="utf-8")
        done = kit.run("topic", "show")
    finally:
        files["europe"].write_text(right, encoding="utf-8")
    assert done.returncode == 1
    assert "europe: the cluster refuses user 'admin': " in done.stderr
