"""Time to loss: a mirror's lag, in records and in time, and when the source may have deleted the rest.

MM2 loses records silently when the source's retention overtakes it: it continues where the log begins. Only its
position, compared with that beginning, shows the loss. Retention deletes whole segments, so a loss may come later than
estimated here, and never earlier.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from kafka import TopicPartition

from loosehanger.errors import UnreachableError
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.patches import NO_TIME
from loosehanger.kafka.transactions import WARN_S as OPEN_S
from loosehanger.kafka.transactions import Held
from loosehanger.times import span

WARN_S = 3600.0
"""A loss that can come within this time is warned of by default."""
_READ_S = 3.0
_CONFIGS_S = 30.0
# Only one record of each partition is wanted.
_FETCH = 64 * 1024
_HALF = 0.5
_OVERHEAD = 12
"""What Kafka stores of a record besides key, value and headers, in bytes."""


MADE_AGAIN = (
    "the source ends before the mirror's position: the topic was recreated, or has lost its end. MM2 copies "
    "the new one from its beginning once a fetch fails because its offset is out of range, and nothing "
    "until then; what lies before that offset when the new one has grown beyond it is never copied. Stop the "
    "connector, delete its offsets of this topic (Connect's offsets interface), delete the target's topic, and resume"
)
"""The warning, and the remedy, for a topic that was recreated under a mirror."""


@dataclass(frozen=True)
class PartitionRisk:
    """One partition of a source, and what a mirror has not copied of it."""

    topic: str
    partition: int
    position: int | None
    """The last offset that was copied; None before the first."""
    start: int
    end: int
    behind: int
    """Offsets that are there and not copied; transaction markers among them."""
    age_s: float | None = None
    """How old the oldest record is that has not been copied; None where there is none, or it could not be read."""
    pace: float | None = None
    """Seconds of record time that the mirror copies in a second; below 1 it falls behind. None until it is known."""
    loss_in_s: float | None = None
    """In how many seconds, at the earliest, the source may have deleted what is not copied; None for never."""
    by: str = ""
    """What deletes: ``time`` or ``size``; empty where nothing does."""
    left: float = 1.0
    """How much of what retention allows is left to the mirror, from 0 to 1."""
    gone: int = 0
    """Offsets that were deleted before they were copied: so many records at most."""
    made_again: bool = False
    """The source ends before the mirror's position: this is another topic of the same name, or it has lost its end."""
    oldest: int | None = None
    """The offset of the oldest readable record that has not been copied; None where there is none."""
    unread: bool = False
    """Whether what waits could not be read in time: an earlier look's record stands for it, as long as it waits."""
    held: Held | None = None
    """What an open transaction holds back: no mirror that reads committed records gets it."""
    held_s: float = 0.0
    """For how many seconds the same has been seen to be held back."""

    @property
    def overdue(self) -> bool:
        """Whether a transaction is open for too long."""
        return self.held is not None and (self.held.overdue or self.held_s >= OPEN_S)

    @property
    def lost(self) -> bool:
        """Whether records may be gone for certain."""
        return self.gone > 0

    def endangered(self, within_s: float = WARN_S) -> bool:
        """Whether a loss can come within this time, and half of what retention allows is used up.

        Else a topic that is kept for an hour would be endangered by a record that is on its way.
        """
        return self.loss_in_s is not None and self.loss_in_s <= within_s and self.left <= _HALF


@dataclass(frozen=True)
class _Oldest:
    """The oldest record that is not copied, and how large records are."""

    offset: int
    timestamp_ms: int
    size: float


@dataclass(frozen=True)
class _Look:
    at: float
    end: int
    oldest_ms: int | None


