"""Marked records, sent at intervals into every source, so that a stalled mirror shows even without producers.

The canary's topic is mirrored and audited like any other: the watch reports a canary that is late or missing in the
same way, also after a restart.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka.errors import KafkaError

from loosehanger.audit.balance import bucket_of
from loosehanger.audit.topic_writer import BLOCK_MS, open_topic
from loosehanger.kafka.connection import Connection
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import selected_topics, target_topic
from loosehanger.proof.flows import Flow
from loosehanger.proof.report.record_times import iso

TOPIC = "LH.CANARY"
HEADER = "lab-canary"
_SETTINGS = {"cleanup.policy": "delete", "retention.ms": str(24 * 3600 * 1000)}
_REMEMBERED = 1000
"""Canaries of a source whose times are remembered, the newest."""


@dataclass(frozen=True)
class Arrival:
    """The newest canary of a flow that has arrived."""

    sent_ms: int
    """When it was sent, in epoch milliseconds."""
    latency_s: float
    """From then until the audit had read its copy."""


@dataclass
class Arrivals:
    """Which canaries of this run have arrived, from the numbers of records that the audit reads."""

    sent: dict[str, deque[int]] = field(default_factory=dict)
    """When the canaries of each source were sent, in epoch milliseconds."""
    newest: dict[str, Arrival] = field(default_factory=dict)
    """By the id of the flow; without a flow from which none has arrived."""
    _read: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The newest bucket that was read of each flow, and how many records of it."""

    def note_sent(self, source: str, at_ms: int) -> None:
        """Notes a canary that was sent."""
        self.sent.setdefault(source, deque(maxlen=_REMEMBERED)).append(at_ms)

    def take(self, flow: Flow, bucket: int, records: int, at_ms: int) -> None:
        """Takes records of a copy, in the order of their buckets.

        Args:
            flow: of the canary's topic, whose copy has no other source.
            bucket: the bucket of their timestamps.
            records: how many more of this bucket have been read.
            at_ms: when they were read, in epoch milliseconds.
        """
        last, before = self._read.get(flow.id, (bucket, 0))
        if bucket < last:
            return
        count = records + (before if bucket == last else 0)
        self._read[flow.id] = bucket, count
        # One partition keeps the order, so the copies are the first of those that were sent.
        times = [sent for sent in self.sent.get(flow.source, ()) if bucket_of(sent) == bucket]
        if times:
            sent_ms = times[min(count, len(times)) - 1]
            self.newest[flow.id] = Arrival(sent_ms, max(at_ms - sent_ms, 0) / 1000)


class Canary:
    """Sends the records.

    Args:
        connections: of each source, that of a user who may write to the topic.
        every_s: seconds from one to the next.
        topic: in each source, the topic that they are written to and nothing else is.
        create: whether the topic is created where it does not exist; the user must have the right to.
    """

    def __init__(
        self, connections: Mapping[str, Connection], every_s: float, topic: str = TOPIC, *, create: bool = True
    ) -> None:
        self._connections = connections
        self.topic = topic
        self._create = create
        self._every_s = every_s
        self._due = 0.0
        self._sent = 0
        self._producers: dict[str, Any] = {}
        self.arrivals = Arrivals()

    def open(self) -> None:
        """Opens the topic in every source.

        Raises:
            LabError: a cluster does not answer, or refuses.
        """
        for region, connection in self._connections.items():
            self._producers[region] = open_topic(connection, self.topic, _SETTINGS if self._create else None)

    def send(self) -> None:
        """Sends one record into every source, if the interval has passed."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + self._every_s
        self._sent += 1
        for region, producer in self._producers.items():
            at_ms = round(time.time() * 1000)
            value = {"canary": self._sent, "region": region, "at": iso(at_ms)}
            # The round that reads a source reports it when it does not answer.
            with contextlib.suppress(KafkaError):
                producer.send(
                    self.topic,
                    json.dumps(value).encode(),
                    region.encode(),
                    headers=[(HEADER, str(self._sent).encode())],
                    timestamp_ms=at_ms,
                )
                self.arrivals.note_sent(region, at_ms)

    def close(self) -> None:
        """Waits briefly for records in flight, and closes the producers."""
        for producer in self._producers.values():
            producer.close(timeout=BLOCK_MS / 1000)


def sources(mirrors: Iterable[Mirror], topic: str = TOPIC) -> list[str]:
    """The regions that get canaries: not those where a canary would be a second writer of a mirror's copy."""
    taking = [mirror for mirror in mirrors if selected_topics(mirror, [topic])]
    copied_into = {mirror.target for mirror in taking if target_topic(mirror, topic) == topic}
    return sorted({mirror.source for mirror in taking} - copied_into)


def standing(flow: Flow, numbers: Mapping[str, int], records: int, newest: Arrival | None = None) -> dict[str, Any]:
    """The state of a mirror's canaries, from the audit's numbers for their topic.

    Args:
        flow: of the canary's topic.
        numbers: the audit's counts for the flow.
        records: the number of canaries at the source.
        newest: the newest one that has arrived; None for none in this run.
    """
    lost = sum(numbers[kind] for kind in ("missing", "never_mirrored"))
    if lost:
        verdict = "missing"
    elif numbers["late"]:
        verdict = "late"
    else:
        verdict = "arriving" if records else "none yet"
    return {
        "source": flow.source,
        "target": flow.target,
        "mirror": flow.mirror.name,
        "topic": flow.target_topic,
        "newest": iso(newest.sent_ms) if newest else None,
        "latency_s": newest.latency_s if newest else None,
        "sent": records,
        "late": numbers["late"],
        "missing": lost,
        "verdict": verdict,
    }
