"""Writes a record that a viewer typed: its form, and the same through the API."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Form
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BaseModel, Field

from loosehanger.console import pages
from loosehanger.console.api import CHANGE, MAY, ContextOf, RegionName, SessionOf, TopicName
from loosehanger.console.cluster import prepare_clients
from loosehanger.console.confirming import Region, Topic, confirm
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
Text = Annotated[str, Field(max_length=MOST_TEXT)]
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


class ProduceForm(BaseModel):
    """A record as it was typed."""

    region: Region = ""
    topic: Topic = ""
    partition: Annotated[str, Field(max_length=10)] = ""
    key: Text = ""
    value: Text = ""
    headers: Annotated[str, Field(max_length=20_000)] = ""
    no_key: bool = False
    tombstone: bool = False

    def fields(self) -> dict[str, str]:
        """Those of a form that sends the same."""
        return {name: "true" if value is True else str(value) for name, value in self if value}

    def record(self) -> ProducedRecord:
        """The record.

        Raises:
            WrongUseError: the fields contradict each other, or one is not what its label says.
        """
        number = self.partition.strip()
        if number and not (number.isascii() and number.isdecimal() and int(number) < 2**31):
            raise WrongUseError(f"partition: '{number}' is not a number, for example 0")
        if self.tombstone and self.value:
            raise WrongUseError("a tombstone has no value; remove the value, or the mark at Tombstone")
        if self.no_key and self.key:
            raise WrongUseError("a record without a key has no text for it; remove the key, or the mark at No key")
        lines = [line for line in self.headers.splitlines() if line.strip()]
        if len(lines) > 50:
            raise WrongUseError(f"headers: {len(lines)} are too many; give at most 50")
        # Forms send line breaks in the way of Windows.
        return ProducedRecord(
            key=None if self.no_key else self.key,
            value=None if self.tombstone else self.value.replace("\r\n", "\n"),
            headers=lines,
            partition=int(number) if number else None,
        )


def _page(context: Context, session: Session, filled: ProduceForm, wrong: str = "", status: int = 200) -> HTMLResponse:
    html = context.views.template(
        "produce.html.j2", title="Produce a record", view="search", of="", session=session,
        note=context.take_note(session), filled=filled, wrong=wrong, off=OPERATOR_OFF,
    )  # fmt: skip
    return HTMLResponse(html, status)


async def _unless_refused(
    context: Context, session: Session, form: ProduceForm, answer: Callable[[ProducedRecord], Awaitable[Response]]
) -> Response:
    """The answer for a form's record. A form that is refused comes back with the reason."""
    try:
        return await answer(form.record())
    except LabError as error:
        return _page(context, session, form, str(error), 429 if isinstance(error, TooManyError) else 400)


@router.get("/produce", include_in_schema=False, response_class=HTMLResponse)
async def produce_page(context: ContextOf, session: SessionOf, region: Region = "", topic: Topic = "") -> Response:
    """The form."""
    return _page(context, session, ProduceForm(region=region, topic=topic))


@router.post("/confirm/produce", include_in_schema=False, response_class=HTMLResponse, dependencies=pages.MAY)
async def ask_produce(context: ContextOf, session: SessionOf, form: Annotated[ProduceForm, Form()]) -> Response:
    """Asks whether to write the record."""

    async def ask(typed: ProducedRecord) -> Response:
        region, topic = form.region, form.topic
        context.service.region(region)
        await asyncio.to_thread(_record, topic, typed)
        facts = [f"Partition: {'chosen by the key' if typed.partition is None else typed.partition}"]
        facts += ["Key: null"] if typed.key is None else []
        facts += ["Value: null, a tombstone"] if typed.value is None else []
        parts = (("Key", typed.key), ("Value", typed.value), ("Headers", "\n".join(typed.headers) or None))
        copying = [f"The mirror {one.name} copies it to {one.target}"
                   for one in context.service.topics.copying(region, topic)]  # fmt: skip
        return await confirm(
            context, session, f"Write a record to {topic} in {region}?", "/produce", "Produce record", "/produce",
            form.fields(), encoding="multipart/form-data", facts=facts, warnings=["It cannot be taken back", *copying],
            texts=[(label, text[:MOST_SHOWN] + ("…" if len(text) > MOST_SHOWN else ""))
                   for label, text in parts if text is not None],
        )  # fmt: skip

    return await _unless_refused(context, session, form, ask)


@router.post("/produce", include_in_schema=False, response_class=HTMLResponse, dependencies=pages.MAY)
async def produce_form(context: ContextOf, session: SessionOf, form: Annotated[ProduceForm, Form()]) -> Response:
    """Writes the record; its page comes next."""

    async def write(typed: ProducedRecord) -> Response:
        written = await produce(context, session, form.region, form.topic, typed)
        place = {"region": form.region, "topic": form.topic, "partition": written.partition, "offset": written.offset}
        said = f"The record was written to partition {written.partition} at offset {written.offset}"
        context.note(session, said, good=True)
        return RedirectResponse(f"/record?{urlencode(place)}", 303)

    return await _unless_refused(context, session, form, write)
