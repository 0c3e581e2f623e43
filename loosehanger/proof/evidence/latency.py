"""How long a record takes from its production to the reader at the target, sampled while the proof runs."""

from __future__ import annotations

import random
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection
from typing import Any

from kafka.errors import KafkaError

from loosehanger.kafka.clients import connect_consumer
from loosehanger.kafka.cluster import partitions_of
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.patches import UnreadableError
from loosehanger.quantiles import quantile

_POLL_MS = 200
_STEPS = (1, 2, 5)
_MOST_SAMPLES = 10_000
# Further behind than this, the sampler would measure itself and not the mirror.
_MOST_LAG = 2_000
_MOST_PARTITIONS = 1_000
"""Each of them costs the sampler work, whether it has new records or not."""


class LatencySampler(threading.Thread):
    """Reads a target's new records from the end and notes arrival time minus record timestamp.

    MM2 keeps the producer's timestamp, so this is the time from production to visibility for a ``read_committed``
    reader, by this machine's clock and the producer's.
    """

    def __init__(self, connection: Connection, topics: dict[str, int]) -> None:
        super().__init__(name="latency", daemon=True)
        self._connection = connection
        # The first partition of each topic comes before any second one.
        in_turn = sorted(partitions_of(topics), key=lambda place: place.partition)
        self._partitions = in_turn[:_MOST_PARTITIONS]
        self._ending = threading.Event()
        self._samples: dict[str, list[int]] = {}
        self._seen: dict[str, int] = {}
        self._random = random.Random(0)  # noqa: S311 - a fair choice of samples, no secret

    def run(self) -> None:
        """Samples until ``finish``; a cluster that does not answer only leaves fewer samples."""
        if not self._partitions:
            return  # Nothing is there yet: a consumer cannot seek in no partition.
        try:
            consumer = connect_consumer(self._connection)
        except KafkaError:
            return
        try:
            consumer.assign(self._partitions)
            consumer.seek_to_end(*self._partitions)
            while not self._ending.is_set():
                self._take(consumer)
        except KafkaError:
            return
        finally:
            consumer.close(autocommit=False)

    def finish(self) -> dict[str, list[int]]:
        """Ends the sampling.

        Returns:
            The latencies of each topic, by its name at the target, in milliseconds.
        """
        self._ending.set()
        self.join(timeout=5)
        return self._samples

    def _take(self, consumer: Any) -> None:
        try:
            polled = consumer.poll(timeout_ms=_POLL_MS)
        except UnreadableError as error:
            consumer.pause(error.place)  # The others are sampled all the same.
            return
        now_ms = time.time_ns() // 1_000_000
        for partition, records in polled.items():
            for record in records:
                self._keep(partition.topic, now_ms - record.timestamp)
            if (consumer.highwater(partition) or 0) - records[-1].offset > _MOST_LAG:
                consumer.seek_to_end(partition)

    def _keep(self, topic: str, sample: int) -> None:
        """Reservoir sampling: every record has the same chance, and memory is bounded."""
        samples = self._samples.setdefault(topic, [])
        self._seen[topic] = seen = self._seen.get(topic, 0) + 1
        if len(samples) < _MOST_SAMPLES:
            samples.append(sample)
        elif (place := self._random.randrange(seen)) < _MOST_SAMPLES:
            samples[place] = sample


def percentiles(samples: Collection[int]) -> dict[str, int | None]:
    """p50, p95, p99 and max by nearest rank, in the samples' unit; None without samples; and how many there are."""
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return {name: int(quantile(samples, share)) if samples else None for name, share in shares.items()} | {
        "samples": len(samples)
    }


def histogram(samples: Collection[int]) -> list[list[int]]:
    """How many samples lie above the bound before and at most at each bound: pairs of bound and count.

    The bounds are 1, 2, 5, 10, 20, 50, … in the samples' unit, as far as there are samples.
    """
    bounds: list[int] = []
    while samples and (not bounds or bounds[-1] < max(samples)):
        bounds.append(_STEPS[len(bounds) % 3] * 10 ** (len(bounds) // 3))
    counts = Counter(bisect_left(bounds, sample) for sample in samples)
    first = min(counts, default=0)
    return [[bound, counts[place]] for place, bound in enumerate(bounds) if place >= first]
