"""Changes of topics, records, groups, connectors and links: bounded in size and rate, and each in the change log."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from loosehanger.console.change_log import ChangeLog
from loosehanger.console.cluster import ClusterView
from loosehanger.console.links import LinkView
from loosehanger.console.mirrors import Action
from loosehanger.console.models import LinkChange
from loosehanger.console.operation_models import (
    MOST_MOVES,
    DeletedPart,
    GroupReset,
    NewTopic,
    PlannedMoveOf,
    RecordDeletion,
    ResetPreview,
    User,
    UserRight,
    Users,
)
from loosehanger.console.region_views import RegionView
from loosehanger.console.service import Service
from loosehanger.console.settings import Settings
from loosehanger.errors import UnreachableError, WrongUseError
from loosehanger.kafka.changes import Counted, Move, PlannedMove, Target
from loosehanger.times import moment

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

MOST_A_MINUTE = 30
"""Changes in a minute, of all users of a console together."""
COUNTING = 2
"""Previews whose records are counted at a time."""


class TooManyError(WrongUseError):
    """Too many changes in a minute."""


class Operations:
    """Changes topics, records, groups, connectors and links. The routes check the session, its token and the switch.

    Args:
        settings: the console's.
        service: the regions' data.
        links: the links between the regions.
        log: where each change is listed with its outcome.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        settings: Settings,
        service: Service,
        links: LinkView,
        log: ChangeLog,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._links = links
        self._by_resource = settings.by_resource
        self._connections = {region.name: region.connection for region in settings.regions}
        self._service = service
        self._log = log
        self._clock = clock
        self._latest: deque[float] = deque(maxlen=MOST_A_MINUTE)
        self._counting = asyncio.Semaphore(COUNTING)

    async def change_settings(self, user: str, region: str, topic: str, changes: Mapping[str, str | None]) -> str:
        """Changes settings of a topic; returns the outcome as a sentence.

        Raises:
            LabError: they cannot be changed.
        """

        async def change() -> str:
            return await self._service.topics.change(region, topic, changes)

        return await self._recorded(user, region, "change settings", topic, change, self.why_not(region, topic))

    async def act(self, user: str, region: str, mirror: str, connector: str, action: Action) -> str:
        """Pauses, resumes or restarts a connector; returns the outcome as a sentence.

        Raises:
            LabError: it cannot be done.
        """

        async def request() -> str:
            outcome = await self._service.mirrors.act(region, mirror, connector, action)
            return f"{outcome}. Connect applies it within seconds"

        why_not = self.why_not_act(region, mirror, action)
        return await self._recorded(user, region, f"{action} connector", connector, request, why_not)

    async def change_link(self, user: str, one: str, other: str, change: LinkChange) -> str:
        """Changes a link; returns its new state as a sentence.

        Raises:
            LabError: it cannot be changed.
        """

        async def set_link() -> str:
            return await self._links.change(one, other, change)

        return await self._recorded(user, "", "change link", f"{one}, {other}", set_link)

    async def create_topic(self, user: str, region: str, wanted: NewTopic) -> str:
        """Creates a topic; returns the outcome as a sentence.

        Raises:
            LabError: it cannot be created.
        """

        def create(admin: KafkaAdminClient) -> str:
            from loosehanger.kafka.topic_changes import create_topic

            create_topic(admin, region, wanted.name, wanted.partitions, wanted.settings)
            return f"{region}: {wanted.name} is created, with {_partitions(wanted.partitions)}"

        return await self._change(user, region, "create topic", wanted.name, create, self.why_not(region, wanted.name))

    async def add_partitions(self, user: str, region: str, topic: str, count: int) -> str:
        """Adds partitions to a topic, up to a number; returns the outcome as a sentence.

        Raises:
            LabError: they cannot be added.
        """

        def add(admin: KafkaAdminClient) -> str:
            from loosehanger.kafka.topic_changes import add_partitions

            add_partitions(admin, region, topic, count)
            return f"{region}: {topic} has {_partitions(count)}"

        return await self._change(user, region, "add partitions", topic, add, self.why_not(region, topic))

    async def delete_topic(self, user: str, region: str, topic: str) -> str:
        """Deletes a topic; returns the outcome as a sentence.

        Raises:
            LabError: it cannot be deleted.
        """

        def delete(admin: KafkaAdminClient) -> str:
            from loosehanger.kafka.topic_changes import delete_topic

            delete_topic(admin, region, topic)
            return f"{region}: {topic} is deleted"

        return await self._change(user, region, "delete topic", topic, delete, self.why_not(region, topic))

    async def preview_deletion(self, region: str, topic: str, partition: str, before: str) -> list[DeletedPart]:
        """Lists what a deletion of records would do to each partition.

        Args:
            region: a region of this console.
            topic: its name.
            partition: a number; empty for all.
            before: the first offset that stays; empty for the end. In a partition that ends earlier, its end.

        Raises:
            LabError: a number is invalid, there is no such region, topic or partition, or no broker answers.
        """
        number, offset = _number("partition", partition), _number("offset", before)
        found = next((one for one in await self._cluster(region).topics() if one.name == topic), None)
        if found is None:
            raise WrongUseError(f"{region} has no topic '{topic}'")
        parts = []
        for one in found.partitions:
            if number in (None, one.number) and one.first_offset is not None and one.end_offset is not None:
                stays = one.end_offset if offset is None else min(offset, one.end_offset)
                gone = max(0, stays - one.first_offset)
                parts.append(
                    DeletedPart(
                        partition=one.number, first=one.first_offset, end=one.end_offset,
                        before=one.first_offset + gone, offsets=gone,
                    )
                )  # fmt: skip
        if not parts:
            raise WrongUseError(f"{region}: {topic} has no partition {partition}")
        return parts

    async def delete_records(self, user: str, region: str, topic: str, wanted: RecordDeletion) -> str:
        """Deletes the records before an offset of each partition; returns the outcome as a sentence.

        Raises:
            LabError: they cannot be deleted.
        """

        def delete(admin: KafkaAdminClient) -> str:
            from loosehanger.kafka.topic_changes import delete_records

            first = delete_records(admin, region, topic, wanted.before)
            now = ", ".join(f"{partition} begins at offset {offset}" for partition, offset in sorted(first.items()))
            return f"{region}: {topic}: records are deleted; partition {now}"

        return await self._change(user, region, "delete records", topic, delete, _why_not_internal(region, topic))

    async def preview_reset(
        self, region: str, group: str, to: str, topic: str = "", partition: str = ""
    ) -> ResetPreview:
        """Lists what a reset of a group would do, and counts the records that it would read again or skip.

        Args:
            region: a region of this console.
            group: its id.
            to: ``earliest``, ``latest``, an offset, a time in ISO 8601, or how long ago, as in ``10m``.
            topic: this topic only; empty for the partitions that the group has committed.
            partition: this one only; empty for all.

        Raises:
            LabError: the input is invalid, there is no such group, or no broker answers.
        """
        target, number = read_target(to), _number("partition", partition)

        def plan(admin: KafkaAdminClient) -> tuple[list[PlannedMove], str]:
            from loosehanger.kafka.group_changes import plan_reset

            return plan_reset(admin, region, group, target, topic, number), _why_active(admin, region, group)

        moves, refused = await self._cluster(region).ask(plan)
        if len(moves) > MOST_MOVES:
            raise WrongUseError(
                f"{region}: {group} has {len(moves)} partitions, at most {MOST_MOVES} can be reset; name a topic"
            )
        async with self._counting:
            counted = await asyncio.to_thread(self._count, region, moves)
        return _preview(region, group, to, moves, counted, refused)

    async def committed(self, region: str, group: str) -> tuple[dict[tuple[str, int], int], str]:
        """The offsets that a group has committed, and why it cannot be deleted now; empty if it can.

        Raises:
            LabError: there is no such region or group, it is not one of consumers, or no broker answers.
        """

        def read(admin: KafkaAdminClient) -> tuple[dict[tuple[str, int], int], str]:
            from loosehanger.kafka.group_changes import check_consumers, committed

            check_consumers(admin, region, group)
            found = {(place.topic, place.partition): at for place, at in sorted(committed(admin, group).items())}
            return found, _why_active(admin, region, group)

        return await self._cluster(region).ask(read)

    def _count(self, region: str, moves: Sequence[PlannedMove]) -> Counted | None:
        from kafka.errors import KafkaError

        from loosehanger.kafka.group_changes import count

        try:
            return count(self._connections[region], moves)
        except (KafkaError, OSError, ValueError):
            return None  # The offsets are known all the same.

    async def reset(self, user: str, region: str, wanted: GroupReset) -> str:
        """Commits the offsets of a preview; returns the outcome as a sentence.

        Raises:
            LabError: the group has moved or is active, an offset is not there, or Kafka refuses.
        """
        moves = [Move(move.topic, move.partition, move.committed, move.to) for move in wanted.moves]

        def reset_group(admin: KafkaAdminClient) -> str:
            from loosehanger.kafka.group_changes import reset

            reset(admin, region, wanted.group, moves)
            return f"{region}: {wanted.group} is reset in {_partitions(len(moves))}"

        return await self._change(user, region, "reset group", wanted.group, reset_group)

    async def delete_group(self, user: str, region: str, group: str) -> str:
        """Deletes a group; returns the outcome as a sentence.

        Raises:
            LabError: it cannot be deleted.
        """

        def delete(admin: KafkaAdminClient) -> str:
            from loosehanger.kafka.group_changes import delete_group

            delete_group(admin, region, group)
            return f"{region}: {group} is deleted, with its committed offsets"

        return await self._change(user, region, "delete group", group, delete)

    async def users(self) -> Users:
        """The users of every region, with their rights."""

        async def of(region: RegionView) -> list[User]:
            return await region.cluster.ask(lambda admin: _users(region.name, admin))

        found, problems = await self._service.everywhere(of)
        return Users(users=[user for users in found for user in users], problems=problems)

    def why_not_act(self, region: str, mirror: str, action: Action) -> str:
        """Why a connector cannot be paused, resumed or restarted here; empty if it can."""
        if self._by_resource and action != "restart":
            return (
                f"{region}: mirrors are KafkaMirrorMaker2 resources here, and their operator undoes other changes; set "
                f"the connector's state there, for example: kubectl -n {region} edit kafkamirrormaker2 {mirror}"
            )
        return ""

    def why_not(self, region: str, topic: str) -> str:
        """Why a topic cannot be created, changed, grown or deleted here; empty if it can."""
        if self._by_resource:
            return (
                f"{region}: topics are KafkaTopic resources here, and their operator undoes other changes; change the "
                f"resource, for example: kubectl -n {region} edit kafkatopic {topic.lower()}"
            )
        return _why_not_internal(region, topic)

    def count_change(self) -> None:
        """Counts a change.

        Raises:
            TooManyError: there were too many in the last minute.
        """
        now = self._clock()
        if len(self._latest) == MOST_A_MINUTE and now - self._latest[0] < 60:
            raise TooManyError(f"more than {MOST_A_MINUTE} changes in a minute; wait a moment, and try again")
        self._latest.append(now)

    async def _change(
        self,
        user: str,
        region: str,
        action: str,
        subject: str,
        work: Callable[[KafkaAdminClient], str],
        why_not: str = "",
    ) -> str:
        async def change() -> str:
            return await self._cluster(region).operate(work)

        return await self._recorded(user, region, action, subject, change, why_not)

    async def _recorded(
        self,
        user: str,
        region: str,
        action: str,
        subject: str,
        work: Callable[[], Awaitable[str]],
        why_not: str = "",
    ) -> str:
        """Makes a change unless there were too many or it is refused, and adds it to the change log."""
        self.count_change()

        async def change() -> str:
            if why_not:
                raise WrongUseError(why_not)
            return await work()

        return await self._log.record(user, region, action, subject, change())

    def _cluster(self, region: str) -> ClusterView:
        chosen = self._service.region(region)
        if closed := self._service.closed(region):
            raise UnreachableError(closed)
        return chosen.cluster


