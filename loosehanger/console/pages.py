"""The pages: the server renders them whole, and their streams update them. Forms work without scripts."""

from __future__ import annotations

import asyncio
import hmac
import re
from contextlib import suppress
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlencode

from fastapi import APIRouter, Depends, Form, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from loosehanger.console.api import ContextOf, SessionOf, TopicName
from loosehanger.console.browse import neighbours, read_record, shown_record
from loosehanger.console.charting import RANGES, ChartSelection
from loosehanger.console.context import Context, require_operator, unless_gone
from loosehanger.console.distances import PRESETS, SOURCE
from loosehanger.console.live import RecordFilter
from loosehanger.console.problems import problem_response
from loosehanger.console.region_views import UnknownError
from loosehanger.console.search import LONGEST_POSITION, search_request
from loosehanger.console.sign_in import LONGEST_DELAY_S, Session
from loosehanger.errors import LabError

PATIENCE_S = 0.1
"""How long a page waits for its data; after that it is sent without, says so, and its stream delivers the data."""
WITH_MORE = (
    "changes",
    "map",
    "topics",
    "confirm",
    "reset",
    "configuration",
    "charts",
    "topic",
    "proof",
    "aggregates",
    "messages",
    "scenario",
    "document",
    "search",
)
"""The pages with a template of their own."""
REPORT_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
control_room = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)


async def require_token(request: Request, session: SessionOf) -> None:
    """Refuses a form without the session's token.

    The token is no parameter of its own: a route whose only parameter is a form takes its fields as one object.
    """
    given = (await request.form()).get("csrf")
    text = given if isinstance(given, str) else ""
    if not hmac.compare_digest(text.encode("utf-8", "replace"), session.csrf_token.encode()):
        raise HTTPException(403, "the page is from another session; go back, load it again, and try once more")


WithToken = Depends(require_token)
MAY = [WithToken, Depends(require_operator)]
"""Of each form that changes the lab: its token, and a console that may."""


async def page(
    context: Context, session: Session, view: str, title: str, of: str = "", status: int = 200, **more: Any
) -> HTMLResponse:
    """A page with a view, or with a template of its own."""
    getting = asyncio.ensure_future(context.views.data(view, of)) if view in context.views else None
    data = None
    if getting is not None:
        getting.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            data = await asyncio.wait_for(asyncio.shield(getting), PATIENCE_S)
        except TimeoutError:
            pass
        except UnknownError as error:
            return problem_page(context, session, 404, str(error), context.take_note(session))
    html = context.views.template(
        f"{view}.html.j2" if view in WITH_MORE else "page.html.j2",
        title=title,
        view=view,
        of=of,
        fragment=context.views.fragment(view, data) if view in context.views else "",
        session=session,
        note=context.take_note(session),
        **more,
    )
    return HTMLResponse(html, status)


def problem_page(
    context: Context, session: Session, status: int, reason: str, note: tuple[str, bool] | None = None
) -> HTMLResponse:
    """A page that names what is wrong, below the outcome of a change, if any."""
    title = "Not found" if status == 404 else "Not possible"
    html = context.views.template(
        "problem.html.j2", title=title, view="", of="", session=session, note=note, reason=reason
    )
    return HTMLResponse(html, status)


@router.get("/health", response_class=Response)
async def health() -> Response:
    """The health check of the program."""
    return Response("healthy\n", media_type="text/plain")


@router.get("/sign-in")
async def sign_in_page(
    request: Request,
    context: ContextOf,
    next: Annotated[str, Query(max_length=2000)] = "/",  # noqa: A002
) -> Response:
    """The form."""
    context.service.warm()  # The first page needs the connections next.
    if getattr(request.state, "session", None) is not None:
        return RedirectResponse(_local(next), 303)
    return HTMLResponse(context.views.template("sign_in.html.j2", next=_local(next), wrong="", username=""))


