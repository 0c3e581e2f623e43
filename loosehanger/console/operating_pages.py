"""The pages for changes of topics, records and groups: a form, a page that asks once, and the change."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel, Field, ValidationError

from loosehanger.console.api import ContextOf, MirrorName, RegionName, SessionOf
from loosehanger.console.configuration import configuration_of
from loosehanger.console.confirming import (
    ASKED,
    Region,
    RegionField,
    Topic,
    TopicField,
    compared,
    confirm,
    made,
    topic_page,
)
from loosehanger.console.context import Context
from loosehanger.console.formats import thousands
from loosehanger.console.operation_models import (
    MOST_GROUP_NAME,
    GroupReset,
    NewTopic,
    PartitionCount,
    RecordDeletion,
    ResetPreview,
)
from loosehanger.console.pages import MAY, page
from loosehanger.errors import LabError, WrongUseError

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
MOST_FORM = 40_000
"""Characters of a form's field: a longer one would not fit into a request."""
GroupOf = Annotated[str, Field(max_length=MOST_GROUP_NAME)]
Short = Annotated[str, Field(max_length=40)]
LongField = Annotated[str, Form(max_length=MOST_FORM)]


def read_settings(text: str) -> dict[str, str]:
    """Reads settings, each as ``name=value`` on a line of its own.

    Raises:
        WrongUseError: a line is not one.
    """
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, separator, value = line.partition("=")
        if not separator or not value.strip():
            raise WrongUseError(
                f"'{line[:100]}' is not a setting; write one on each line, for example retention.ms=3600000"
            )
        found[name.strip()] = value.strip()
    return found