def read_target(text: str) -> Target:
    """Reads where a group should continue: ``earliest``, ``latest``, an offset, a time, or how long ago.

    Raises:
        WrongUseError: it is not one of these.
    """
    given = text.strip()
    if given == "earliest":
        return Target("earliest")
    if given == "latest":
        return Target("latest")
    if given.isascii() and given.isdecimal() and len(given) <= 18:
        return Target("offset", int(given))
    try:
        return Target("time", round(moment(given, datetime.now(UTC)).timestamp() * 1000))
    except (ValueError, OverflowError) as error:
        raise WrongUseError(
            f"'{text[:100]}' is not where a group can continue; give earliest, latest, an offset such as 17, how long "
            "ago such as 10m, or a time such as 2026-01-31T12:00"
        ) from error


def _why_active(admin: KafkaAdminClient, region: str, group: str) -> str:
    from loosehanger.kafka.group_changes import check_idle

    try:
        check_idle(admin, region, group)
    except WrongUseError as error:
        return str(error)
    return ""


def _users(region: str, admin: KafkaAdminClient) -> list[User]:
    from loosehanger.acls import named_operation
    from loosehanger.kafka.acls import read_rules

    known = {
        name: sorted(one["mechanism"].name.replace("_", "-") for one in found["credential_infos"])
        for name, found in admin.describe_user_scram_credentials().items()
    }
    rules: dict[str, dict[tuple[str, str, bool], set[str]]] = {name: {} for name in known}
    for rule in read_rules(admin):
        name = rule.principal.removeprefix("User:")
        place = rule.kind, f"{rule.name}*" if rule.prefix else rule.name, rule.allows
        rules.setdefault(name, {}).setdefault(place, set()).add(named_operation(rule.operation))
    return [
        User(
            region=region, name=name, mechanisms=known.get(name, []),
            acls=[
                UserRight(kind=kind, name=of, operations=sorted(operations), allows=allows)
                for (kind, of, allows), operations in sorted(found.items())
            ],
        )
        for name, found in sorted(rules.items())
    ]  # fmt: skip


