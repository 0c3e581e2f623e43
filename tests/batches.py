"""Record batches as a broker sends them, and what a consumer makes of them, without a broker."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from kafka import TopicPartition
from kafka.consumer.fetcher import CompletedFetch, ConsumerRecord, Fetcher
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from loosehanger.kafka.patches import Tolerant, repair


class Odd(str):
    """A header's name that is other bytes on the wire than in Python."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        """Those bytes."""
        return super().encode("latin-1")


Sent = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]
TOPIC = TopicPartition("LH.ORDERS", 1)


def batch(first: int, records: Sequence[Sent], codec: int = 0) -> bytes:
    """A batch as a broker sends it."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 30)
    for number, (key, value, headers) in enumerate(records):
        assert builder.append(number, 1_763_715_600_000, key, value, headers)
    return struct.pack(">q", first) + bytes(builder.build())[8:]


def fetched(data: bytes, deserializer: Tolerant | None, most: int = 3) -> Iterator[tuple[list[ConsumerRecord], int]]:
    """What a consumer gets of a fetch, so many records at a time, and where it goes on each time."""
    repair()
    partition = Fetcher.PartitionRecords(0, TOPIC, MemoryRecords(data), value_deserializer=deserializer)
    while partition:
        found = partition.take(most)
        yield found, partition.next_fetch_offset


def consume(data: bytes, deserializer: Tolerant | None) -> tuple[list[ConsumerRecord], int]:
    """All that a consumer gets of a fetch, and where it goes on."""
    found: list[ConsumerRecord] = []
    end = 0
    for records, end in fetched(data, deserializer):  # noqa: B007 - the last one counts
        found += records
        assert len(found) < 10_000, "it does not come to an end"
    return found, end


def arrives(consumer: Any, place: TopicPartition, data: bytes, offset: int = 0) -> None:
    """Gives a consumer the answer to a fetch."""
    answer = SimpleNamespace(
        error_code=0,
        high_watermark=1000,
        records=data,
        aborted_transactions=None,
        preferred_read_replica=-1,
        diverging_epoch=None,
    )
    consumer._fetcher._completed_fetches.append(CompletedFetch(place, offset, 17, answer, None))
