"""Few records come into Spark by one client, and are to the last byte what Spark's own source gives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, KafkaProducer, OffsetSpec, TopicPartition
from kafka.admin import NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.kafka import clients
from loosehanger.proof import scratch
from loosehanger.proof.read import fetching, small_partitions
from loosehanger.proof.read.batches import read_records
from loosehanger.proof.read.fetching import DoubtError, RecordFetcher
from loosehanger.proof.read.records import fingerprint, hashes
from loosehanger.proof.read.small_partitions import SmallPartitions
from tests.batches import Odd

from .broker import Broker, running

pytestmark = pytest.mark.lab

TOPIC = "MIXED"
PARTITIONS = [TopicPartition(TOPIC, number) for number in range(3)]
MOST_BYTES = 16 * 1024 * 1024
PAYLOADS: tuple[bytes | None, ...] = (None, b"", b"\x00", b"\xff\xfe", "Größe\n\u2028".encode(), b"x" * 100_000)
HEADERS: tuple[list[tuple[str, Any]], ...] = (
    [],
    [("lh-run", b"run"), ("lh-seq", b"7")],
    [("", b""), ("twice", None), ("twice", b"\xff"), ('"\\\t\u0000ü😀', b"1")],
    [(f"name-{number % 7}", b"%d" % number) for number in range(300)],
)
TIMES = (1, 1000, 1_800_000_000_123, 253_402_300_800_000)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One that has the topic: a partition of everything, one that ends in an aborted transaction, and an empty one."""
    with running(tmp_path_factory.mktemp("broker")) as found:
        client = found.admin()
        # Retention must not take the old ones.
        configs = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"}
        client.create_topics([NewTopic(TOPIC, 3, 1, topic_configs=configs)])
        client.wait_for_topics([TOPIC])
        client.close()
        arguments = found.connection().kafka_python()
        # kafka-python sends no header without a value.
        writer = Producer(librdkafka(found))
        for time_ms in TIMES:
            for part in PAYLOADS:
                for headers in HEADERS:
                    writer.produce(TOPIC, part, b"k", 0, timestamp=time_ms, headers=headers)
                    writer.produce(TOPIC, b"v", part, 0, timestamp=time_ms, headers=headers)
        assert writer.flush(60) == 0
        with KafkaProducer(**arguments, transactional_id="t") as producer:
            producer.init_transactions()
            for end in (producer.commit_transaction, producer.abort_transaction) * 2:
                producer.begin_transaction()
                for number in range(20):
                    producer.send(TOPIC, b"%d" % number, partition=1)
                producer.flush()
                end()
        yield found


def librdkafka(broker: Broker) -> dict[str, Any]:
    """Its administrator's settings for librdkafka."""
    connection = broker.connection()
    return {
        "bootstrap.servers": ",".join(connection.bootstrap_servers),
        "security.protocol": connection.security_protocol,
        "sasl.mechanism": connection.sasl_mechanism,
        "sasl.username": connection.username,
        "sasl.password": connection.password,
    }


def everything(spark: SparkSession, broker: Broker) -> list[Any]:
    """All records of the topic, with what stands for their contents."""
    records = read_records(spark, broker.connection(), ranges(broker))
    shown = records.withColumn("millis", F.unix_millis("timestamp")).select(
        *("topic", "partition", "offset", "key", "value", "headers", "millis"),
        fingerprint().alias("fingerprint"),
        *(hashed.alias(f"hash_{number}") for number, hashed in enumerate(hashes())),
    )
    return shown.orderBy("partition", "offset").collect()


def ranges(broker: Broker) -> dict[TopicPartition, tuple[int, int]]:
    """All of it, markers included."""
    with KafkaProducer(**broker.connection().kafka_python()) as producer:
        assert producer.partitions_for(TOPIC) == {0, 1, 2}
    client = broker.admin()
    ends = client.list_partition_offsets(dict.fromkeys(PARTITIONS, OffsetSpec.LATEST))
    client.close()
    return {place: (0, end.offset) for place, end in ends.items()}