def _preview(
    region: str, group: str, to: str, moves: Sequence[PlannedMove], counted: Counted | None, refused: str
) -> ResetPreview:
    return ResetPreview(
        region=region,
        group=group,
        to=to,
        moves=[
            PlannedMoveOf(
                **one.move._asdict(), first=one.first, end=one.end, again=len(one.again), skipped=len(one.skipped)
            )
            for one in moves
        ],
        again=sum(len(one.again) for one in moves),
        skipped=sum(len(one.skipped) for one in moves),
        records_again=counted.again if counted else None,
        records_skipped=counted.skipped if counted else None,
        refused=refused,
    )


def _why_not_internal(region: str, topic: str) -> str:
    if topic.startswith(("__", "mm2-")) or topic.endswith(".internal") or topic in (".", ".."):
        return f"{region}: {topic} is an internal topic of Kafka or of a mirror, and is not changed here"
    return ""


def _number(name: str, text: str) -> int | None:
    given = text.strip()
    if given and not (given.isascii() and given.isdecimal() and int(given) < 2**63):
        raise WrongUseError(f"{name}: '{text[:40]}' is not a number, for example 17")
    return int(given) if given else None


def _partitions(count: int) -> str:
    return f"{count} {'partition' if count == 1 else 'partitions'}"
