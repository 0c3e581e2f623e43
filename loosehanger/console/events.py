"""Server-sent events: views that changed, and records as they arrive."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterable, Callable
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from loosehanger.console.api import ContextOf
from loosehanger.console.context import Context
from loosehanger.console.live import RecordFilter
from loosehanger.console.region_views import RegionView, UnknownError

PUSH_S = 0.25
"""Seconds between two batches of records: short enough for a viewer, long enough to be cheap."""
router = APIRouter(prefix="/events", include_in_schema=False)


def _alive(context: Context, request: Request) -> Callable[[], bool]:
    """Whether a stream may continue: its session is valid, and the console is not stopping."""
    cookie = request.cookies.get(context.sessions.cookie)
    return lambda: not context.stopping.is_set() and context.sessions.read(cookie) is not None


# Dependencies validate the request, because a stream that has begun can no longer be refused.


def known_view(context: ContextOf, view: Annotated[str, Path(pattern=r"^[a-z]{1,20}$")]) -> str:
    """The view that the address names."""
    if view not in context.views:
        raise UnknownError(f"this console has no view '{view}'")
    return view


def chosen_regions(context: ContextOf, region: Annotated[str, Query(max_length=63)] = "") -> list[RegionView]:
    """The region that the address names, or all."""
    return [context.service.region(region)] if region else list(context.service.regions.values())


@router.get("/views/{view}", response_class=EventSourceResponse)
async def view(
    request: Request,
    context: ContextOf,
    view: Annotated[str, Depends(known_view)],
    of: Annotated[str, Query(max_length=270)] = "",
) -> AsyncIterable[ServerSentEvent]:
    """Sends a view each time it has changed."""
    alive = _alive(context, request)
    async for html in context.channels.follow((view, of), lambda: context.views.live(view, of), alive):
        yield ServerSentEvent(event="view", data=html)
    yield ServerSentEvent(event="end", data="stopping" if context.stopping.is_set() else "signed out")


@router.get("/messages", response_class=EventSourceResponse)
async def messages(
    request: Request,
    context: ContextOf,
    chosen: Annotated[list[RegionView], Depends(chosen_regions)],
    topic: Annotated[str, Query(max_length=249)] = "",
    text: Annotated[str, Query(max_length=200)] = "",
    key: Annotated[str, Query(max_length=200)] = "",
    header: Annotated[str, Query(max_length=200)] = "",
) -> AsyncIterable[ServerSentEvent]:
    """Sends matching records as they arrive, and the number dropped for a viewer who is too slow."""
    wanted = RecordFilter(topic, text, key, header)
    viewers = [(one, one.live.watch(wanted)) for one in chosen]
    alive = _alive(context, request)
    sent_problem = ""
    try:
        while alive():
            for one in chosen:
                one.live.keep_going()  # A reader stops when a link closes, and the link may be open again.
            taken, dropped = [], 0
            for _, viewer in viewers:
                arrived, lost = viewer.take()
                taken += arrived
                dropped += lost
            if taken or dropped:
                taken.sort(key=lambda one: one.at_ms)
                texts = ",".join(one.json for one in taken)
                yield ServerSentEvent(event="messages", raw_data=f'{{"dropped":{dropped},"messages":[{texts}]}}')
            problem = "; ".join(one.live.problem for one in chosen if one.live.problem)
            if problem != sent_problem:
                sent_problem = problem
                yield ServerSentEvent(event="problem", raw_data=json.dumps(problem))
            with suppress(TimeoutError):
                await asyncio.wait_for(context.stopping.wait(), PUSH_S)
    finally:
        for one, viewer in viewers:
            one.live.leave(viewer)
    yield ServerSentEvent(event="end", data="stopping" if context.stopping.is_set() else "signed out")