@router.post("/sign-in")
async def sign_in(
    context: ContextOf,
    username: Annotated[str, Form(max_length=200)] = "",
    password: Annotated[str, Form(max_length=200)] = "",
    next: Annotated[str, Form(max_length=2000)] = "/",  # noqa: A002
) -> Response:
    """Opens a session. The right password only waits for its turn, whatever others try."""
    judged = await context.attempts.turn()
    if judged and context.sessions.accepts(username, password):
        return context.signed_in(RedirectResponse(_local(next), 303))
    wrong, status, headers = "User or password is wrong. ./lab status --credentials shows both.", 403, {}
    async with context.attempts.delay() as seconds:
        if not judged or seconds is None:
            wrong, status = "Too many wrong passwords at once. The right one is still accepted.", 429
            if not judged:
                wrong = "Too many sign-in attempts are waiting. Try again in a moment."
            headers["retry-after"] = str(round(LONGEST_DELAY_S))
        else:
            with suppress(TimeoutError):
                await asyncio.wait_for(context.stopping.wait(), seconds)
    html = context.views.template("sign_in.html.j2", next=_local(next), wrong=wrong, username=username)
    return HTMLResponse(html, status, headers=headers)


@router.post("/sign-out", dependencies=[WithToken])
async def sign_out(context: ContextOf, session: SessionOf) -> Response:
    """Ends the session, which invalidates every copy of its cookie."""
    context.sessions.end(session)
    answer = RedirectResponse("/sign-in", 303)
    answer.delete_cookie(context.sessions.cookie, httponly=True, samesite="strict", secure=context.settings.secure)
    return answer


@router.get("/")
async def home(context: ContextOf, session: SessionOf) -> Response:
    """The region at a glance, or the map of all."""
    if context.settings.control_room:
        return await page(
            context, session, "map", "Control room", pairs=context.links.pairs(), presets=PRESETS, source=SOURCE
        )
    return await page(context, session, "overview", "Overview")


@router.get("/charts")
async def charts(
    context: ContextOf,
    session: SessionOf,
    of: Annotated[str, Query(max_length=249)] = "",
    range: Literal["15m", "1h", "all"] = "1h",  # noqa: A002
    scale: Literal["usual", "whole"] = "usual",
) -> Response:
    """The last hour: of the flows, of a region's topics, or of a topic and its copies."""
    # A region where no mirror runs has no flow to show.
    own = [region.name for region in context.settings.regions]
    first = "" if any(region.mirrors for region in context.settings.regions) else own[0]
    wanted = ChartSelection(of or first, range, scale == "whole")
    return await page(
        context, session, "charts", "The last hour", wanted.text, flows=not first, wanted=wanted, ranges=RANGES
    )


@router.get("/topics")
async def topics(context: ContextOf, session: SessionOf) -> Response:
    """Every topic."""
    return await page(context, session, "topics", "Topics")


@router.get("/topics/{topic}")
async def topic(
    context: ContextOf,
    session: SessionOf,
    topic: TopicName,
    setting: Annotated[str, Query(max_length=100)] = "",
    value: Annotated[str, Query(max_length=4000)] = "",
    region: Annotated[str, Query(max_length=63)] = "",
) -> Response:
    """A topic, side by side where there are several regions; a link may fill in the form."""
    return await page(
        context, session, "topic", topic, topic, filled={"name": setting, "value": value, "region": region}
    )


