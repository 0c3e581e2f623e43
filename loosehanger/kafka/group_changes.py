"""Resets the offsets of consumer groups, and deletes groups: first a plan, which names each offset, then the change."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafka import IsolationLevel, OffsetSpec, TopicPartition, errors
from kafka.errors import GroupIdNotFoundError, NoError
from kafka.structs import OffsetAndMetadata

from loosehanger.errors import WrongUseError
from loosehanger.kafka.changes import Counted, Move, MovedError, PlannedMove, Target
from loosehanger.kafka.clients import HURRIED, connect_consumer
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.topic_changes import refusals

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

WITHOUT_MEMBERS = ("Empty", "Dead")
MOST_COUNTED = 200_000
"""Records that are read at most to count them."""
COUNTING_S = 5.0
"""Seconds for it at most."""


def plan_reset(
    admin: KafkaAdminClient, where: str, group: str, to: Target, topic: str = "", partition: int | None = None
) -> list[PlannedMove]:
    """Plans a reset of a group's offsets, and changes nothing.

    Args:
        admin: a client of a user who may describe the group and its topics.
        where: the cluster, for messages.
        group: its id.
        to: where it should continue. An offset outside of a partition means the nearer end of it, and a time behind the
            last record the end.
        topic: this topic only, with all its partitions; empty for the partitions that the group has committed.
        partition: this one only.

    Returns:
        A move for each partition, in order.

    Raises:
        WrongUseError: there is no such group, topic or partition, or the group does not consist of consumers.
        KafkaError: the cluster does not answer, or refuses.
    """
    check_consumers(admin, where, group)
    before = committed(admin, group)
    if topic:
        with refusals(f"{where}: {topic}", "describe the topic"):
            (found,) = admin.describe_topics([topic])
        places = [TopicPartition(topic, one["partition_index"]) for one in found["partitions"]]
        if found["error_code"] or not places:
            raise WrongUseError(f"{where}: there is no topic '{topic}'")
    else:
        present = {one["name"] for one in admin.describe_topics() if not one["error_code"]}
        places = [place for place in before if place.topic in present]
    chosen = sorted(place for place in places if partition is None or place.partition == partition)
    if not chosen:
        what = f"partition {partition}" if partition is not None else "an offset that it has committed"
        raise WrongUseError(f"{where}: {group}: there is no {what} to reset; name a topic, or another partition")
    first, end = _ends(admin, chosen)
    at = _at(admin, chosen, to, first, end)
    return [
        PlannedMove(Move(place.topic, place.partition, before.get(place), at[place]), first[place], end[place])
        for place in chosen
    ]


def reset(admin: KafkaAdminClient, where: str, group: str, moves: Sequence[Move]) -> None:
    """Commits offsets in place of a group's own, if they are still those of the plan.

    Args:
        admin: a client of a user with Read on the group and its topics.
        where: the cluster, for messages.
        group: its id; it must have no member.
        moves: as planned.

    Raises:
        MovedError: the group has committed other offsets meanwhile.
        WrongUseError: the group has members, an offset is outside of its partition, or Kafka refuses.
        KafkaError: the cluster does not answer.
    """
    check_consumers(admin, where, group)
    check_idle(admin, where, group)
    before = committed(admin, group)
    wanted = {TopicPartition(move.topic, move.partition): move for move in moves}
    for place, move in wanted.items():
        if before.get(place) != move.committed:
            raise MovedError(
                f"{where}: {group} is at {_shown(before.get(place))} in {place.topic}-{place.partition} and not at "
                f"{_shown(move.committed)}, as in the preview; look at the preview again"
            )
    with refusals(f"{where}: {group}", "reset the group"):
        first, end = _ends(admin, wanted)
    for place, move in wanted.items():
        if not first[place] <= move.to <= end[place]:
            raise WrongUseError(
                f"{where}: {place.topic}-{place.partition} has no offset {move.to}; choose one from {first[place]} to "
                f"{end[place]}"
            )
    with refusals(f"{where}: {group}", "reset the group"):
        kept = {place: OffsetAndMetadata(move.to, "", -1) for place, move in wanted.items()}
        for error in admin.alter_group_offsets(group, kept).values():
            if error is not NoError:
                raise error


def delete_group(admin: KafkaAdminClient, where: str, group: str) -> None:
    """Deletes a group with its committed offsets.

    Args:
        admin: a client of a user with Delete on the group.
        where: the cluster, for messages.
        group: its id; it must have no member.

    Raises:
        WrongUseError: there is no such group, it has members, or Kafka refuses.
        KafkaError: the cluster does not answer.
    """
    check_consumers(admin, where, group)
    check_idle(admin, where, group)
    with refusals(f"{where}: {group}", "delete the group"):
        # kafka-python names the error, and does not give it.
        for name in admin.delete_groups([group]).values():
            if name != "OK":
                raise getattr(errors, name)


def count(connection: Connection, moves: Iterable[PlannedMove]) -> Counted | None:
    """Counts the committed records that moves make a group read again and skip: markers take offsets, too.

    Args:
        connection: the way into the cluster of a user who may read the topics.
        moves: as planned.

    Returns:
        None where they are too many to count.

    Raises:
        KafkaError: the cluster does not answer, or refuses.
    """
    known = list(moves)
    again = _count(connection, {_place(one): one.again for one in known})
    skipped = None if again is None else _count(connection, {_place(one): one.skipped for one in known})
    return None if again is None or skipped is None else Counted(again, skipped)


def check_consumers(admin: KafkaAdminClient, where: str, group: str) -> None:
    """Checks that a group exists and is one of consumers: a mirror's workers keep their positions elsewhere.

    Raises:
        WrongUseError: it is not.
        KafkaError: the cluster does not answer.
    """
    kinds = {one["group_id"]: one["protocol_type"] for one in admin.list_groups()}
    if group not in kinds:
        raise WrongUseError(f"{where}: there is no group '{group}'")
    if kinds[group] not in ("consumer", ""):
        raise WrongUseError(
            f"{where}: {group} is a group of kind {kinds[group]}, and not of consumers; use its own tools"
        )


def check_idle(admin: KafkaAdminClient, where: str, group: str) -> None:
    """Checks that a group has no member: its consumers would commit their own offsets over others.

    Raises:
        WrongUseError: it has.
        KafkaError: the cluster does not answer.
    """
    try:
        found = admin.describe_groups([group])[group]
    except GroupIdNotFoundError as error:
        raise WrongUseError(f"{where}: there is no group '{group}'") from error
    except ValueError as error:  # Of a member whose metadata cannot be decoded.
        raise WrongUseError(f"{where}: {group} has members; stop its consumers first") from error
    members = len(found["members"])
    if members or found["group_state"] not in WITHOUT_MEMBERS:
        named = f"{members} {'member' if members == 1 else 'members'}"
        raise WrongUseError(
            f"{where}: {group} has {named} and is {found['group_state'].lower()}; stop its consumers first"
        )


def committed(admin: KafkaAdminClient, group: str) -> dict[TopicPartition, int]:
    """The offsets that a group has committed.

    Raises:
        KafkaError: the cluster does not answer, or refuses.
    """
    found = admin.list_group_offsets({group: None})[group]
    return {place: kept.offset for place, kept in found.items() if kept.offset >= 0}


def _ends(
    admin: KafkaAdminClient, places: Collection[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """First and last stable offset of each partition."""
    first, end = (
        {
            place: found.offset
            for place, found in admin.list_partition_offsets(
                dict.fromkeys(places, spec), isolation_level=IsolationLevel.READ_COMMITTED
            ).items()
        }
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
    )
    return first, end


def _at(
    admin: KafkaAdminClient,
    places: Collection[TopicPartition],
    to: Target,
    first: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    if to.kind == "earliest":
        return dict(first)
    if to.kind == "latest":
        return dict(end)
    if to.kind == "offset":
        return {place: min(max(to.value, first[place]), end[place]) for place in places}
    found: Any = admin.list_partition_offsets(
        dict.fromkeys(places, max(0, to.value)), isolation_level=IsolationLevel.READ_COMMITTED
    )
    # Behind the last record of that time or later there is none.
    return {
        place: end[place] if found[place].offset < 0 else min(max(found[place].offset, first[place]), end[place])
        for place in places
    }


def _place(planned: PlannedMove) -> TopicPartition:
    return TopicPartition(planned.move.topic, planned.move.partition)


def _count(connection: Connection, ranges: Mapping[TopicPartition, range]) -> int | None:
    """The committed records of these offsets; None for too many."""
    left = {place: offsets for place, offsets in ranges.items() if offsets}
    if sum(map(len, left.values())) > MOST_COUNTED:
        return None
    if not left:
        return 0
    counted, until = 0, time.monotonic() + COUNTING_S
    consumer = connect_consumer(connection, HURRIED, client_id="lab-console-count")
    try:
        consumer.assign(list(left))
        for place, offsets in left.items():
            consumer.seek(place, offsets.start)
        while left:
            if time.monotonic() > until:
                return None
            for place, batch in consumer.poll(200).items():
                if place in left:
                    counted += sum(record.offset in left[place] for record in batch)
            for place in [one for one, offsets in left.items() if consumer.position(one) >= offsets.stop]:
                del left[place]
                consumer.pause(place)
        return counted
    finally:
        consumer.close()


def _shown(offset: int | None) -> str:
    return "no offset" if offset is None else f"offset {offset}"
