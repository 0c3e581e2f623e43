"""The page of the lab that is set up: its text, exercise by exercise, with what ``./lab learn`` says of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from loosehanger.console.api import ContextOf, SessionOf
from loosehanger.console.context import Context
from loosehanger.console.lab_text import PICTURES, document_html, kit_file, lab_html
from loosehanger.console.learning import CHANGING, LearnAction
from loosehanger.console.pages import WithToken, page, problem_page
from loosehanger.console.region_views import UnknownError
from loosehanger.console.scenario import read_scenario
from loosehanger.console.settings import OPERATOR_OFF
from loosehanger.console.sign_in import Session
from loosehanger.errors import LabError

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
Number = Annotated[int, Query(ge=1, le=99)]
PathOf = Annotated[str, Query(max_length=200)]


@router.get("/scenario")
async def scenario(
    context: ContextOf,
    session: SessionOf,
    exercise: Annotated[int, Query(ge=0, le=99)] = 0,
    section: Annotated[int, Query(ge=0, le=99)] = 0,
    file: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """A section of the lab's text, by its exercise or by its place, and a manifest."""
    found = read_scenario(context.settings.scenario)
    if found is None:
        return problem_page(context, session, 404, "This console has no scenario; CONSOLE_SCENARIO names one")
    sections = context.learning.sections()
    place = next((at for at, one in enumerate(sections) if exercise and one.number == exercise), section)
    if place >= len(sections) or (exercise and sections[place].number != exercise):
        return problem_page(context, session, 404, f"{found.name} has no such section; /scenario is its first")
    chosen = sections[place]
    may_run = context.settings.operator and not context.learning.why_not
    checked = any(one.number == chosen.number for one in context.learning.exercises())
    return await page(
        context, session, "scenario", f"Lab {found.name}", str(chosen.number if checked else 0), scenario=found,
        sections=sections, place=place, section=chosen, checked=checked,
        manifest=next((one for one in found.manifests if one.name == file), None),
        text=lab_html(chosen.markdown, found.name, chosen.number if may_run else 0, place),
    )  # fmt: skip


@router.get("/scenario/document")
async def document(context: ContextOf, session: SessionOf, path: PathOf) -> Response:
    """One of the kit's documents, to which the lab's text links."""
    found = document_html(path)
    if found is None:
        return problem_page(context, session, 404, "The kit has no such document")
    return await page(context, session, "document", found[0], text=found[1], path=path)


@router.get("/scenario/elsewhere")
async def elsewhere(context: ContextOf, session: SessionOf, path: PathOf) -> Response:
    """Where a file is that no page shows."""
    return problem_page(context, session, 404, f"{path} is a file of the kit's checkout; open it there")


@router.get("/scenario/picture")
async def picture(context: ContextOf, session: SessionOf, path: PathOf) -> Response:
    """A picture of a document."""
    file = kit_file(path, PICTURES)
    return FileResponse(file) if file else problem_page(context, session, 404, "The kit has no such picture")


@router.post("/learn/run", dependencies=[WithToken])
async def run(
    context: ContextOf,
    session: SessionOf,
    exercise: Number,
    command: Annotated[str, Query(pattern=r"^[0-9a-f]{16}$")],
) -> Response:
    """Runs a command of the text."""
    return _begun(context, session, exercise, "run", lambda: context.learning.run(session.user, exercise, command))


@router.post("/learn/stop", dependencies=[WithToken])
async def stop(context: ContextOf, exercise: Number) -> Response:
    """Stops what is running of the lab."""
    await context.learning.stop()
    return _back(exercise)


@router.post("/learn/{action}", dependencies=[WithToken])
async def act(context: ContextOf, session: SessionOf, action: LearnAction, exercise: Number) -> Response:
    """Starts, checks, helps with, solves or resets an exercise."""
    return _begun(context, session, exercise, action, lambda: context.learning.act(session.user, exercise, action))


def _begun(context: Context, session: Session, exercise: int, action: str, begin: Callable[[], None]) -> Response:
    if action in CHANGING and not context.settings.operator:
        raise HTTPException(403, OPERATOR_OFF)
    try:
        begin()
    except UnknownError:
        raise
    except LabError as error:
        context.note(session, str(error), good=False)
    return _back(exercise)


def _back(exercise: int) -> Response:
    return RedirectResponse(f"/scenario?exercise={quote(str(exercise))}#progress", 303)
