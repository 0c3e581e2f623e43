"""Reads a cluster's new records with a client in this process, without Spark."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kafka import TopicPartition
from kafka.errors import OffsetOutOfRangeError, TopicAuthorizationFailedError

from loosehanger.audit.client_records import fingerprint, halves, time_of
from loosehanger.audit.region_reader import BucketTotals, Ranges, Reading, RegionReader
from loosehanger.errors import LabError, UnreachableError
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.patches import NO_TIME, UnreadableError
from loosehanger.kafka.reading import read_between
from loosehanger.proof.read.buckets import BUCKET_MS

_OVERHEAD = 12
"""What Kafka stores of a record besides key, value and headers, in bytes."""
_AGAIN_S = 60.0
"""Seconds after which a partition that could not be read is tried again."""
_SETTINGS = {
    # Records that are deleted while a round reads them must not be left out: their copies would be unexpected.
    "auto_offset_reset": "none",
    "max_poll_records": 5000,
    "max_partition_fetch_bytes": 1024 * 1024,
}


class ClientReader(RegionReader):
    """Reads one cluster.

    A partition that cannot be read, such as for a missing right, is left out for a minute and reported; the others are
    read on.

    Args:
        name: the cluster's.
        cluster: for this reader's thread alone.
    """

    most_offsets = 50_000

    def __init__(self, name: str, cluster: Cluster) -> None:
        super().__init__(name, cluster)
        self._consumer: Any = None
        self._unreadable: dict[TopicPartition, tuple[float, str]] = {}
        """The partitions that are left out: until when, and why."""

    def close_consumer(self) -> None:
        """As ``RegionReader`` says."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close(autocommit=False)

    def read_on(self, wanted: Mapping[TopicPartition, int], events: Mapping[str, str]) -> Reading:
        """As ``RegionReader`` says."""
        now = time.monotonic()
        self._unreadable = {place: found for place, found in self._unreadable.items() if found[0] > now}
        while True:
            left = {place: offset for place, offset in wanted.items() if place not in self._unreadable}
            try:
                reading = super().read_on(left, events)
            except UnreadableError as error:
                self.close_consumer()
                self._unreadable[error.place] = now + _AGAIN_S, f"{self.name}: {error}"
            except TopicAuthorizationFailedError as error:
                self.close_consumer()
                refused = {str(topic) for topic in (error.args[0] if error.args else ())}
                found = {
                    place: (now + _AGAIN_S, f"{self.name}: {self.cluster.lacks('Read', place.topic)}")
                    for place in left
                    if place.topic in refused
                }
                if not found:
                    raise UnreachableError(f"{self.name}: {self.cluster.lacks('Read', 'a topic')}") from error
                self._unreadable |= found
            else:
                problems = tuple(dict.fromkeys(reason for _, reason in self._unreadable.values()))
                return replace(reading, problems=problems)

    def totals(
        self,
        ranges: Ranges,
        events: Mapping[str, str],  # noqa: ARG002 (only the lab's shop has events)
    ) -> tuple[list[BucketTotals], list[Any]]:
        """As ``RegionReader`` says.

        Raises:
            UnreadableError: a record cannot be decoded.
            TopicAuthorizationFailedError: a topic may not be read.
        """
        starts = {place: start for place, (start, _) in ranges.items()}
        ends = {place: end for place, (_, end) in ranges.items()}
        try:
            with self.cluster.reaching():
                return self._summed(starts, ends), []
        except UnreachableError as error:
            if isinstance(error.__cause__, (UnreadableError, TopicAuthorizationFailedError)):
                raise error.__cause__ from None
            self.close_consumer()
            if isinstance(error.__cause__, OffsetOutOfRangeError):
                problem = f"{self.name}: records were deleted while they were read; the next round reads on"
                raise UnreachableError(problem) from error
            raise
        except LabError as error:
            # No record has come for long.
            self.close_consumer()
            raise UnreachableError(str(error)) from error

    def _summed(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[BucketTotals]:
        if self._consumer is None:
            self._consumer = self.cluster.consumer(**_SETTINGS)
        sums: dict[tuple[str, int, int], list[int]] = {}
        for record in read_between(self._consumer, starts, ends, self.name):
            place = record.topic, record.partition, time_of(record) // BUCKET_MS
            found = sums.get(place)
            if found is None:
                found = sums[place] = [0, 0, 0, 0, 0, record.offset, record.offset, 0, 0]
            first, second, third, fourth = halves(fingerprint(record))
            found[0] += 1
            found[1] += first
            found[2] += second
            found[3] += third
            found[4] += fourth
            found[6] = record.offset
            found[7] += len(record.key or b"") + len(record.value or b"") + _OVERHEAD
            found[8] += time_of(record) == NO_TIME
        return [BucketTotals(*place, found[0], tuple(found[1:5]), *found[5:]) for place, found in sums.items()]