@router.get("/messages")
async def messages(
    context: ContextOf,
    session: SessionOf,
    region: Annotated[str, Query(max_length=63)] = "",
    topic: Annotated[str, Query(max_length=249)] = "",
    text: Annotated[str, Query(max_length=200)] = "",
    key: Annotated[str, Query(max_length=200)] = "",
    header: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Records as they arrive."""
    context.service.look()
    wanted = {"region": region, "topic": topic, "text": text, "key": key, "header": header}
    query = urlencode({name: value for name, value in wanted.items() if value} | {"order": "newest"})
    return await page(
        context, session, "messages", "Live messages", wanted=wanted, query=query, known=await _known_topics(context)
    )


@router.get("/search")
async def search(
    request: Request,
    context: ContextOf,
    session: SessionOf,
    region: Annotated[str, Query(max_length=63)] = "",
    topic: Annotated[str, Query(max_length=249)] = "",
    text: Annotated[str, Query(max_length=200)] = "",
    key: Annotated[str, Query(max_length=200)] = "",
    header: Annotated[str, Query(max_length=200)] = "",
    since: Annotated[str, Query(max_length=40)] = "",
    until: Annotated[str, Query(max_length=40)] = "",
    partition: Annotated[str, Query(max_length=20)] = "",
    offset: Annotated[str, Query(max_length=20)] = "",
    order: Literal["newest", "oldest"] = "newest",
    at: Annotated[str, Query(max_length=LONGEST_POSITION)] = "",
) -> Response:
    """Searches existing records."""
    wanted = {"region": region, "topic": topic, "text": text, "key": key, "header": header, "since": since,
              "until": until, "partition": partition, "offset": offset, "order": order}  # fmt: skip
    answer, record, wrong, status = None, None, "", 200
    if request.url.query:
        try:
            asked = search_request(RecordFilter(topic, text, key, header), since, until, partition, offset,
                                   newest=order == "newest", at=at)  # fmt: skip
            answer = await unless_gone(request, context.service.search(region, asked))
            if asked.offset is not None and len(answer.messages) == 1:
                one = answer.messages[0]
                record = shown_record(
                    await read_record(request, context, one.region, one.topic, one.partition, one.offset)
                )
        except LabError as error:
            # That a topic does not exist is what the search found out, and the request was right.
            found_out = isinstance(error, UnknownError) and (not region or region in context.service.regions)
            wrong, status = str(error), 200 if found_out else 400
    older, newer = neighbours(wanted, answer, list(context.service.regions)) if answer else ("", "")
    return await page(
        context, session, "search", "Search messages", status=status, wanted=wanted, answer=answer, wrong=wrong,
        older=older, newer=newer, record=record, known=await _known_topics(context),
    )  # fmt: skip


async def _known_topics(context: Context) -> list[str]:
    """The names of all topics, if they are known soon; for a form to suggest."""
    with suppress(TimeoutError):
        return await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(context.service.topics.names())), PATIENCE_S)
    return []


@router.get("/groups")
async def groups(context: ContextOf, session: SessionOf) -> Response:
    """Consumer groups."""
    return await page(context, session, "groups", "Consumer groups")


@router.get("/changes")
async def changes(context: ContextOf, session: SessionOf) -> Response:
    """The change log."""
    latest = context.changes.latest()
    return await page(context, session, "changes", "Changes", changes=latest)


@router.get("/brokers")
async def brokers(context: ContextOf, session: SessionOf) -> Response:
    """Kafka nodes."""
    return await page(context, session, "brokers", "Brokers")


@router.get("/mirrors")
async def mirrors(context: ContextOf, session: SessionOf) -> Response:
    """Mirrors."""
    return await page(context, session, "mirrors", "Mirrors")


@control_room.get("/proof")
async def proof(context: ContextOf, session: SessionOf) -> Response:
    """The latest proof, and a button."""
    return await page(context, session, "proof", "Proof")


@control_room.get("/proof/report")
async def report(
    context: ContextOf, session: SessionOf, of: Annotated[str, Query(pattern=r"^\d{0,16}$")] = ""
) -> Response:
    """A proof's report, the last one's or another's. It is self-contained, and its policy allows nothing else."""
    html = context.jobs.report(of)
    if html is None:
        reason = "This report is no longer kept" if of else "There is no report yet: run the proof first"
        return problem_page(context, session, 404, reason)
    return HTMLResponse(html, headers={"content-security-policy": REPORT_POLICY})


@control_room.get("/aggregates")
async def aggregates(context: ContextOf, session: SessionOf) -> Response:
    """The sales of each region."""
    return await page(context, session, "aggregates", "Aggregates")


@control_room.post("/jobs/{name}", dependencies=[WithToken])
async def start(context: ContextOf, session: SessionOf, name: str) -> Response:
    """Starts the proof or the aggregates."""
    if name not in ("proof", "aggregates"):
        return problem_page(context, session, 404, "This job does not exist; the jobs are proof and aggregates")
    try:
        context.jobs.start(name)
    except LabError as error:
        context.note(session, str(error), good=False)
    return RedirectResponse(f"/{name}", 303)


def problem(context: Context, request: Request, status: int, reason: str) -> Response:
    """The response to an error: a page for browsers, JSON for the API."""
    session: Session | None = getattr(request.state, "session", None)
    if request.url.path.startswith("/api") or session is None:
        return problem_response(status, reason)
    return problem_page(context, session, status, reason)


def _local(address: str) -> str:
    """The address if it is within this console, also as browsers normalise it; else the front page's."""
    path = unquote(re.split(r"[?#]", address)[0])
    steps = path.split("/")
    within = path.startswith("/") and "\\" not in path and "" not in steps[1:-1] and not {".", ".."} & set(steps)
    return address if within and path.isprintable() and address.isprintable() else "/"
