"""Reads the records of partitions: between offsets, or from their ends backwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from kafka import TopicPartition
from kafka.errors import KafkaError

from loosehanger.errors import LabError
from loosehanger.kafka.clients import USUAL
from loosehanger.kafka.patches import UnreadableError

_FIRST_STEP = 16
"""How many offsets before a partition's end are read first to find its last record."""
_STEPS_GROW = 16
_AT_ONCE = 2000
"""How many partitions one consumer reads at a time: a request for all of them, and records of all in memory."""
_MOST_NAMES = 10
_SILENT_S = 15.0
"""Seconds without a record after which reading fails, where records remain."""


def read_between(
    consumer: Any, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], where: str
) -> Iterator[Any]:
    """Reads the records between offsets.

    Args:
        consumer: the consumer; its assignment is changed.
        starts: the first offset of each partition; 0 where it is left out.
        ends: the end of each partition, which is behind its start.
        where: the cluster's name, for messages.

    Raises:
        LabError: for 15 s no partition has moved.
    """
    left = dict(ends)
    consumer.assign(list(left))
    for part in left:
        consumer.seek(part, starts.get(part, 0))
    at: dict[TopicPartition, int] = {}
    moved = time.monotonic()
    while left:
        for part, batch in consumer.poll(200).items():
            yield from (record for record in batch if record.offset < ends[part])
            moved = time.monotonic()
        before, at = at, {part: consumer.position(part) for part in left}
        left = {part: end for part, end in left.items() if at[part] < end}
        # A consumer waits forever for a partition without a leader.
        if at != before:
            moved = time.monotonic()
        elif time.monotonic() >= moved + _SILENT_S:
            part = next(iter(left))
            raise LabError(
                f"{where}: {part.topic}-{part.partition}: no record received for {_SILENT_S:.0f} s, "
                f"from offset {at[part]}"
            )


def read_from_ends(
    consumer: Any,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    deadline: float,
    take: Callable[[TopicPartition, Collection[Any]], None],
    enough: Callable[[TopicPartition, bool], bool],
    first_step: int = _FIRST_STEP,
) -> dict[TopicPartition, str]:
    """Reads partitions from their ends in ever larger steps, until enough was read of each, or all of it.

    Args:
        consumer: the consumer; its assignment is changed.
        ranges: first offset and end of each partition.
        deadline: of the monotonic clock.
        take: takes the records as they come; of a batch, the last ones may be beyond the end.
        enough: whether enough was read of a partition. The second argument says whether a step is complete.
        first_step: how many offsets from the end are read at first.

    Returns:
        The inconclusive partitions, with the reason; an empty one if the time was up.
    """
    unread: dict[TopicPartition, str] = {}
    places = list(ranges)
    for first in range(0, len(places), _AT_ONCE):
        chunk = {place: ranges[place] for place in places[first : first + _AT_ONCE]}
        unread |= _read_chunk(consumer, chunk, deadline, take, enough, first_step)
    return unread


def _read_chunk(
    consumer: Any,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    deadline: float,
    take: Callable[[TopicPartition, Collection[Any]], None],
    enough: Callable[[TopicPartition, bool], bool],
    first_step: int,
) -> dict[TopicPartition, str]:
    unread: dict[TopicPartition, str] = {}
    places = list(ranges)
    # What is being read of each partition.
    reading = {place: (max(start, end - first_step), end) for place, (start, end) in ranges.items() if start < end}
    try:
        consumer.assign(list(reading))
        # One that was assigned before and paused stays so.
        consumer.resume(*reading)
        for place, (begin, _) in reading.items():
            consumer.seek(place, begin)
        while reading and time.monotonic() < deadline:
            try:
                for place, batch in consumer.poll(timeout_ms=200).items():
                    take(place, batch)
            except UnreadableError as error:
                # The others of the consumer can be read as before.
                unread[error.place] = str(error)
                reading.pop(error.place, None)
                consumer.pause(error.place)
            for place, (begin, until) in list(reading.items()):
                position = consumer.position(place, timeout_ms=_left_ms(deadline))
                whole = position is not None and position >= until
                start, end = ranges[place]
                if enough(place, whole) or (whole and begin <= start):
                    del reading[place]
                    consumer.pause(place)
                elif whole:
                    reading[place] = (max(start, end - (end - begin) * _STEPS_GROW), begin)
                    consumer.seek(place, reading[place][0])
    except (KafkaError, ValueError) as error:
        if len(ranges) == 1:
            return {place: f"{type(error).__name__}: {error}" for place in ranges}
        # The client does not say which of them it cannot read.
        for half in (places[: len(places) // 2], places[len(places) // 2 :]):
            part = {place: ranges[place] for place in half}
            unread |= _read_chunk(consumer, part, deadline, take, enough, first_step)
        return unread
    return unread | dict.fromkeys(reading, "")


def _left_ms(deadline: float) -> int:
    return max(1, min(round(USUAL.answer_s * 1000), round((deadline - time.monotonic()) * 1000)))


def named(partitions: Iterable[TopicPartition]) -> str:
    """Names partitions in a message: ten of them, and how many more."""
    return some_of(f"{place.topic}-{place.partition}" for place in sorted(partitions))


def some_of(names: Iterable[str]) -> str:
    """The first ten names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - _MOST_NAMES:,} more" if len(listed) > _MOST_NAMES else ""
    return ", ".join(listed[:_MOST_NAMES]) + more