def test_both_ways_give_the_same_records(
    spark: SparkSession, broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv(scratch.VARIABLE, str(tmp_path))
    few = everything(spark, broker)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(fetching, "_MOST_OFFSETS", 1)
    monkeypatch.setattr(small_partitions, "_MOST_OFFSETS", 0)
    many = everything(spark, broker)
    assert list(tmp_path.iterdir()) == [file], "the second time Spark has read"
    assert len(many) == 2 * len(TIMES) * len(PAYLOADS) * len(HEADERS) + 40
    assert few == many
    # Partition 0 has more records than the others, and then more bytes.
    for name, most in (("_MOST_OFFSETS", 100), ("_MOST_BYTES", 1000)):
        monkeypatch.setattr(small_partitions, "_MOST_OFFSETS", 1000)
        monkeypatch.setattr(small_partitions, name, most)
        assert everything(spark, broker) == many
    assert len(list(tmp_path.iterdir())) == 3


def test_small_partitions_are_read_again_in_part(
    spark: SparkSession, broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv(scratch.VARIABLE, str(tmp_path))
    small = SmallPartitions.read(broker.connection(), ranges(broker))
    wanted = {PARTITIONS[0]: (50, 60), PARTITIONS[1]: (0, 3)}
    assert all(small.covers(place, offsets) for place, offsets in wanted.items())
    assert not small.covers(PARTITIONS[0], (50, 1000))
    found = small.frame(spark, wanted).select("partition", "offset").orderBy("partition", "offset").collect()
    assert [tuple(row) for row in found] == [(0, n) for n in range(50, 60)] + [(1, n) for n in range(3)]


def test_a_client_reads_on_from_anywhere(broker: Broker) -> None:
    """As often as it is asked to, forwards and back, after what it could not read as well."""
    wanted = ranges(broker)
    with closing(RecordFetcher(broker.connection())) as fetcher:
        everything = fetcher.fetch(wanted, MOST_BYTES)
        assert sum(map(len, everything.values())) > 0
        with pytest.raises(DoubtError):
            fetcher.fetch({PARTITIONS[2]: (5, 9)}, MOST_BYTES)
        middle = {place: (start + end) // 2 for place, (start, end) in wanted.items()}
        for _ in range(2):
            first = fetcher.fetch({place: (0, middle[place]) for place in wanted}, MOST_BYTES)
            second = fetcher.fetch({place: (middle[place], end) for place, (_, end) in wanted.items()}, MOST_BYTES)
            assert {place: first[place] + second[place] for place in wanted} == everything


def test_what_is_unusual_or_much_is_left_to_spark(broker: Broker) -> None:
    fetcher = RecordFetcher(broker.connection())
    with pytest.raises(DoubtError, match="more than 1000 bytes"):
        fetcher.fetch(ranges(broker), 1000)
    with pytest.raises(DoubtError, match="OffsetOutOfRange"):
        fetcher.fetch({PARTITIONS[2]: (5, 9)}, 1000)
    with KafkaProducer(**broker.connection().kafka_python()) as producer:
        producer.send(TOPIC, b"", None, [(Odd("n\xe4me \xff"), b"")], 2).get(30)
    with pytest.raises(DoubtError, match="not UTF-8"):
        fetcher.fetch({PARTITIONS[2]: (0, 1)}, 1000)
    # Where the others are wanted all the same, only those are left to it.
    wanted = ranges(broker) | {PARTITIONS[2]: (0, 1)}
    assert fetcher.fetch_undoubted(wanted, MOST_BYTES).keys() == set(PARTITIONS[:2])
    assert PARTITIONS[0] not in fetcher.fetch_undoubted(wanted, 1000)
    with pytest.raises(DoubtError, match="OffsetOutOfRange"):
        fetcher.fetch_undoubted({PARTITIONS[2]: (5, 9)}, 1000)
    fetcher.close()


def test_records_that_a_client_gives_twice_are_left_to_spark(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fetching._SETTINGS, "max_poll_records", 10)

    class Stutterer(KafkaConsumer):  # type: ignore[misc]
        given: Any = None

        def poll(self, *arguments: Any, **named: Any) -> Any:
            self.given = self.given or super().poll(*arguments, **named)
            return self.given

    monkeypatch.setattr(clients, "KafkaConsumer", Stutterer)
    with closing(RecordFetcher(broker.connection())) as fetcher, pytest.raises(DoubtError, match="offset 0 once more"):
        fetcher.fetch({PARTITIONS[0]: (0, 100)}, MOST_BYTES)


def test_what_was_aborted_or_fenced_is_left_out_wherever_reading_begins(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror that is restarted copies the records of its aborted transaction once more, in another one."""
    place, random = TopicPartition("ABORTED", 0), Random(7)  # noqa: S311 - of a test
    client = broker.admin()
    client.create_topics([NewTopic(place.topic, 1, 1)])
    client.wait_for_topics([place.topic])
    client.close()
    written: dict[str, list[int]] = {}
    committed: list[int] = []

    def producer(name: str) -> Producer:
        # A second one of this name fences the first, and aborts what it has begun.
        found = Producer({**librdkafka(broker), "transactional.id": name, "batch.num.messages": 4})
        found.init_transactions(30)
        return found

    def write(name: str) -> None:
        producers[name].begin_transaction()
        written[name] = []
        for number in range(random.randint(1, 15)):
            producers[name].produce(
                place.topic, b"%d" % number, partition=0,
                on_delivery=lambda _, record: written[name].append(record.offset() or 0),
            )  # fmt: skip
        assert producers[name].flush(30) == 0

    producers = {name: producer(name) for name in ("one", "other")}
    for _ in range(60):
        for name in (open_ := random.sample(list(producers), random.randint(1, 2))):
            write(name)
        for name in random.sample(open_, len(open_)):
            end = random.choice(("commit", "commit", "abort", "fence"))
            if end == "commit":
                producers[name].commit_transaction(30)
                committed += written[name]
            elif end == "abort":
                producers[name].abort_transaction(30)
            else:
                producers[name] = producer(name)
    connection = broker.connection()
    with closing(clients.connect_admin(connection)) as admin:
        end_offset = admin.list_partition_offsets({place: OffsetSpec.LATEST})[place].offset
    committed.sort()
    assert 100 < len(committed) < end_offset - 100
    monkeypatch.setitem(fetching._SETTINGS, "max_poll_records", 7)
    monkeypatch.setitem(fetching._SETTINGS, "max_partition_fetch_bytes", 600)
    with closing(RecordFetcher(connection)) as fetcher:
        for start in (0, *random.sample(range(end_offset), 25)):
            found = fetcher.fetch({place: (start, end_offset)}, MOST_BYTES)[place]
            assert [record.offset for record in found] == [offset for offset in committed if offset >= start], start
