"""The last hour of every flow and topic, in memory of a fixed size.

While the console is in use, a sample every ten seconds reuses what its viewers' requests read. Otherwise a sample is
taken every minute, and the regions are read for a few seconds, since latency is known only for records that are read.
"""

from __future__ import annotations

import asyncio
import math
import time
import traceback
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from loosehanger.console.flow_reader import FlowNow, Now
from loosehanger.console.links import LinkView
from loosehanger.console.marks import Marks, stage_mark, states_of
from loosehanger.console.models import Past, Series, Topic
from loosehanger.console.service import Service

STEP_S = 10.0
"""Between two samples while the console is in use."""
REST_S = 60.0
"""Between two samples while it is not."""
GLANCE_S = 5.0
"""How long the regions are read for a sample while the console is not in use."""
KEPT_S = 3600.0
POINTS = round(KEPT_S / STEP_S)
MOST_SUBJECTS = 200
"""Flows and topics together."""
MEASURES = ("records_per_s", "bytes_per_s", "lag", "lag_s", "latency_ms_p50", "latency_ms_p99")
_SHORTEST_S, _LONGEST_S = 1.0, 3 * REST_S
"""Growth over a shorter or a longer time than this gives no rate."""

Values = Mapping[str, float | None]
Partition = tuple[str, int]
"""A topic's name, and the partition's number."""


class Subject(NamedTuple):
    """The subject of a measurement: a flow, or a topic of a region."""

    region: str
    """The topic's region, or the flow's target."""
    topic: str = ""
    """Empty for a flow."""
    source: str = ""
    mirror: str = ""

    @property
    def name(self) -> str:
        """The subject's name in tables and legends."""
        return f"{self.region}: {self.topic}" if self.topic else f"{self.source} → {self.region}, {self.mirror}"


class LastHour:
    """Ring buffers of samples that share their times. Not thread-safe.

    Args:
        points: how many samples are kept.
        most: how many subjects are kept; a further one gets room once another was not seen for the whole time.
    """

    def __init__(self, points: int = POINTS, most: int = MOST_SUBJECTS) -> None:
        self._most = most
        self._times = _ring(points)
        self._rings: dict[Subject, dict[str, array[float]]] = {}
        self._seen: dict[Subject, float] = {}
        self._next = 0
        self.marks = Marks()
        """What happened meanwhile."""
        self.samples = 0
        """How many were taken; it changes with each new sample."""
        self.left_out = 0
        """Subjects of the latest sample that did not fit."""

    def add(self, at: float, values: Mapping[Subject, Values]) -> None:
        """Adds a sample.

        Args:
            at: when, in seconds since the epoch.
            values: the measurements of each subject; None where one is unknown.
        """
        for subject in [subject for subject, seen in self._seen.items() if at - seen > KEPT_S]:
            del self._seen[subject], self._rings[subject]
        self.left_out = 0
        for subject in values:
            if subject in self._rings or len(self._rings) < self._most:
                self._rings.setdefault(subject, {})
                self._seen[subject] = at
            else:
                self.left_out += 1
        self._times[self._next] = at
        for subject, rings in self._rings.items():
            measured = values.get(subject, {})
            for measure in MEASURES:
                value = measured.get(measure)
                # A measure that never had a value, such as the lag of an original, takes no memory.
                if value is not None and measure not in rings:
                    rings[measure] = _ring(len(self._times))
                if measure in rings:
                    rings[measure][self._next] = math.nan if value is None else value
        self._next = (self._next + 1) % len(self._times)
        self.samples += 1

    def past(self, wanted: Callable[[Subject], bool], now: float) -> Past:
        """Returns the last hour.

        Args:
            wanted: whether to include a subject.
            now: in seconds since the epoch.
        """
        count = len(self._times)
        slots = [slot % count for slot in range(self._next, self._next + count)]
        slots = [slot for slot in slots if now - self._times[slot] <= KEPT_S]
        return Past(
            times=[round(self._times[slot], 1) for slot in slots],
            series=[
                # Validating each float would take longer than all else.
                Series.model_construct(
                    None,
                    kind="topic" if subject.topic else "flow", region=subject.region, topic=subject.topic,
                    source=subject.source, mirror=subject.mirror,
                    **{measure: _values(rings.get(measure), slots) for measure in MEASURES},
                )
                for subject, rings in sorted(self._rings.items(), key=lambda item: _order(item[0]))
                if wanted(subject)
            ],
            left_out=self.left_out,
        )  # fmt: skip


