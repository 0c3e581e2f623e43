"""Every client of the kit and both ways of the proof read topics, whatever their producer compresses with."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from pyspark.sql import SparkSession

from loosehanger.console.live import RecordFilter
from loosehanger.console.search import Searcher, search_request
from loosehanger.events.reader import Reader, Selection, Start
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.patches import prepare
from loosehanger.kafka.retention_risk import RetentionReader
from loosehanger.proof import scratch
from loosehanger.proof.evidence.latency import LatencySampler
from loosehanger.proof.proof import Proof
from loosehanger.proof.read import fetching
from loosehanger.proof.read.external import two_clusters
from loosehanger.proof.verdict import judge

from .broker import Broker, java, running
from .conftest import wait_until
from .test_fetching import librdkafka

pytestmark = pytest.mark.lab

CODECS = ("gzip", "snappy", "lz4", "zstd")
RECORDS = 400
VALUES = [b"%d: an order that is worth compressing, an order that is worth compressing" % n for n in range(RECORDS)]
TOPICS = [f"{writer}-{codec}" for writer in ("librdkafka", "java") for codec in CODECS]
WAIT_S = 120


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One that has a topic of each codec by each client, and copies as a mirror makes them."""
    with running(tmp_path_factory.mktemp("broker")) as found:
        client = found.admin()
        client.create_topics([NewTopic(name, 1, 1) for topic in TOPICS for name in (topic, f"old.{topic}")])
        client.wait_for_topics([name for topic in TOPICS for name in (topic, f"old.{topic}")])
        client.close()
        for codec in CODECS:
            writer = Producer(librdkafka(found) | {"compression.codec": codec, "linger.ms": 200})
            for value in VALUES:
                writer.produce(f"librdkafka-{codec}", value, b"k", 0)
            assert writer.flush(WAIT_S) == 0
            _write_by_java(found, codec)
        _copy(found)
        yield found


def _write_by_java(broker: Broker, codec: str) -> None:
    producer = java(
        *("org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", f"127.0.0.1:{broker.port}"),
        *("--topic", f"java-{codec}", "--compression-codec", codec),
        *("--command-config", str(broker.properties("admin"))),
        log=broker.folder / f"producer-{codec}.log",
        stdin=subprocess.PIPE,
    )
    producer.communicate(b"".join(value + b"\n" for value in VALUES), timeout=WAIT_S)
    assert producer.returncode == 0, (broker.folder / f"producer-{codec}.log").read_text()


def _copy(broker: Broker) -> None:
    with (
        Cluster("here", broker.connection()) as looker,
        KafkaProducer(**broker.connection().kafka_python()) as producer,
    ):
        for record in looker.records({}, looker.ends(TOPICS)):
            producer.send(f"old.{record.topic}", record.value, record.key, partition=0, timestamp_ms=record.timestamp)
        producer.flush(WAIT_S)


@pytest.mark.parametrize("topic", TOPICS)
def test_a_consumer_shows_every_record(broker: Broker, topic: str) -> None:
    lines: list[str] = []
    reader = Reader(
        broker.connection(),
        Selection((topic,), re.compile("")),
        group=None,
        start=Start(end="earliest"),
        follow=False,
        client_log=prepare(lambda _: None),
        report=lines.append,
    )
    with closing(reader):
        found = [record.value for batch in reader.batches(None, lambda: False) for record in batch]
    assert (found, lines) == (VALUES, [])


@pytest.mark.parametrize("topic", TOPICS)
def test_whoever_looks_at_records_sees_them(broker: Broker, topic: str) -> None:
    """The console's search, time to loss, what a stage reads, and the proof's last records."""
    place = TopicPartition(topic, 0)
    searcher = Searcher("here", broker.connection())
    found = asyncio.run(searcher.find(search_request(RecordFilter(topic=topic), partition="0", offset="399")))
    searcher.close()
    assert [one.record.value for one in found.records] == [VALUES[399]]
    with closing(RetentionReader(Cluster("here", broker.connection()))) as watch:
        (exposure,) = watch.look({place: 99})
    assert exposure.behind == RECORDS - 100
    assert exposure.age_s is not None
    with Cluster("here", broker.connection()) as looker:
        assert looker.records_from({place: 100}, {place: RECORDS}) == RECORDS - 100
    with closing(Cluster("here", broker.connection())) as cluster:
        assert cluster.last_records({place: (0, RECORDS)}, WAIT_S) == ({place: RECORDS - 1}, {})


@pytest.mark.parametrize("codec", CODECS)
def test_latencies_are_sampled(broker: Broker, codec: str) -> None:
    topic = f"librdkafka-{codec}-later"
    client = broker.admin()
    client.create_topics([NewTopic(topic, 1, 1)])
    client.wait_for_topics([topic])
    client.close()
    sampler = LatencySampler(broker.connection(), {topic: 1})
    sampler.start()
    writer = Producer(librdkafka(broker) | {"compression.codec": codec, "linger.ms": 50})

    def written() -> bool:
        for value in VALUES[:50]:
            writer.produce(topic, value, b"k", 0)
        assert writer.flush(WAIT_S) == 0
        return bool(sampler._samples.get(topic))

    wait_until(written, WAIT_S, "a sample")
    assert sampler.finish()[topic]


@pytest.mark.parametrize("most", [25_000, 1], ids=["client", "spark"])
def test_both_ways_of_the_proof_read_them(
    broker: Broker, spark: SparkSession, most: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv(scratch.VARIABLE, str(tmp_path))
    monkeypatch.setattr(fetching, "_MOST_OFFSETS", most)
    admin = broker.properties("admin")
    lab = two_clusters(admin, admin, ",".join(TOPICS), "default", "old")
    document = judge(Proof(lab, lambda _: spark, WAIT_S, 5, lambda _: None).run(), lab.scenario, 1.0)
    assert document["verdict"] == "proved", document["reasons"]
    assert {flow["topic"]: flow["source_records"] for flow in document["flows"]} == dict.fromkeys(TOPICS, RECORDS)
