"""The HTTP API behind the pages. Its description is at ``/api/openapi.json``."""

from __future__ import annotations

import hmac
import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request
from fastapi.responses import JSONResponse, Response

from loosehanger.console.context import Context, context_of, require_operator, session_of, unless_gone
from loosehanger.console.history import Subject
from loosehanger.console.live import RecordFilter
from loosehanger.console.mirrors import Action
from loosehanger.console.models import (
    Brokers,
    Changes,
    Comparison,
    Done,
    Flows,
    Groups,
    JobState,
    LinkChange,
    Links,
    Messages,
    Mirrors,
    Past,
    PastProofs,
    Problem,
    Scenario,
    Search,
    SessionInfo,
    SettingsChange,
    Topic,
    Topics,
)
from loosehanger.console.region_views import UnknownError
from loosehanger.console.scenario import read_scenario
from loosehanger.console.search import LONGEST_POSITION, MOST_FOUND, search_request
from loosehanger.console.sign_in import Session

TOPIC = r"^[A-Za-z0-9._-]{1,249}$"
NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
TopicName = Annotated[str, Path(pattern=TOPIC, description="As in LH.ORDERS")]
RegionName = Annotated[str, Path(pattern=NAME, description="A region of this console")]
MirrorName = Annotated[str, Path(pattern=NAME, description="As in mm2-na")]
ConnectorName = Annotated[str, Path(max_length=300, description="As in europe->northamerica.MirrorSourceConnector")]
ContextOf = Annotated[Context, Depends(context_of)]
SessionOf = Annotated[Session, Depends(session_of)]


def require_token(request: Request, session: SessionOf) -> None:
    """Refuses a change without the session's token. The guard has judged a script's token, which needs no other."""
    if getattr(request.state, "api_token", None) is not None:
        return
    given = request.headers.get("x-csrf-token", "")
    if not hmac.compare_digest(given.encode("utf-8", "replace"), session.csrf_token.encode()):
        raise HTTPException(403, "X-CSRF-Token is missing or wrong; /api/session has the right one")


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors that a route may answer with, for the API's description."""
    meanings = {
        400: "The request is invalid",
        401: "Not signed in",
        403: "The change lacks its token, or the token, the console or its user in Kafka lacks the right",
        404: "It does not exist here",
        409: "Another job is running, or the group has moved since the preview",
        413: "The request is too long",
        422: "A parameter is invalid",
        421: "The console is not known by that name",
        429: "Too many changes, or unknown tokens, at once",
        503: "Kafka or Connect does not answer",
    }
    return {
        status: {"model": Problem, "description": meanings[status]}
        for status in (401, 403, 413, 421, 422, 429, *statuses)
    }


READ, CHANGE = problems(503), problems(400, 403, 404, 409, 503)
MAY = [Depends(require_token), Depends(require_operator)]
"""Of each request that changes the lab: its token, and a console that may."""
router = APIRouter(prefix="/api", responses=READ)


@router.get("/session", summary="Who is signed in, and the token for changes")
async def session(context: ContextOf, session: SessionOf) -> SessionInfo:
    """The session of the request's cookie."""
    return SessionInfo(
        user=session.user,
        console=context.settings.name,
        control_room=context.settings.control_room,
        regions=list(context.service.regions),
        csrf_token=session.csrf_token,
        expires=session.expires,
    )


@router.get("/topics", summary="Every topic")
async def topics(context: ContextOf) -> Topics:
    """Topics with partitions, offsets, sizes, rates and configuration overrides."""
    return await context.service.topics.every()


@router.get("/topics/{topic}", summary="A topic and its copies, with every setting", responses=problems(404, 503))
async def topic(context: ContextOf, topic: TopicName) -> list[Topic]:
    """One entry for each region that has it."""
    found, _ = await context.service.topics.named(topic)
    return found


@router.get("/topics/{topic}/comparison", summary="A topic and its copies side by side", responses=problems(404, 503))
async def comparison(context: ContextOf, topic: TopicName) -> list[Comparison]:
    """The configuration in each region, and where it differs."""
    return await context.service.topics.compare(topic)


@router.patch(
    "/regions/{region}/topics/{topic}/settings",
    summary="Change settings of a topic",
    dependencies=MAY,
    responses=CHANGE,
)
async def change(
    context: ContextOf, session: SessionOf, region: RegionName, topic: TopicName, changes: SettingsChange
) -> Done:
    """A mirror resets a copied topic to its source's settings within seconds. On Kubernetes its KafkaTopic decides."""
    return Done(said=await context.operations.change_settings(session.user, region, topic, changes.settings))


@router.get("/messages", summary="The latest records")
async def messages(
    context: ContextOf,
    topic: Annotated[str, Query(max_length=249)] = "",
    text: Annotated[str, Query(max_length=200)] = "",
    key: Annotated[str, Query(max_length=200)] = "",
    header: Annotated[str, Query(max_length=200, description="A part of name: value")] = "",
    limit: Annotated[int, Query(ge=1, le=300)] = 100,
) -> Messages:
    """Records that were read a moment ago. The first request starts the reader, so repeat it."""
    return await context.service.messages(RecordFilter(topic, text, key, header), limit)


