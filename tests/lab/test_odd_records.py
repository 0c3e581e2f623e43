"""Unexpected records, through real brokers: every reader shows them, and continues."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from loosehanger.events.render import Line
from loosehanger.kafka.connection import Connection, connection_for
from scripts.sandbox import Kit
from tests.batches import Odd
from tests.odd_records import ODD_VALUES

from .conftest import admin
from .test_console import signed_in

pytestmark = [pytest.mark.lab, pytest.mark.slow]

REGION = "south-america"
TOPIC = "LH.odd.LH.ORDERS"
"""An event topic for the aggregates, and no mirror's."""
GROUP = "odd-readers"
LARGEST = 1_000_000
VALUES = [b"first", *(value for value in ODD_VALUES if len(value) < LARGEST), b"x" * LARGEST, b"last"]
TIMES = (0, 1, 253_402_300_800_000)
HEADERS = [("lh-time", b"9" * 16), (Odd("n\xe4me \xff"), b"\xff"), ("", b"")]
COUNT = 2 * (len(VALUES) + len(TIMES))


def fill(connection: Connection) -> None:
    """Sends the odd records to both partitions."""
    producer = KafkaProducer(**connection.kafka_python(), max_request_size=2 * LARGEST)
    sent = [producer.send(TOPIC, value, b"\x1b[2J", HEADERS, part) for value in VALUES for part in (0, 1)]
    sent += [producer.send(TOPIC, b"{}", None, [], part, time) for time in TIMES for part in (0, 1)]
    for one in sent:
        one.get(30)
    producer.close()


@pytest.fixture(scope="module")
def connection(kit: Kit) -> Iterator[Connection]:
    """The region's administrator, once the topic is full of odd records in two partitions."""
    connection = connection_for(kit.lab.region(REGION), "admin")
    client = admin(kit, REGION)
    configs = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    client.create_topics([NewTopic(TOPIC, 2, 1, topic_configs=configs)])
    try:
        fill(connection)
        yield connection
    finally:
        client.delete_groups([GROUP])
        client.delete_topics([TOPIC])
        client.close()


def consume(kit: Kit, *options: str) -> list[str]:
    """What a consumer shows of it."""
    config = kit.lab.region(REGION).clients["admin"]
    command = [sys.executable, "-m", "consumers", "--config", str(config), "--topic", TOPIC, *options]
    done = subprocess.run(
        command, cwd=kit.root, env=kit.variables(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.usefixtures("connection")
def test_a_consumer_shows_every_record(kit: Kit) -> None:
    shown = consume(kit, "--no-follow")
    assert len(shown) == COUNT
    assert all(line.isprintable() for line in shown)
    documents = [json.loads(line) for line in consume(kit, "--no-follow", "--json")]
    assert len(documents) == COUNT
    names = [[name for name, _ in document["headers"]] for document in documents]
    assert names.count(["lh-time", "n\ufffdme \ufffd", ""]) == 2 * len(VALUES)


def test_a_group_goes_on_where_it_was(kit: Kit, connection: Connection) -> None:
    shown = consume(kit, "--group", GROUP, "--max", "7") + consume(kit, "--group", GROUP, "--max", str(COUNT - 7))
    lines = [line for text in shown if (line := Line.parse(text))]
    assert len({(line.partition, line.offset) for line in lines}) == len(shown) == COUNT
    with KafkaConsumer(**connection.kafka_python(), group_id=GROUP, enable_auto_commit=False) as consumer:
        committed = [consumer.committed(TopicPartition(TOPIC, partition)) for partition in (0, 1)]
    assert committed == [COUNT // 2] * 2


@pytest.mark.usefixtures("connection")
def test_the_aggregates_count_them_as_unreadable(kit: Kit) -> None:
    done = kit.run("aggregate", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout, parse_constant=pytest.fail)["regions"]
    assert COUNT - 10 < found[REGION]["unreadable"] <= COUNT
    assert found[REGION]["last"] == "+10000-01-01T00:00:00.000+00:00"
    assert found["europe"]["unreadable"] == 0
    assert found[REGION]["revenue"]


def test_a_console_shows_them_and_goes_on(kit: Kit, connection: Connection) -> None:
    browser = signed_in(kit, REGION)
    seen: set[tuple[int, int]] = set()
    problems: list[str] = []
    with browser.get(f"/events/messages?topic={TOPIC}", stream=True, timeout=60) as answer:
        lines = answer.iter_lines(chunk_size=1, decode_unicode=True)
        found = (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))
        # What was there before comes first: then it reads.
        next(found)
        fill(connection)
        wanted = {(partition, offset) for partition in (0, 1) for offset in range(COUNT // 2, COUNT)}
        for data in found:
            if isinstance(data, str):
                problems.append(data)
                continue
            assert data["dropped"] == 0
            assert max(len(json.dumps(message)) for message in data["messages"]) < 200_000
            seen |= {(message["partition"], message["offset"]) for message in data["messages"]}
            if wanted <= seen:
                break
    assert problems == []
