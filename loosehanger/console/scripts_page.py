"""The page for scripts: tokens, examples with curl, and the API's reference, which needs no other host."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Path, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from loosehanger.console.api import ContextOf, SessionOf
from loosehanger.console.api_tokens import MOST_NAME
from loosehanger.console.context import Context
from loosehanger.console.description import openapi_document, operations, schemas
from loosehanger.console.pages import WithToken
from loosehanger.console.sign_in import Session
from loosehanger.errors import LabError

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)


def _page(request: Request, context: Context, session: Session, status: int = 200, **more: Any) -> Response:
    document = openapi_document(request.app)
    html = context.views.template(
        "scripts.html.j2",
        title="API",
        view="scripts",
        of="",
        session=session,
        tokens=context.tokens.all(),
        origin=f"{request.url.scheme}://{request.headers['host']}",
        operations=operations(document),
        schemas=schemas(document),
        most_name=MOST_NAME,
        **{"note": None, "made": "", **more},
    )
    return HTMLResponse(html, status)


@router.get("/scripts")
async def scripts(request: Request, context: ContextOf, session: SessionOf) -> Response:
    """Tokens, examples and the reference."""
    return _page(request, context, session, note=context.take_note(session))


@router.post("/scripts/tokens", dependencies=[WithToken])
async def make(
    request: Request,
    context: ContextOf,
    session: SessionOf,
    name: Annotated[str, Form(max_length=200)] = "",
    rights: Annotated[Literal["read", "change"], Form()] = "read",
) -> Response:
    """Makes a token. This answer shows it, and nothing shows it again."""
    if rights == "change" and not context.settings.operator:
        return _page(request, context, session, 403, note=(_NO_CHANGES, False))
    try:
        made = context.tokens.make(name, change=rights == "change")
    except LabError as error:
        return _page(request, context, session, 400, note=(str(error), False))
    context.changes.add(session.user, "", "make token", " ".join(name.split()), done=True, said=f"it may {rights}")
    return _page(request, context, session, made=made)


@router.post("/scripts/tokens/{identity}/revoke", dependencies=[WithToken])
async def revoke(
    context: ContextOf, session: SessionOf, identity: Annotated[str, Path(pattern="^[0-9a-f]{16}$")]
) -> Response:
    """Revokes a token."""
    try:
        name = context.tokens.revoke(identity)
        context.changes.add(session.user, "", "revoke token", name, done=True, said="it is no longer valid")
        context.note(session, f"The token '{name}' is revoked", good=True)
    except LabError as error:
        context.note(session, str(error), good=False)
    return RedirectResponse("/scripts", 303)


_NO_CHANGES = (
    "this console makes only tokens that read; set the lab up with -e console_operator=true for tokens that change"
)