@router.get("/search", summary="Search existing records", responses=problems(400, 404, 503))
async def search(
    request: Request,
    context: ContextOf,
    region: Annotated[str, Query(max_length=63, description="Empty for everywhere")] = "",
    topic: Annotated[str, Query(max_length=249)] = "",
    text: Annotated[str, Query(max_length=200, description="Words in its key or value")] = "",
    key: Annotated[str, Query(max_length=200)] = "",
    header: Annotated[str, Query(max_length=200, description="A part of name: value")] = "",
    since: Annotated[str, Query(max_length=40, description="A time in ISO 8601, or how long ago, as in 10m")] = "",
    until: Annotated[str, Query(max_length=40, description="Likewise")] = "",
    partition: Annotated[str, Query(max_length=20)] = "",
    offset: Annotated[str, Query(max_length=20, description="Of one record; with its topic and partition")] = "",
    limit: Annotated[int, Query(ge=1, le=MOST_FOUND)] = 100,
    order: Annotated[Literal["oldest", "newest"], Query(description="Which records come first")] = "oldest",
    at: Annotated[str, Query(max_length=LONGEST_POSITION, description="`older` or `newer` of an earlier search")] = "",
) -> Search:
    """Reads from `since` on, or back from `until`, bounded in records and seconds; `reached` says where to continue."""
    wanted = RecordFilter(topic, text, key, header)
    asked = search_request(wanted, since, until, partition, offset, limit, newest=order == "newest", at=at)
    return await unless_gone(request, context.service.search(region, asked))


@router.get("/groups", summary="Consumer groups, with their lag")
async def groups(context: ContextOf) -> Groups:
    """Every group, Connect's own too."""
    return await context.service.groups()


@router.get("/brokers", summary="Kafka nodes")
async def brokers(context: ContextOf) -> Brokers:
    """Every node."""
    return await context.service.brokers()


@router.get("/changes", summary="The change log")
async def changes(context: ContextOf) -> Changes:
    """What was changed through this console, the last change first."""
    return Changes(changes=context.changes.latest(), operator=context.settings.operator)


@router.get("/history", summary="The last hour", response_model=Past)
async def history(
    context: ContextOf,
    kind: Annotated[Literal["", "flow", "topic"], Query(description="Flows or topics only; empty for both")] = "",
    region: Annotated[str, Query(max_length=63, description="Where the topic is, or where the flow goes")] = "",
    topic: Annotated[str, Query(max_length=249)] = "",
) -> Response:
    """Every flow and topic: a sample every ten seconds while the console is in use, and every minute otherwise."""

    def wanted(subject: Subject) -> bool:
        return (
            (not kind or (kind == "topic") == bool(subject.topic))
            and (not region or subject.region == region)
            and (not topic or subject.topic == topic)
        )

    past = context.last_hour.past(wanted, time.time())
    return Response(past.model_dump_json(), media_type="application/json")


@router.get("/mirrors", summary="Mirrors, their connectors and tasks")
async def mirrors(context: ContextOf) -> Mirrors:
    """States, traces, positions, throughput."""
    return await context.service.mirrors.every()


@router.post(
    "/regions/{region}/mirrors/{mirror}/connectors/{connector}/{action}",
    summary="Pause, resume or restart a connector",
    dependencies=MAY,
    responses=CHANGE,
)
async def act(
    context: ContextOf,
    session: SessionOf,
    region: RegionName,
    mirror: MirrorName,
    connector: ConnectorName,
    action: Action,
) -> Done:
    """Connect applies it within seconds. On Kubernetes the mirror's resource decides whether it is paused."""
    return Done(said=await context.operations.act(session.user, region, mirror, connector, action))


control_room = APIRouter(prefix="/api", responses=READ)


@control_room.get("/flows", summary="The flows between the regions")
async def flows(context: ContextOf) -> Flows:
    """Events and bytes a second, lag and latency of every mirror."""
    return await context.service.all_flows()


@control_room.get("/links", summary="The links between the regions")
async def links(context: ContextOf) -> Links:
    """Settings, bytes and clients of each direction. Only the local platform has links."""
    return Links(links=await context.links.all())


@control_room.patch(
    "/links/{one}/{other}",
    summary="Delay, narrow, cut or heal a link",
    dependencies=MAY,
    responses=CHANGE,
)
async def change_link(
    context: ContextOf, session: SessionOf, one: RegionName, other: RegionName, change: LinkChange
) -> Done:
    """Takes effect at once, also for open connections."""
    return Done(said=await context.operations.change_link(session.user, one, other, change))


@control_room.get("/proof", summary="The latest proof")
async def proof(context: ContextOf) -> JobState:
    """Its progress, or its document."""
    return context.jobs.state("proof")


@control_room.get("/proof/history", summary="The proofs that were run from here")
async def past_proofs(context: ContextOf) -> PastProofs:
    """Start, duration and the verdict of each claim, the latest first. Proofs of the command line are not included."""
    return PastProofs(proofs=context.jobs.past())


@control_room.get("/aggregates", summary="The latest aggregates")
async def aggregates(context: ContextOf) -> JobState:
    """Their progress, or their document."""
    return context.jobs.state("aggregates")


@control_room.post(
    "/proof", summary="Run the proof", status_code=202, dependencies=[Depends(require_token)], responses=CHANGE
)
async def start_proof(context: ContextOf) -> JobState:
    """Starts the proof; GET returns its state."""
    context.jobs.start("proof")
    return context.jobs.state("proof")


@control_room.post(
    "/aggregates", summary="Add up every region's events", status_code=202, dependencies=[Depends(require_token)],
    responses=CHANGE,
)  # fmt: skip
async def start_aggregates(context: ContextOf) -> JobState:
    """Starts the aggregation; GET returns its state."""
    context.jobs.start("aggregates")
    return context.jobs.state("aggregates")


@control_room.get("/scenario", summary="The scenario that is set up", responses=problems(404))
async def scenario(context: ContextOf) -> Scenario:
    """The manifests with their comments, and the exercises."""
    found = read_scenario(context.settings.scenario)
    if found is None:
        raise UnknownError("this console has no scenario; CONSOLE_SCENARIO names one")
    return found


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> JSONResponse:
    """The API's own description."""
    return JSONResponse(request.app.openapi())