def _order(subject: Subject) -> tuple[str, ...]:
    """Flows first, by their sources."""
    return subject.topic, subject.source, subject.region, subject.mirror


def _ring(points: int) -> array[float]:
    return array("d", [math.nan]) * points


def _values(ring: array[float] | None, slots: Iterable[int]) -> list[float | None]:
    if ring is None:
        return [None for _ in slots]
    return [None if math.isnan(ring[slot]) else round(ring[slot], 3) for slot in slots]


@dataclass(frozen=True)
class _Grown:
    """Offsets and sizes at one moment."""

    at: float
    offsets: Mapping[Partition, int]
    stored: float | None = None
    firsts: Mapping[Partition, int] = field(default_factory=dict)


class Measuring:
    """Computes rates from the growth between two samples."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, ...], _Grown] = {}

    def values(self, now: Now) -> dict[Subject, Values]:
        """The measurements of a moment; flows first."""
        latest = max((grown.at for grown in self._before.values()), default=0.0)
        self._before = {key: grown for key, grown in self._before.items() if latest - grown.at <= _LONGEST_S}
        firsts = {(topic.region, topic.name): _firsts(topic) for topic in now.topics}
        grown = {(topic.region, topic.name): self._grown(topic, now.read_at[topic.region]) for topic in now.topics}
        found: dict[Subject, Values] = {}
        copies: dict[tuple[str, str], dict[str, float | None]] = {}
        for one in now.flows:
            flow, rates = one.flow, self._copied(one, firsts)
            places = [(flow.target, name) for name in one.copies.values()]
            stored = [rate for place in places if (rate := grown.get(place, (None, None))[1]) is not None]
            found[Subject(flow.target, source=flow.source, mirror=flow.mirror)] = {
                "records_per_s": sum(rates.values()) if rates else None,
                "bytes_per_s": sum(stored) if stored else None,
                "lag": flow.lag,
                "lag_s": _age(flow.lag_s, known=bool(one.dangers)),
                "latency_ms_p50": flow.latency_ms_p50,
                "latency_ms_p99": flow.latency_ms_p99,
            }
            for original, name in one.copies.items():
                danger = one.dangers.get(original)
                copies[flow.target, name] = {
                    "records_per_s": rates.get(original),
                    # From the same reading as the age of the waiting records.
                    "lag": danger.behind if danger else one.connector.lags.get(original) if one.connector else None,
                    "lag_s": _age(danger.age_s if danger else None, known=danger is not None),
                }
        for topic in now.topics:
            place = (topic.region, topic.name)
            copy, (records, stored_) = copies.get(place, {}), grown[place]
            p50, p99 = now.latencies.get(place, (None, None))
            # A copy's own offsets include the markers of its mirror's transactions. Once applications write a former
            # copy, its mirror copies nothing, and the topic's own offsets count.
            found[Subject(*place)] = {
                "records_per_s": copy.get("records_per_s") or records,
                "bytes_per_s": stored_,
                "lag": copy.get("lag"),
                "lag_s": copy.get("lag_s"),
                "latency_ms_p50": p50,
                "latency_ms_p99": p99,
            }
        return found

    def _grown(self, topic: Topic, at: float) -> tuple[float | None, float | None]:
        """Records and bytes a second that were written to a topic."""
        offsets = {(topic.name, p.number): p.end_offset for p in topic.partitions if p.end_offset is not None}
        sizes = [p.bytes / len(p.replicas) for p in topic.partitions if p.bytes is not None and p.replicas]
        firsts = _firsts(topic)
        stored = sum(sizes) if len(sizes) == len(topic.partitions) else None
        if len(offsets) < len(topic.partitions):
            return None, None
        before, seconds = self._passed(("topic", topic.region, topic.name), _Grown(at, offsets, stored, firsts))
        if before is None:
            return None, None
        records = _rate(before.offsets, offsets, firsts, seconds)
        # Deletion by retention hides what was written.
        deleted = any(firsts.get(partition) != first for partition, first in before.firsts.items())
        if deleted or before.stored is None or stored is None:
            return records, None
        return records, max(0.0, stored - before.stored) / seconds

    def _copied(self, one: FlowNow, firsts: Mapping[tuple[str, str], Mapping[Partition, int]]) -> dict[str, float]:
        """Records a second that a flow has copied, by source topic."""
        if one.connector is None:
            return {}
        positions = {(p.topic, p.partition): p.offset + 1 for p in one.connector.positions}
        key = ("flow", one.flow.mirror, one.flow.source, one.flow.target)
        before, seconds = self._passed(key, _Grown(one.at, positions))
        if before is None:
            return {}
        found = {}
        for topic in one.copies:
            copied = {partition: offset for partition, offset in positions.items() if partition[0] == topic}
            rate = _rate(before.offsets, copied, firsts.get((one.flow.source, topic), copied), seconds)
            if rate is not None:
                found[topic] = rate
        return found

    def _passed(self, key: tuple[str, ...], grown: _Grown) -> tuple[_Grown | None, float]:
        """The previous moment, and the seconds since; None where it is too recent or too old for a rate."""
        before = self._before.get(key)
        seconds = grown.at - before.at if before else 0.0
        if before is None or seconds >= _SHORTEST_S:
            self._before[key] = grown
        return (before if _SHORTEST_S <= seconds <= _LONGEST_S else None), seconds


def _rate(
    before: Mapping[Partition, int], now: Mapping[Partition, int], firsts: Mapping[Partition, int], seconds: float
) -> float | None:
    """Growth of offsets a second; a new partition counts from its first offset. None if an offset went back."""
    steps = [offset - before.get(partition, firsts.get(partition, offset)) for partition, offset in now.items()]
    return sum(steps) / seconds if all(step >= 0 for step in steps) else None


def _firsts(topic: Topic) -> dict[Partition, int]:
    return {(topic.name, p.number): p.first_offset for p in topic.partitions if p.first_offset is not None}


def _age(seconds: float | None, *, known: bool) -> float | None:
    """The age of the oldest waiting record: 0 where the state is known and nothing waits."""
    return seconds if seconds is not None else 0.0 if known else None


class Sampler:
    """Takes the samples.

    Args:
        service: where the measurements come from.
        history: where the samples are kept.
        links: the links between the regions, whose changes become marks.
        home: the lab's home, of which a new stage becomes one.
    """

    def __init__(
        self, service: Service, history: LastHour, links: LinkView | None = None, home: Path | None = None
    ) -> None:
        self._service = service
        self._links = links or LinkView(None)
        self._home = home
        self._history = history
        self._measuring = Measuring()

    async def run(self) -> None:
        """Takes samples until it is cancelled: every ten seconds while the console is in use, else every minute."""
        taken = time.monotonic()
        while True:
            await asyncio.sleep(STEP_S)  # until the next one may be due
            looked_at = self._service.looked_at
            if looked_at or time.monotonic() - taken > REST_S - STEP_S / 2:
                taken = time.monotonic()
                try:
                    await self.sample(glance=not looked_at)
                except Exception:  # One failed sample must not stop the next ones; the log has the trace.
                    traceback.print_exc()

    async def sample(self, *, glance: bool) -> None:
        """Takes a sample.

        Args:
            glance: whether to read the regions for it, since no viewer does.
        """
        if glance:
            self._service.glance(GLANCE_S + STEP_S / 2)
            await asyncio.sleep(GLANCE_S)  # while records are read, from which the latency is known
        now = await self._service.flows.now()
        at, marks = time.time(), self._history.marks
        marks.observe(at, states_of([one.flow for one in now.flows], await self._links.all()))
        marks.add(stage_mark(self._home))
        self._history.add(at, self._measuring.values(now))
