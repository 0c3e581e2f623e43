"""What a console reads and writes of a broker alone: the last hour's samples, the search, a record that is produced."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.admin import ACLOperation, NewTopic

from loosehanger.console import cluster, history
from loosehanger.console.history import LastHour, Sampler
from loosehanger.console.live import RecordFilter
from loosehanger.console.models import Past
from loosehanger.console.search import Searcher, SearchResult, positions, search_request
from loosehanger.console.service import Service
from loosehanger.console.settings import RegionSettings, Settings
from loosehanger.errors import LabError, WrongUseError
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.produce import NewRecord, RecordProducer, Written, new_record

from .broker import Broker, running

pytestmark = pytest.mark.lab

TOPIC = "LH.ORDERS"
BEGAN = 1_700_000_000_000
COUNT = 2000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with a topic of two partitions, and a transaction in it that was given up."""
    with running(tmp_path_factory.mktemp("broker")) as found:
        client = found.admin()
        client.create_topics([NewTopic(TOPIC, 2, 1), NewTopic("LH.EMPTY", 1, 1)])
        client.close()
        write(found, COUNT, "good")
        write(found, 5, "aborted", given_up=True)
        yield found


def write(broker: Broker, count: int, key: str, *, given_up: bool = False, at: int = BEGAN) -> None:
    """Writes records, a second apart, to the partitions in turn."""
    more = {"transactional_id": key} if given_up else {}
    producer = KafkaProducer(**broker.connection().kafka_python(), **more)
    if given_up:
        producer.init_transactions()
        producer.begin_transaction()
    for number in range(count):
        producer.send(
            TOPIC, key=f"{key}-{number}".encode(), value=os.urandom(100), partition=number % 2,
            timestamp_ms=at + 1000 * number, headers=[("lh-origin", b"europe")],
        )  # fmt: skip
    producer.flush()
    if given_up:
        producer.abort_transaction()
    producer.close()


def find(broker: Broker, wanted: RecordFilter, **more: Any) -> SearchResult:
    """What a search finds."""
    searcher = Searcher("europe", broker.connection())
    try:
        return asyncio.run(searcher.find(search_request(wanted, **more)))
    finally:
        searcher.close()


def test_records_are_found_by_key_time_and_offset(broker: Broker) -> None:
    found = find(broker, RecordFilter(TOPIC, key="good-1999"))
    assert [one.key for one in found.records] == ["good-1999"]
    assert (found.read, found.reached_ms) == (COUNT, None), "what was given up is not there"
    found = find(broker, RecordFilter(header="origin: EUROPE"), since="2023-11-14T22:46:30+00:00")
    assert [one.key for one in found.records] == [f"good-{number}" for number in range(1990, 2000)]
    assert found.read == 10, "it begins where the time does"
    found = find(broker, RecordFilter(TOPIC), partition="1", offset="7")
    assert [one.key for one in found.records] == ["good-15"]
    assert find(broker, RecordFilter(TOPIC), partition="1", offset="1001").records == [], "what was given up"
    assert find(broker, RecordFilter("LH.NONE")).missing == "topic 'LH.NONE' does not exist in europe"
    assert (
        find(broker, RecordFilter(TOPIC), partition="2").missing
        == f"{TOPIC} has no partition 2 in europe; it has 0 to 1"
    )
    empty = find(broker, RecordFilter("LH.EMPTY"))
    assert (empty.records, empty.read, empty.reached_ms) == ([], 0, None)


def test_pages_of_records_lead_from_the_newest_to_the_oldest(broker: Broker) -> None:
    at, seen = "", list[str]()
    for _ in range(COUNT):
        found = find(broker, RecordFilter(TOPIC, key="good-"), newest=True, at=at, most=200)
        seen += [one.key for one in found.records]
        at = positions(found.spans)[0]
        if not at:
            break
    assert seen == [f"good-{number}" for number in reversed(range(COUNT))], "what was given up is skipped"
    back = find(broker, RecordFilter(TOPIC), newest=True, until="2023-11-14T22:46:30+00:00", most=2)
    assert [one.key for one in back.records] == ["good-1990", "good-1989"]


