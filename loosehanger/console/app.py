"""Assembles a console."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from loosehanger.console import (
    api,
    browse,
    changing_pages,
    events,
    learning_pages,
    metrics,
    operating_api,
    operating_pages,
    pages,
    producing,
    scripts_page,
    sign_on,
)
from loosehanger.console.api_tokens import ApiTokens
from loosehanger.console.change_log import ChangeLog
from loosehanger.console.context import Context
from loosehanger.console.description import openapi_document
from loosehanger.console.guard import MOST_BODY, Guard
from loosehanger.console.history import LastHour, Sampler
from loosehanger.console.jobs import BusyError, Jobs
from loosehanger.console.learning import Learning
from loosehanger.console.links import LinkView
from loosehanger.console.neighbours import Neighbours
from loosehanger.console.operations import Operations, TooManyError
from loosehanger.console.problems import problem_response
from loosehanger.console.region_views import UnknownError
from loosehanger.console.service import Service
from loosehanger.console.settings import Settings
from loosehanger.console.sign_in import Sessions
from loosehanger.console.views import Views
from loosehanger.errors import InconclusiveError, LabError, UnreachableError
from loosehanger.kafka.changes import MovedError, NotAllowedError
from loosehanger.signing.one_time import OneTimeTokens, remove_pages

TIDY_S = 20.0
_ROUTED = (
    *(api, pages, sign_on, browse, scripts_page, producing),
    *(operating_api, operating_pages, changing_pages, events, metrics),
)
"""The modules with routes. Of two routes that fit a path, the first decides."""
_STATUS = (
    (UnknownError, 404),
    (BusyError, 409),
    (MovedError, 409),
    (NotAllowedError, 403),
    (TooManyError, 429),
    (UnreachableError, 503),
    (InconclusiveError, 504),
    (LabError, 400),
)


def create_app(settings: Settings, service: Service | None = None) -> FastAPI:
    """Creates a console's application.

    Args:
        settings: where it listens, who may sign in, which regions it shows.
        service: the regions' data; by default built from the settings.
    """
    service = service or Service(settings)
    jobs = Jobs(settings.lab_home if settings.control_room else None)
    links = LinkView(settings.lab_home if settings.control_room else None)
    sessions = Sessions(settings.name, settings.username, settings.password, settings.session_minutes * 60)
    history = LastHour()
    neighbours = Neighbours(settings)
    changes = ChangeLog(settings.change_log)
    operations = Operations(settings, service, links, changes)
    learning = Learning(settings.scenario, jobs, operations, changes)
    views = Views(settings, service, jobs, links, history, operations, changes, learning)
    views.share(consoles=neighbours.names)
    one_time = OneTimeTokens(settings.name, neighbours.keys)
    tokens = ApiTokens(settings.tokens_file, settings.name, settings.password)
    context = Context(
        settings,
        sessions,
        service,
        jobs,
        views,
        links,
        history,
        changes,
        operations,
        neighbours,
        one_time,
        tokens,
        learning,
    )

    app = FastAPI(
        title=f"Loosehanger Lab: {settings.name}",
        version="1",
        description="What the pages show, as JSON. Send Authorization: Bearer and a token of the page /scripts. A "
        "browser's session works as well; its changes need X-CSRF-Token.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=partial(_running, context),
        max_body_size=MOST_BODY,
        redirect_slashes=False,
    )
    app.state.context = context
    app.openapi = partial(openapi_document, app)  # type: ignore[method-assign]
    if settings.control_room:
        app.include_router(api.control_room)
        app.include_router(pages.control_room)
        app.include_router(changing_pages.control_room)
        app.include_router(learning_pages.router)
    for module in _ROUTED:
        app.include_router(module.router)
    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"))
    app.add_middleware(Guard, settings=settings, sessions=sessions, tokens=tokens, stopping=context.stopping)
    _explain_errors(app, context)
    return app


@asynccontextmanager
async def _running(context: Context, app: FastAPI) -> AsyncIterator[None]:
    """Does the work beside the requests, and ends it."""
    sampler = Sampler(context.service, context.last_hour, context.links, context.settings.lab_home)
    app.state.exposition = exposition = metrics.Exposition(context)
    tasks = [asyncio.create_task(work) for work in (_tidy(context), sampler.run(), exposition.run())]
    yield
    for task in tasks:
        task.cancel()
    context.stopping.set()
    await context.jobs.close()
    await context.learning.close()
    await asyncio.to_thread(context.service.close)
    context.tokens.close()


async def _tidy(context: Context) -> None:
    while True:
        await asyncio.sleep(TIDY_S)  # between two rounds
        context.service.tidy()
        context.tokens.tidy()
        if context.settings.lab_home:
            remove_pages(context.settings.lab_home)


def _explain_errors(app: FastAPI, context: Context) -> None:
    @app.exception_handler(LabError)
    async def lab_error(request: Request, error: LabError) -> Response:
        status = next(status for kind, status in _STATUS if isinstance(error, kind))
        return pages.problem(context, request, status, str(error))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        reason = str(error.detail)
        if error.status_code == HTTPStatus.NOT_FOUND and reason == HTTPStatus.NOT_FOUND.phrase:
            reason = "There is no such page in this console"
        answer = pages.problem(context, request, error.status_code, reason)
        for name, value in (error.headers or {}).items():
            answer.headers[name] = value
        return answer

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        reasons = "; ".join(f"{found['loc'][-1]}: {found['msg']}" for found in error.errors())
        if request.url.path.startswith("/api"):
            details = [{key: found[key] for key in ("type", "loc", "msg")} for found in error.errors()]
            return problem_response(422, f"Invalid request: {reasons}", errors=details)
        return pages.problem(context, request, 422, f"Invalid request: {reasons}")
