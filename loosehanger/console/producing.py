"""Writes a record that a viewer typed: its form, and the same through the API."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Form, Query
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from loosehanger.console import pages
from loosehanger.console.api import CHANGE, MAY, ContextOf, RegionName, SessionOf, TopicName
from loosehanger.console.cluster import prepare_clients
from loosehanger.console.confirming import confirm
from loosehanger.console.context import Context
from loosehanger.console.models import Problem, Produced, ProducedRecord
from loosehanger.console.operations import TooManyError
from loosehanger.console.settings import OPERATOR_OFF
from loosehanger.console.sign_in import Session
from loosehanger.errors import LabError, UnreachableError, WrongUseError
from loosehanger.kafka.connection import Connection

if TYPE_CHECKING:
    from loosehanger.kafka.produce import NewRecord

MOST_SHOWN = 4_000
"""Characters of a key, a value or the headers that the page shows which asks."""
MOST_TEXT = 60_000
"""Characters of a key or a value that a form may have; a request has at most 64 KiB."""
MOST_WAITING = 3
"""Records that may wait in the console to be written while another one is."""
UNSURE: dict[int | str, dict[str, Any]] = {504: {"model": Problem, "description": "It may have been written or not"}}
router = APIRouter()


async def produce(context: Context, session: Session, region: str, topic: str, typed: ProducedRecord) -> Produced:
    """Writes a record, and adds it to the change log.

    Args:
        context: the console's.
        session: whose record it is.
        region: where to write it.
        topic: its topic.
        typed: its parts.

    Raises:
        LabError: this console has no such region, or its user lacks the right.
        WrongUseError: the record cannot be written as it is.
        TooManyError: there were too many changes in the last minute.
        UnreachableError: no broker answers, or too many records wait.
        InconclusiveError: it may have been written or not.
    """
    context.service.region(region)
    (connection,) = (one.connection for one in context.settings.regions if one.name == region)
    found: list[Produced] = []

    async def work() -> str:
        if closed := context.service.closed(region):
            raise UnreachableError(closed)
        written = await asyncio.to_thread(_write, connection, region, topic, typed)
        found.append(written)
        return f"{region}: {topic}: a record was written to partition {written.partition} at offset {written.offset}"

    if len(context.producing) > MOST_WAITING:
        raise UnreachableError(f"{MOST_WAITING} records wait to be written already; try again in a moment")
    context.operations.count_change()
    mark = object()
    context.producing.add(mark)
    try:
        await context.changes.record(session.user, region, "produce record", topic, work())
    finally:
        context.producing.discard(mark)
    return found[0]


def _record(topic: str, typed: ProducedRecord) -> NewRecord:
    """The record that was typed.

    Raises:
        WrongUseError: it cannot be written as it is.
    """
    prepare_clients()
    from loosehanger.kafka.produce import new_record

    return new_record(topic, typed.key, typed.value, typed.headers, typed.partition)


def _write(connection: Connection, region: str, topic: str, typed: ProducedRecord) -> Produced:
    record = _record(topic, typed)
    from loosehanger.kafka.produce import RecordProducer

    with RecordProducer(connection, region, "lab-console") as producer:
        written = producer.send(record)
    return Produced(region=region, **written._asdict())


@router.post(
    "/api/regions/{region}/topics/{topic}/records",
    summary="Write a record",
    dependencies=MAY,
    responses=CHANGE | UNSURE,
)
async def produce_document(
    context: ContextOf, session: SessionOf, region: RegionName, topic: TopicName, record: ProducedRecord
) -> Produced:
    """Waits for the acknowledgement of all in-sync replicas. Only where the lab was set up for it."""
    return await produce(context, session, region, topic, record)


def _page(
    context: Context, session: Session, filled: dict[str, str], wrong: str = "", status: int = 200
) -> HTMLResponse:
    html = context.views.template(
        "produce.html.j2", title="Produce a record", view="search", of="", session=session,
        note=context.take_note(session), filled=filled, wrong=wrong, off=OPERATOR_OFF,
    )  # fmt: skip
    return HTMLResponse(html, status)


@router.get("/produce", include_in_schema=False, response_class=HTMLResponse)
async def produce_page(
    context: ContextOf,
    session: SessionOf,
    region: Annotated[str, Query(max_length=63)] = "",
    topic: Annotated[str, Query(max_length=249)] = "",
) -> Response:
    """The form."""
    return _page(context, session, {"region": region, "topic": topic})


Field = Annotated[str, Form(max_length=MOST_TEXT)]


def _fields(
    region: Annotated[str, Form(max_length=63)],
    topic: Annotated[str, Form(max_length=249)],
    partition: Annotated[str, Form(max_length=10)] = "",
    key: Field = "",
    value: Field = "",
    headers: Annotated[str, Form(max_length=20_000)] = "",
    no_key: Annotated[bool, Form()] = False,
    tombstone: Annotated[bool, Form()] = False,
) -> dict[str, str]:
    """The fields of the form, and of the page that asks; those that are not set are empty."""
    filled = {"region": region, "topic": topic, "partition": partition, "key": key, "value": value, "headers": headers}
    return filled | {"no_key": "true" if no_key else "", "tombstone": "true" if tombstone else ""}


@router.post("/confirm/produce", include_in_schema=False, response_class=HTMLResponse, dependencies=pages.MAY)
async def ask_produce(
    context: ContextOf, session: SessionOf, filled: Annotated[dict[str, str], Depends(_fields)]
) -> Response:
    """Asks whether to write the record. A form that is not a record comes back with the reason."""
    region, topic = filled["region"], filled["topic"]
    try:
        typed = _typed(filled)
        context.service.region(region)
        await asyncio.to_thread(_record, topic, typed)
    except LabError as error:
        return _page(context, session, filled, str(error), 400)
    facts = [f"Partition: {'chosen by the key' if typed.partition is None else typed.partition}"]
    facts += ["Key: null"] if typed.key is None else []
    facts += ["Value: null, a tombstone"] if typed.value is None else []
    parts = (("Key", typed.key), ("Value", typed.value), ("Headers", "\n".join(typed.headers) or None))
    copying = context.service.topics.copying(region, topic)
    return await confirm(
        context, session, f"Write a record to {topic} in {region}?", "/produce", "Produce record", "/produce",
        {name: text for name, text in filled.items() if text}, encoding="multipart/form-data", facts=facts,
        texts=[(label, text[:MOST_SHOWN] + ("…" if len(text) > MOST_SHOWN else ""))
               for label, text in parts if text is not None],
        warnings=["It cannot be taken back", *(f"The mirror {one.name} copies it to {one.target}" for one in copying)],
    )  # fmt: skip


@router.post("/produce", include_in_schema=False, response_class=HTMLResponse, dependencies=pages.MAY)
async def produce_form(
    context: ContextOf, session: SessionOf, filled: Annotated[dict[str, str], Depends(_fields)]
) -> Response:
    """Writes the record; its page comes next, or the form again with the reason."""
    region, topic = filled["region"], filled["topic"]
    try:
        written = await produce(context, session, region, topic, _typed(filled))
    except LabError as error:
        status = 429 if isinstance(error, TooManyError) else 400
        return _page(context, session, filled, str(error), status)
    context.note(
        session, f"The record was written to partition {written.partition} at offset {written.offset}", good=True
    )
    place = {"region": region, "topic": topic, "partition": written.partition, "offset": written.offset}
    return RedirectResponse(f"/record?{urlencode(place)}", 303)


def _typed(filled: dict[str, str]) -> ProducedRecord:
    number = filled["partition"].strip()
    if number and not (number.isascii() and number.isdecimal() and int(number) < 2**31):
        raise WrongUseError(f"partition: '{number}' is not a number, for example 0")
    if filled["tombstone"] and filled["value"]:
        raise WrongUseError("a tombstone has no value; remove the value, or the mark at Tombstone")
    if filled["no_key"] and filled["key"]:
        raise WrongUseError("a record without a key has no text for it; remove the key, or the mark at No key")
    lines = [line for line in filled["headers"].splitlines() if line.strip()]
    if len(lines) > 50:
        raise WrongUseError(f"headers: {len(lines)} are too many; give at most 50")
    # Forms send line breaks in the way of Windows.
    return ProducedRecord(
        key=None if filled["no_key"] else filled["key"],
        value=None if filled["tombstone"] else filled["value"].replace("\r\n", "\n"),
        headers=lines,
        partition=int(number) if number else None,
    )