def test_samples_of_an_unwatched_region_tell_what_came_in_between(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Samples follow each other faster than they do, and so have to answers.
    monkeypatch.setattr(history, "GLANCE_S", 4.0)
    monkeypatch.setattr(cluster, "STALE_S", 1.0)
    monkeypatch.setattr(cluster, "REST", 0.0)
    service = Service(Settings("europe", "u", "p", (RegionSettings("europe", broker.connection()),)))
    kept = LastHour()

    async def run() -> Past:
        sampler = Sampler(service, kept)
        await sampler.sample(glance=True)
        await asyncio.to_thread(write, broker, 400, "unseen")
        sampling = asyncio.create_task(sampler.sample(glance=True))
        live = service.regions["europe"].live
        async with asyncio.timeout(30):
            while not live.offsets():
                await asyncio.sleep(0.05)
        await asyncio.to_thread(write, broker, 40, "seen", at=round(time.time() * 1000))
        await sampling
        assert not service.looked_at
        return kept.past(lambda subject: subject.topic == TOPIC, time.time())

    try:
        (series,) = asyncio.run(run()).series
    finally:
        service.close()
    passed = kept.past(lambda _: True, time.time()).times
    assert series.records_per_s[0] is None
    rate = series.records_per_s[1]
    assert rate is not None
    assert 0.5 * 440 < rate * (passed[1] - passed[0]) < 2 * 440, "those without a reader as well"
    assert (series.bytes_per_s[1] or 0) > 100 * rate
    assert series.latency_ms_p50[1] is not None
    assert series.lag == [None, None]


def produced(connection: Connection, record: NewRecord) -> Written:
    """Where a new record is."""
    with RecordProducer(connection, "europe") as producer:
        return producer.send(record)


def test_a_record_is_written_as_it_was_typed_or_refused_with_the_reason(broker: Broker) -> None:
    admin = broker.connection()
    typed = [
        new_record("LH.TYPED", "Größe 34", '{"a": [1, null]}', ["source: a:b", "empty:"], 1),
        new_record("LH.TYPED", "", None),
        new_record("LH.TYPED", None, "x" * 900_000, partition=0),
    ]
    client = broker.admin()
    client.create_topics(
        [NewTopic("LH.TYPED", 2, 1), NewTopic("LH.COMPACTED", 1, 1, topic_configs={"cleanup.policy": "compact"})]
    )
    client.close()
    with RecordProducer(admin, "europe") as producer:
        places = [producer.send(record) for record in typed]
        assert (places[0].partition, places[0].offset, places[2].partition) == (1, 0, 0)
        with pytest.raises(WrongUseError, match=r"LH\.TYPED has no partition 2; it has 0 to 1"):
            producer.send(new_record("LH.TYPED", "k", "v", partition=2))
        with pytest.raises(WrongUseError, match=r"no topic 'LH\.NONE' that user 'admin' may see"):
            producer.send(new_record("LH.NONE", "k", "v"))
        with pytest.raises(WrongUseError, match=r"the topic's max\.message\.bytes"):
            producer.send(new_record("LH.TYPED", "k", "x" * 1_100_000))
        with pytest.raises(WrongUseError, match="a compacted topic needs a key"):
            producer.send(new_record("LH.COMPACTED", None, "v"))
    for record, place in zip(typed, places, strict=True):
        (read,) = find(
            broker, RecordFilter("LH.TYPED"), partition=str(place.partition), offset=str(place.offset)
        ).records
        assert (read.record.serialized_key_size, read.record.serialized_value_size) == (
            -1 if record.key is None else len(record.key),
            -1 if record.value is None else len(record.value),
        )
        assert tuple(read.record.headers) == record.headers
        assert read.record.timestamp == place.timestamp
    for user, operations in (("reader", [ACLOperation.READ]), ("other", [ACLOperation.WRITE])):
        broker.allow(user, "LH.TYPED" if user == "reader" else "LH.OTHER", *operations)
        with pytest.raises(LabError, match=f"user '{user}' lacks Write"):
            produced(broker.connection(user), typed[0])
    unknown = broker.connection("unknown")
    with pytest.raises(LabError, match="refuses user 'unknown'"):
        produced(unknown, typed[0])
