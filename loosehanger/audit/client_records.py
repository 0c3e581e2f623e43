"""Records as a client in this process reads them, without Spark: their fingerprints, and the buckets read again."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from kafka import TopicPartition

from loosehanger.audit.balance import Bucket
from loosehanger.errors import LabError, UnreachableError
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.patches import NO_TIME
from loosehanger.kafka.reading import read_between
from loosehanger.proof.read.buckets import BUCKET_MS

_SIZE = 16


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """What the audit needs of a record."""

    partition: int
    offset: int
    timestamp: int
    """In milliseconds since 1970."""
    key: bytes | None
    fingerprint: bytes


def fingerprint(record: Any) -> bytes:
    """Returns 128 bits that stand for a record's key, value, timestamp and headers.

    Every part is framed by its length, and null differs from empty. Headers count in their order. A header's name that
    is not UTF-8 counts as kafka-python decodes it, on both sides alike.

    Args:
        record: as kafka-python's consumer gives it.
    """
    headers = record.headers or ()
    hashed = blake2b(b"%d;%d;" % (time_of(record), len(headers)), digest_size=_SIZE)
    for part in (record.key, record.value):
        _add(hashed, part)
    for name, value in headers:
        _add(hashed, name.encode("utf-8", "surrogatepass"))
        _add(hashed, value)
    return hashed.digest()


def halves(fingerprinted: bytes) -> tuple[int, int, int, int]:
    """Returns the four 32-bit numbers of a fingerprint, whose sums stand for a multiset of records."""
    first, second, third, fourth = struct.unpack("<4I", fingerprinted)
    return first, second, third, fourth


def time_of(record: Any) -> int:
    """Returns a record's timestamp in milliseconds."""
    return NO_TIME if record.timestamp is None else int(record.timestamp)


def read_bucket(
    cluster: Cluster, consumer: Any, topic: str, key: Bucket, known: tuple[int, int] | None, until: int
) -> list[ReadRecord]:
    """Reads the records of a bucket again: those at known offsets, and those that its timestamps lead to.

    Args:
        cluster: which has the topic.
        consumer: of that cluster; its assignment is changed.
        topic: the topic on this side.
        key: the bucket.
        known: the first and the last offset that the audit has read of it; None for none.
        until: the offset up to which the partition is in the balance.

    Raises:
        UnreachableError: the cluster does not answer, or a record cannot be read.
    """
    place = TopicPartition(topic, key.partition)
    # One bucket longer than the bucket, since timestamps are not always in order.
    first = cluster.offsets_from([place], key.bucket * BUCKET_MS)[place]
    end = cluster.offsets_from([place], (key.bucket + 2) * BUCKET_MS)[place]
    if known is not None:
        first, end = min(first, known[0]), max(end, known[1] + 1)
    start = max(first, cluster.start_offsets([place])[place])
    end = min(end, until, cluster.end_offsets([place])[place])
    if start >= end:
        return []
    return [
        ReadRecord(key.partition, record.offset, time_of(record), record.key, fingerprint(record))
        for record in records_between(cluster, consumer, {place: start}, {place: end})
        if time_of(record) // BUCKET_MS == key.bucket
    ]


def records_between(
    cluster: Cluster, consumer: Any, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> Iterator[Any]:
    """Reads records, and reports a cluster that gives none as one that does not answer.

    Raises:
        UnreachableError: the cluster does not answer, or a record cannot be read.
    """
    with cluster.reaching():
        try:
            yield from read_between(consumer, starts, ends, cluster.region)
        except UnreachableError:
            raise
        except LabError as error:
            raise UnreachableError(str(error)) from error


def _add(hashed: Any, part: bytes | None) -> None:
    if part is None:
        hashed.update(b"-")
    else:
        hashed.update(b"%d:" % len(part))
        hashed.update(part)
