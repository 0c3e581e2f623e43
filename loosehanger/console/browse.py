"""One record: its page, its part of other pages, its document and its bytes to download."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response

from loosehanger.console.api import READ, ContextOf, SessionOf
from loosehanger.console.context import Context, unless_gone
from loosehanger.console.live import RecordFilter
from loosehanger.console.models import Problem, RecordHeader, Search, WholeRecord
from loosehanger.console.parts import Form, Part
from loosehanger.console.records import Arrived, shown_text
from loosehanger.console.region_views import UnknownError
from loosehanger.console.search import SearchRequest
from loosehanger.errors import LabError, UnreachableError
from loosehanger.internal_topics import decode

GONE = (
    "No record has this offset: retention or compaction has deleted it, or it belongs to a transaction marker or an "
    "aborted transaction"
)
NO_FURTHER = {"older": "This is the oldest record of its partition", "newer": "This is the newest record"}
LATEST_MS = 253_402_300_799_999
"""The end of the year 9999, after which no calendar of a page goes."""
Step = Literal["", "older", "newer"]
Region = Annotated[str, Query(max_length=63, description="A region of this console")]
TopicOf = Annotated[str, Query(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
PartitionOf = Annotated[int, Query(ge=0, lt=2**31)]
OffsetOf = Annotated[int, Query(ge=0, lt=2**63)]
NOT_HERE: dict[int | str, dict[str, Any]] = READ | {404: {"model": Problem, "description": "It does not exist here"}}
router = APIRouter()


async def read_record(
    request: Request, context: Context, region: str, topic: str, partition: int, offset: int, step: Step = ""
) -> Arrived:
    """Reads one record in full.

    Args:
        request: the request, whose end stops the reading.
        context: the console's.
        region: where to read it.
        topic: its topic.
        partition: its partition.
        offset: its offset, or its neighbour's with a step.
        step: ``older`` or ``newer`` for the record before or after the offset.

    Raises:
        UnknownError: it does not exist.
        UnreachableError: no broker answers.
    """
    asked = SearchRequest(RecordFilter(topic), partition=partition, most=1, whole=True)
    if step:
        newest = step == "older"
        at = {region: {partition: offset if newest else offset + 1}}
        asked = replace(asked, newest=newest, at=at)
    else:
        asked = replace(asked, offset=offset)
    chosen = context.service.region(region)
    if closed := context.service.closed(region):
        raise UnreachableError(closed)
    found = await unless_gone(request, chosen.searcher.find(asked))
    if found.missing:
        raise UnknownError(found.missing)
    if not found.records:
        raise UnknownError("; ".join([NO_FURTHER.get(step, GONE), *found.skipped]))
    return found.records[0]


def shown_record(one: Arrived, key_as: str = "", value_as: str = "") -> dict[str, Any]:
    """A record for its template.

    Args:
        one: the record.
        key_as: the form of its key; empty for the best one.
        value_as: the same of its value.
    """
    record = one.record
    place = {"region": one.region, "topic": record.topic, "partition": record.partition, "offset": record.offset}

    def address(path: str = "/record", **more: str) -> str:
        return f"{path}?{urlencode(place | {name: value for name, value in more.items() if value})}"

    parts = []
    for name, data, wanted in (("Key", record.key, key_as), ("Value", record.value, value_as)):
        part = Part(data)
        chosen = wanted if wanted in part.forms else next(iter(part.forms), "")
        others = {"key_as": key_as, "value_as": value_as}
        forms = [(form, address(**(others | {f"{name.lower()}_as": form}))) for form in part.forms]
        parts.append({"name": name, "part": part, "form": chosen, "forms": forms,
                      "download": address("/record/download", part=name.lower())})  # fmt: skip
    return {
        **place,
        "timestamp": record.timestamp / 1000 if 0 <= record.timestamp <= LATEST_MS else None,
        "milliseconds": record.timestamp,
        "parts": parts,
        "decoded": Part(json.dumps(found).encode()) if (found := _decoded(one)) else None,
        "headers": [(shown_text(name.encode("utf-8", "replace")), Part(value)) for name, value in record.headers],
        "bytes": one.size,
        "document": address("/api/record"),
        "download": address("/record/download"),
        "older": address(step="older"),
        "newer": address(step="newer"),
    }


def _decoded(one: Arrived) -> dict[str, Any] | None:
    """The content of a record of an internal topic, or why it cannot be decoded; None for other topics."""
    record = one.record
    found = decode(record.topic, record.key, record.value)
    return None if found is None or (found.error and not found.certain) else found.document


def neighbours(wanted: Mapping[str, str], answer: Search, regions: Sequence[str]) -> tuple[str, str]:
    """The addresses of a search's older and newer records, with the same filters; empty where there are none.

    Args:
        wanted: the fields of the search.
        answer: what it found.
        regions: those of this console.
    """
    fields = {**wanted, "offset": ""}
    older, newer = {"at": answer.older}, {"at": answer.newer}
    if wanted["offset"]:
        chosen, number, offset = (
            [wanted["region"]] if wanted["region"] else regions,
            wanted["partition"],
            wanted["offset"],
        )
        older["at"] = "~".join(f"{region}.{int(number)}-{int(offset)}" for region in chosen)
        newer["at"] = "~".join(f"{region}.{int(number)}-{int(offset) + 1}" for region in chosen)
    elif not wanted["topic"] and answer.reached is not None:
        reached = datetime.fromtimestamp(min(max(0, answer.reached), LATEST_MS) / 1000, UTC)
        if wanted["order"] == "newest":
            older = {"until": reached.isoformat(timespec="milliseconds")}
        else:
            newer = {"since": reached.isoformat(timespec="milliseconds")}

    def address(order: str, changed: Mapping[str, str]) -> str:
        if not any(changed.values()):
            return ""
        query = {**fields, "order": order, **changed}
        return f"/search?{urlencode({name: value for name, value in query.items() if value})}"

    return address("newest", older), address("oldest", newer)


@router.get("/record", include_in_schema=False, response_class=HTMLResponse)
async def record_page(
    request: Request,
    context: ContextOf,
    session: SessionOf,
    region: Region,
    topic: TopicOf,
    partition: PartitionOf,
    offset: OffsetOf,
    step: Step = "",
    key_as: Form | Literal[""] = "",
    value_as: Form | Literal[""] = "",
    alone: Annotated[bool, Query()] = False,
) -> Response:
    """A record in full; alone, as the part that a page shows beside its list."""
    record, wrong, status = None, "", 200
    try:
        one = await read_record(request, context, region, topic, partition, offset, step)
        record = shown_record(one, key_as, value_as)
    except LabError as error:
        wrong, status = str(error), 404 if isinstance(error, UnknownError) else 503
    if alone:
        html = context.views.template("fragments/record.html.j2", record=record, wrong=wrong)
        return HTMLResponse(html)
    html = context.views.template(
        "record.html.j2", title=f"{topic} {partition}/{record['offset'] if record else offset}", view="search", of="",
        session=session, note=None, record=record, wrong=wrong,
    )  # fmt: skip
    return HTMLResponse(html, status)


@router.get("/api/record", summary="One record in full", responses=NOT_HERE)
async def record_document(
    request: Request,
    context: ContextOf,
    region: Region,
    topic: TopicOf,
    partition: PartitionOf,
    offset: OffsetOf,
) -> WholeRecord:
    """Key, value and headers as text, or in base64 where they are not valid UTF-8."""
    return document(await read_record(request, context, region, topic, partition, offset))


def document(one: Arrived) -> WholeRecord:
    """A record for the API."""
    record = one.record
    return WholeRecord(
        region=one.region,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        key=Part(record.key).document,
        value=Part(record.value).document,
        decoded=_decoded(one),
        headers=[RecordHeader(name=name, value=Part(value).document) for name, value in record.headers],
    )


@router.get("/record/download", include_in_schema=False)
async def download(
    request: Request,
    context: ContextOf,
    region: Region,
    topic: TopicOf,
    partition: PartitionOf,
    offset: OffsetOf,
    part: Literal["", "key", "value"] = "",
) -> Response:
    """The bytes of a key or a value, or the record as JSON, as a file."""
    one = await read_record(request, context, region, topic, partition, offset)
    name = f"{topic}-{partition}-{offset}"
    if part:
        data = (one.record.key if part == "key" else one.record.value) or b""
        return _file(data, "application/octet-stream", f"{name}.{part}")
    return _file(document(one).model_dump_json(indent=2).encode(), "application/json", f"{name}.json")


def _file(data: bytes, kind: str, name: str) -> Response:
    return Response(data, media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'})