class RetentionReader:
    """Compares mirrors' positions with their source, look after look. For one thread.

    Args:
        cluster: the source, as a user sees it who may read the topics and describe their settings; it is closed with
            this.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._consumer: Any = None
        self._opening: Future[Any] | None = None
        self._looks: dict[tuple[object, TopicPartition], _Look] = {}
        self._read: dict[tuple[object, TopicPartition], _Oldest] = {}
        self._configs: tuple[float, dict[str, dict[str, Any]]] = (0.0, {})
        self._stable: dict[tuple[object, TopicPartition], tuple[int, float]] = {}
        """The last stable offset of each partition that is held back, and since when it is that."""

    def connect_ahead(self) -> None:
        """Opens the connection for reading while the cluster is asked other things: behind an ocean it takes a second.

        If that fails, it is tried again where something is to be read: the cluster may be back by then.
        """
        thread = ThreadPoolExecutor(1)
        self._opening = thread.submit(self._open)
        thread.shutdown(wait=False)

    def _open(self) -> Any:
        return self._cluster.consumer(max_partition_fetch_bytes=_FETCH)

    def close(self) -> None:
        """Ends the connections; the next request makes others."""
        self._cluster.close()
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.add_done_callback(_close_unused)
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Reads the end offset of each partition: before the mirror's positions, to which they then belong.

        Raises:
            UnreachableError: the cluster does not answer, or refuses.
        """
        with self._closing_on_failure():
            return self._cluster.written_offsets(partitions)

    def look(
        self,
        positions: Mapping[TopicPartition, int | None],
        whose: object = "",
        now: float | None = None,
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> list[PartitionRisk]:
        """Measures a mirror's lag, and when it may lose records.

        Args:
            positions: of each partition that it copies the last offset that was copied; None before the first. They
                were asked before this.
            whose: which mirror of this source this is, to find its previous look.
            now: the wall clock, in seconds; with ``ends``, when those were read.
            ends: the partitions' end offsets, read just before the positions: a record that came later does not count
                as waiting. None for a mirror that copies nothing meanwhile, for which all that is there now waits.

        Raises:
            UnreachableError: the cluster does not answer, or refuses.
        """
        with self._closing_on_failure():
            return list(self._look(positions, whose, time.time() if now is None else now, ends or {}))

    @contextmanager
    def _closing_on_failure(self) -> Iterator[None]:
        try:
            yield
        except UnreachableError:
            self.close()
            raise

    def _look(
        self,
        positions: Mapping[TopicPartition, int | None],
        whose: object,
        now: float,
        bounds: Mapping[TopicPartition, int],
    ) -> Iterator[PartitionRisk]:
        starts, latest = self._cluster.start_offsets(positions), self._cluster.written_offsets(positions)
        ends = {place: min(bounds.get(place, end), end) for place, end in latest.items()}
        # Not up to the bounds: those of a consumer of committed records end where an open transaction begins.
        held = {TopicPartition(one.topic, one.partition): one for one in self._cluster.held_back(latest)}
        following = {place: -1 if last is None else last for place, last in positions.items()}
        waiting = {
            place: (max(last + 1, starts[place]), ends[place])
            for place, last in following.items()
            if max(last + 1, starts[place]) < ends[place]
        }
        with self._cluster.reaching():
            oldest, unread = self._oldest(waiting) if waiting else ({}, set())
        for place in positions:
            known = self._read.pop((whose, place), None)
            if place in unread and known is not None and waiting[place][0] <= known.offset < waiting[place][1]:
                oldest[place] = known
            if place in oldest:
                self._read[whose, place] = oldest[place]
        configs = self._settings({place.topic for place in waiting}) if waiting else {}
        for place, position in sorted(positions.items()):
            start, end = starts[place], ends[place]
            first = oldest.get(place)
            # What is not there does not count: the mirror begins where the log did when it saw it first.
            gone = start - position - 1 if position is not None and position + 1 < start else 0
            before = self._looks.get((whose, place))
            timed = first is not None and first.timestamp_ms != NO_TIME
            self._looks[whose, place] = _Look(now, end, first.timestamp_ms if first and timed else None)
            found = PartitionRisk(
                place.topic,
                place.partition,
                position,
                start,
                end,
                behind=end - first.offset if first else 0,
                gone=gone,
                # Only the end that is read after the position can show that.
                made_again=position is not None and position >= latest[place],
                oldest=first.offset if first else None,
                unread=place in unread,
                held=held.get(place),
                held_s=self._held_s((whose, place), held.get(place), now),
            )
            # Retention counts from the time of its segment's file then, which no client can ask for.
            if first is None or not timed:
                yield found
                continue
            yield _timed(found, first, before, configs.get(place.topic, {}), now)

    def _held_s(self, key: tuple[object, TopicPartition], held: Held | None, now: float) -> float:
        """For how long the same has been held back at a place."""
        if held is None:
            self._stable.pop(key, None)
            return 0.0
        stable, since = self._stable.get(key, (-1, now))
        if stable != held.stable:
            since = now
        self._stable[key] = held.stable, since
        return now - since

    def _settings(self, topics: set[str]) -> dict[str, dict[str, Any]]:
        asked, known = self._configs
        if time.monotonic() - asked > _CONFIGS_S or not topics <= known.keys():
            known, _ = self._cluster.described_configs(sorted(topics | known.keys()))
            self._configs = time.monotonic(), known
        return known

    def _oldest(
        self, waiting: Mapping[TopicPartition, tuple[int, int]]
    ) -> tuple[dict[TopicPartition, _Oldest], set[TopicPartition]]:
        """The oldest record of each partition that has one, and the partitions that could not be read in time."""
        if self._consumer is None:
            opening, self._opening = self._opening, None
            self._consumer = opening.result() if opening and not opening.exception() else self._open()
        consumer = self._consumer
        consumer.assign(list(waiting))
        consumer.resume(*waiting)
        for place, (offset, _) in waiting.items():
            consumer.seek(place, offset)
        found: dict[TopicPartition, _Oldest] = {}
        left, deadline = set(waiting), time.monotonic() + _READ_S
        while left and time.monotonic() < deadline:
            for place, batch in consumer.poll(timeout_ms=200).items():
                sizes = [
                    len(record.key or b"") + len(record.value or b"") + _OVERHEAD
                    + sum(len(name) + len(value or b"") for name, value in record.headers or ())
                    for record in batch
                ]  # fmt: skip
                if place in left and batch[0].offset < waiting[place][1]:
                    found[place] = _Oldest(batch[0].offset, batch[0].timestamp, sum(sizes) / len(sizes))
            # Offsets of markers and of aborted records hold nothing that could be copied.
            done = {place for place in left if place in found or consumer.position(place) >= waiting[place][1]}
            left -= done
            consumer.pause(*done)
        return found, left


def _close_unused(opened: Future[Any]) -> None:
    if opened.exception() is None:
        opened.result().close()


def _timed(
    found: PartitionRisk, oldest: _Oldest, before: _Look | None, configs: Mapping[str, Any], now: float
) -> PartitionRisk:
    """With age, pace and the time until retention may have deleted what is not copied."""
    age = max(now - oldest.timestamp_ms / 1000, 0.0)
    passed = now - before.at if before else 0.0
    pace = growth = None
    if before and passed > 0:
        growth = max(found.end - before.end, 0) * oldest.size / passed
        if before.oldest_ms is not None:
            pace = max((oldest.timestamp_ms - before.oldest_ms) / 1000 / passed, 0.0)
    deletes = "delete" in _value(configs, "cleanup.policy", "delete")
    kept_s, kept_bytes = (int(_value(configs, name, "-1")) for name in ("retention.ms", "retention.bytes"))
    losses = []
    if deletes and kept_s >= 0 and (pace or 0.0) < 1:
        room = max(kept_s / 1000 - age, 0.0)
        losses.append((room / (1 - (pace or 0.0)), "time", room * 1000 / max(kept_s, 1)))
    if deletes and kept_bytes >= 0:
        room = kept_bytes - (found.end - oldest.offset) * oldest.size
        if room <= 0:
            losses.append((0.0, "size", 0.0))
        elif growth:
            losses.append((room / growth, "size", room / kept_bytes))
    loss, by, left = min(losses, default=(None, "", 1.0))
    return replace(found, age_s=age, pace=pace, loss_in_s=loss, by=by, left=left)


@dataclass(frozen=True)
class TopicRisk:
    """The risk for a mirror's copy of a topic: that of its worst partition."""

    topic: str
    behind: int
    """Offsets that are there and not copied."""
    age_s: float | None
    loss_in_s: float | None
    by: str
    partition: int | None
    """The one that retention reaches first."""
    pace: float | None
    endangered: bool
    gone: int
    made_again: bool
    held: int = 0
    """Offsets that open transactions hold back, and that are not copied."""
    held_by: str = ""
    """What holds them, in words, once it is open for too long; empty until then."""
    held_s: float = 0.0
    """Seconds for which the same offsets have been seen to be held back."""

    def warnings(self) -> list[str]:
        """One line for each risk; none for a healthy topic."""
        found = []
        if self.gone:
            found.append(f"{self.topic}: {self.gone:,} offsets were deleted before they were copied: they are lost")
        if self.endangered:
            found.append(
                f"{self.topic}: {self.behind:,} offsets behind, the oldest {span(self.age_s)} old; "
                f"the source may delete them by {self.by} in {span(self.loss_in_s)}"
            )
        if self.made_again:
            found.append(f"{self.topic}: {MADE_AGAIN}")
        if self.held_by:
            found.append(
                f"{self.topic}: up to {self.held:,} records are behind the last stable offset and are not copied, "
                f"{self.held_by}"
            )
        return found


def by_topic(risks: Iterable[PartitionRisk], within_s: float = WARN_S) -> dict[str, TopicRisk]:
    """The partitions of each topic together.

    Args:
        risks: as from ``RetentionReader.look``.
        within_s: a loss that can come within this time is a danger.
    """
    of_topic: dict[str, list[PartitionRisk]] = {}
    for one in risks:
        of_topic.setdefault(one.topic, []).append(one)
    return {topic: _together(topic, found, within_s) for topic, found in sorted(of_topic.items())}


def _together(topic: str, found: list[PartitionRisk], within_s: float) -> TopicRisk:
    worst = min((one for one in found if one.loss_in_s is not None), key=lambda one: one.loss_in_s or 0.0, default=None)
    return TopicRisk(
        topic,
        behind=sum(one.behind for one in found),
        age_s=max((one.age_s for one in found if one.age_s is not None), default=None),
        loss_in_s=worst.loss_in_s if worst else None,
        by=worst.by if worst else "",
        partition=worst.partition if worst else None,
        pace=worst.pace if worst else None,
        endangered=any(one.endangered(within_s) for one in found),
        gone=sum(one.gone for one in found),
        made_again=any(one.made_again for one in found),
        held=sum(one.held.offsets for one in found if one.held),
        held_by=next((one.held.by or "by an open transaction" for one in found if one.held and one.overdue), ""),
        held_s=max((one.held_s for one in found if one.held), default=0.0),
    )


def _value(configs: Mapping[str, Any], name: str, default: str) -> str:
    value = configs[name]["value"] if name in configs else None
    return default if value is None else str(value)