def _why(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg'].lower()}" for one in error.errors()[:3])


class NewTopicForm(BaseModel):
    """A topic to create."""

    region: Region
    name: Topic
    partitions: Short = "3"
    settings: Annotated[str, Field(max_length=4000)] = ""

    def topic(self) -> NewTopic:
        """The topic.

        Raises:
            WrongUseError: it cannot be created as it is.
        """
        given = {"name": self.name.strip(), "partitions": self.partitions, "settings": read_settings(self.settings)}
        try:
            return NewTopic.model_validate(given)
        except ValidationError as error:
            raise WrongUseError(f"the topic cannot be created: {_why(error)}") from error


class PartitionsForm(BaseModel):
    """How many partitions a topic must have."""

    region: Region
    topic: Topic
    partitions: Short

    def count(self) -> int:
        """The number.

        Raises:
            WrongUseError: it is not one, or too large.
        """
        try:
            return PartitionCount.model_validate({"partitions": self.partitions}).partitions
        except ValidationError as error:
            raise WrongUseError(f"partitions cannot be added: {_why(error)}") from error


@router.get("/confirm/create-topic", dependencies=ASKED)
async def ask_create_topic(context: ContextOf, session: SessionOf, asked: Annotated[NewTopicForm, Query()]) -> Response:
    """Asks whether to create a topic."""
    context.service.region(asked.region)
    wanted = asked.topic()
    copying = context.service.topics.copying(asked.region, wanted.name)
    facts = [f"Partitions: {wanted.partitions}", *(f"{key} = {value}" for key, value in wanted.settings.items())]
    warnings = [f"The mirror {one.name} copies it to {one.target}, under its policy, within seconds" for one in copying]
    return await confirm(
        context, session, f"Create {wanted.name} in {asked.region}?", "/operate/create-topic", "Create", "/topics",
        asked.model_dump(), facts=facts, warnings=warnings,
        refused=context.operations.why_not(asked.region, wanted.name),
    )  # fmt: skip


@router.post("/operate/create-topic", dependencies=MAY)
async def create_topic(context: ContextOf, session: SessionOf, form: Annotated[NewTopicForm, Form()]) -> Response:
    """Creates it."""
    wanted = form.topic()
    work = context.operations.create_topic(session.user, form.region, wanted)
    return await made(context, session, work, topic_page(wanted.name), "/topics")


@router.get("/confirm/add-partitions", dependencies=ASKED)
async def ask_add_partitions(
    context: ContextOf, session: SessionOf, asked: Annotated[PartitionsForm, Query()]
) -> Response:
    """Asks whether to add partitions."""
    region, topic = asked.region, asked.topic
    count, now = asked.count(), await _partitions(context, region, topic)
    copying = context.service.topics.copying(region, topic)
    warnings = [
        "Kafka never takes a partition away again",
        "A key may go to another partition than before: the order of a key's records is lost across the change",
        *(f"The mirror {one.name} adds them to its copy in {one.target}" for one in copying),
    ]
    refused = context.operations.why_not(region, topic)
    if count <= now:
        refused = f"{region}: {topic} has {now} partitions; choose more"
    return await confirm(
        context, session, f"Add partitions to {topic} in {region}?", "/operate/add-partitions", "Add",
        topic_page(topic), asked.model_dump(),
        table=compared(topic, [("Partitions", str(now), str(count))]), warnings=warnings, refused=refused,
    )  # fmt: skip


async def _partitions(context: Context, region: str, topic: str) -> int:
    found = await context.service.region(region).cluster.topics()
    of = next((len(one.partitions) for one in found if one.name == topic), None)
    if of is None:
        raise WrongUseError(f"{region} has no topic '{topic}'")
    return of


@router.post("/operate/add-partitions", dependencies=MAY)
async def add_partitions(context: ContextOf, session: SessionOf, form: Annotated[PartitionsForm, Form()]) -> Response:
    """Adds them."""
    work = context.operations.add_partitions(session.user, form.region, form.topic, form.count())
    return await made(context, session, work, topic_page(form.topic), topic_page(form.topic))


@router.get("/confirm/delete-topic", dependencies=ASKED)
async def ask_delete_topic(context: ContextOf, session: SessionOf, region: Region, topic: Topic) -> Response:
    """Asks whether to delete a topic."""
    chosen = context.service.region(region)
    topics = (await context.service.topics.every()).topics
    found = next((one for one in topics if (one.region, one.name) == (region, topic)), None)
    if found is None:
        raise WrongUseError(f"{region} has no topic '{topic}'")
    groups = [one.name for one in await chosen.cluster.groups() if any(row.topic == topic for row in one.partitions)]
    warnings = ["Its records cannot be brought back", "If a manifest has it, the next set-up creates it again, empty"]
    if found.mirror:
        warnings.append(f"The mirror {found.mirror} writes it: it creates the topic again, without the records so far")
    warnings += [
        f"The mirror {one.name} copies it to {one.target}: the copy stays, and the mirror cannot continue from its old "
        "positions if the topic is created again"
        for one in context.service.topics.copying(region, topic)
    ]
    if groups:
        warnings.append(f"Groups with offsets in it: {', '.join(sorted(groups)[:20])}")
    return await confirm(
        context, session, f"Delete {topic} in {region}?", "/operate/delete-topic", "Delete the topic",
        topic_page(topic),
        {"region": region, "topic": topic}, warnings=warnings, refused=context.operations.why_not(region, topic),
        facts=[f"Partitions: {len(found.partitions)}", f"Offsets: {thousands(found.offsets)}"],
    )  # fmt: skip


@router.post("/operate/delete-topic", dependencies=MAY)
async def delete_topic(context: ContextOf, session: SessionOf, region: RegionField, topic: TopicField) -> Response:
    """Deletes it."""
    work = context.operations.delete_topic(session.user, region, topic)
    return await made(context, session, work, "/topics", topic_page(topic))


@router.get("/confirm/delete-records", dependencies=ASKED)
async def ask_delete_records(
    context: ContextOf, session: SessionOf, region: Region, topic: Topic, partition: Short = "", before: Short = ""
) -> Response:
    """Asks whether to delete records."""
    parts = await context.operations.preview_deletion(region, topic, partition, before)
    rows = [
        [str(one.partition), f"{one.first:,}", f"{one.before:,}", f"{one.end:,}", f"{one.offsets:,}"] for one in parts
    ]
    gone = [one for one in parts if one.offsets]
    warnings = [
        "The records cannot be brought back",
        "Offsets are deleted, of records and of markers of transactions: there may be fewer records than offsets",
        *(f"The mirror {one.name} copies from it: what it has not copied yet is lost to {one.target}"
          for one in context.service.topics.copying(region, topic)),
    ]  # fmt: skip
    return await confirm(
        context, session, f"Delete records of {topic} in {region}?", "/operate/delete-records", "Delete the records",
        topic_page(topic),
        {"region": region, "topic": topic, "before": " ".join(f"{one.partition}:{one.before}" for one in gone)},
        warnings=warnings, refused="" if gone else "There are no records before this offset",
        table={"label": "Partitions", "numbers": 5, "rows": rows,
               "columns": ["Partition", "First offset", "First offset afterwards", "End offset", "Offsets deleted"]},
    )  # fmt: skip


@router.post("/operate/delete-records", dependencies=MAY)
async def delete_records(
    context: ContextOf, session: SessionOf, region: RegionField, topic: TopicField, before: LongField
) -> Response:
    """Deletes them."""
    try:
        pairs = [word.split(":") for word in before.split()]
        wanted = RecordDeletion.model_validate({"before": {part: int(offset) for part, offset in pairs}})
    except (ValidationError, ValueError) as error:
        raise WrongUseError("this is not a list of partitions and offsets, for example 0:17 1:5") from error
    work = context.operations.delete_records(session.user, region, topic, wanted)
    return await made(context, session, work, topic_page(topic), topic_page(topic))


@router.get("/groups/reset")
async def reset_page(
    context: ContextOf,
    session: SessionOf,
    region: Region,
    group: GroupOf,
    to: Short = "",
    value: Short = "",
    topic: Topic = "",
    partition: Short = "",
) -> Response:
    """Previews a reset of a group, and asks whether to make it. ``value`` is for a time or an offset."""
    preview, wrong, moves = None, "", ""
    context.service.region(region)
    target = value if to == "value" else to
    if to:
        try:
            preview = await context.operations.preview_reset(region, group, target, topic, partition)
            moves = _as_text(preview)
        except LabError as error:
            wrong = str(error)
    return await page(
        context, session, "reset", f"Reset {group}", status=400 if wrong else 200, region=region, group=group, to=to,
        value=value, topic=topic, partition=partition, preview=preview, wrong=wrong, moves=moves,
    )  # fmt: skip


def _as_text(preview: ResetPreview) -> str:
    """The moves of a preview as a form's field: a line for each, with a hyphen for no offset.

    Raises:
        WrongUseError: they do not fit into a request.
    """
    text = "\n".join(
        f"{one.topic} {one.partition} {'-' if one.committed is None else one.committed} {one.to}"
        for one in preview.moves
    )
    if len(text) > MOST_FORM:
        raise WrongUseError(f"{preview.group} has too many partitions for one reset; name a topic")
    return text


def read_moves(group: str, text: str) -> GroupReset:
    """Reads the moves of a form's field.

    Raises:
        WrongUseError: they are none.
    """
    try:
        rows = [line.split(" ") for line in text.splitlines()]
        moves = [
            {"topic": topic, "partition": int(part), "committed": None if at == "-" else int(at), "to": int(to)}
            for topic, part, at, to in rows
        ]
        return GroupReset.model_validate({"group": group, "moves": moves})
    except (ValidationError, ValueError) as error:
        raise WrongUseError("this is not the list of offsets of a preview; look at the preview again") from error


@router.post("/operate/reset", dependencies=MAY)
async def reset(
    context: ContextOf,
    session: SessionOf,
    region: RegionField,
    group: Annotated[GroupOf, Form()],
    moves: LongField,
) -> Response:
    """Makes the reset of a preview."""
    work = context.operations.reset(session.user, region, read_moves(group, moves.replace("\r", "")))
    again = f"/groups/reset?{urlencode({'region': region, 'group': group})}"
    return await made(context, session, work, "/groups", again)


@router.get("/confirm/delete-group", dependencies=ASKED)
async def ask_delete_group(context: ContextOf, session: SessionOf, region: Region, group: GroupOf) -> Response:
    """Asks whether to delete a group."""
    committed, refused = await context.operations.committed(region, group)
    rows = [[topic, str(number), f"{at:,}"] for (topic, number), at in committed.items()]
    return await confirm(
        context, session, f"Delete the group {group} in {region}?", "/operate/delete-group", "Delete the group",
        "/groups",
        {"region": region, "group": group}, refused=refused,
        warnings=["Its committed offsets are deleted: its next consumer begins where auto.offset.reset says"],
        table={"label": "Committed offsets", "numbers": 0, "rows": rows,
               "columns": ["Topic", "Partition", "Committed"]} if rows else None,
    )  # fmt: skip


@router.post("/operate/delete-group", dependencies=MAY)
async def delete_group(
    context: ContextOf,
    session: SessionOf,
    region: RegionField,
    group: Annotated[GroupOf, Form()],
) -> Response:
    """Deletes it."""
    work = context.operations.delete_group(session.user, region, group)
    return await made(context, session, work, "/groups", "/groups")


@router.get("/users")
async def users(context: ContextOf, session: SessionOf) -> Response:
    """Users and their rights."""
    return await page(context, session, "users", "Users and rights")


@router.get("/regions/{region}/mirrors/{mirror}/configuration")
async def configuration(
    context: ContextOf,
    session: SessionOf,
    region: RegionName,
    mirror: MirrorName,
    connector: Annotated[str, Query(max_length=300)],
) -> Response:
    """A connector's configuration."""
    found = await configuration_of(context.service, region, mirror, connector)
    return await page(context, session, "configuration", f"Configuration of {connector}", found=found)
