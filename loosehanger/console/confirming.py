"""The page that asks once before a change, and the change after it. Neither needs a script in the browser."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Depends, Form
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import Field

from loosehanger.console.context import Context, require_operator
from loosehanger.console.pages import page
from loosehanger.console.sign_in import Session
from loosehanger.errors import LabError

ASKED = [Depends(require_operator)]
"""Of each page that asks: a console that may change the lab."""
Region = Annotated[str, Field(max_length=63)]
Topic = Annotated[str, Field(max_length=249)]
RegionField = Annotated[Region, Form()]
TopicField = Annotated[Topic, Form()]


def topic_page(topic: str) -> str:
    """The path of a topic's page."""
    return f"/topics/{quote(topic, safe='')}"


async def confirm(
    context: Context,
    session: Session,
    title: str,
    action: str,
    button: str,
    back: str,
    fields: Mapping[str, Any],
    **more: Any,
) -> HTMLResponse:
    """The page that asks once.

    Args:
        context: the console.
        session: who is asked.
        title: the question.
        action: the path that makes the change.
        button: the button's name.
        back: the page to cancel to.
        fields: what the change's form sends.
        more: ``facts`` and ``warnings`` (sentences without a full stop), ``texts`` (each with its label), ``table``,
            ``refused`` (why the change cannot be made; empty if it can), ``encoding`` of the form.
    """
    return await page(
        context, session, "confirm", title, action=action, button=button, back=back, fields=fields,
        **{"facts": [], "warnings": [], "texts": [], "table": None, "refused": "", "encoding": "", **more},
    )  # fmt: skip


def compared(subject: str, rows: Sequence[tuple[str, str, str]]) -> dict[str, Any]:
    """The table of a page that asks: each subject as it is, and as it will be."""
    return {"label": "Before and after", "numbers": 0, "rows": rows, "columns": [subject, "Now", "Afterwards"]}


async def made(context: Context, session: Session, work: Awaitable[str], then: str, otherwise: str) -> Response:
    """Makes a change, and continues to a page that shows its outcome."""
    try:
        context.note(session, await work, good=True)
    except LabError as error:
        context.note(session, str(error), good=False)
        return RedirectResponse(otherwise, 303)
    return RedirectResponse(then, 303)
