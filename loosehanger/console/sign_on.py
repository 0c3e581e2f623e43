"""One-time sign-in: from ``./lab open``, and from one console of the lab to the next."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Form, Path, Request
from fastapi.responses import HTMLResponse, Response

from loosehanger.console.api import NAME, ContextOf
from loosehanger.console.guard import POLICY
from loosehanger.console.neighbours import ONE_TIME
from loosehanger.console.pages import WithToken
from loosehanger.console.region_views import UnknownError
from loosehanger.console.sign_in import LONGEST_DELAY_S
from loosehanger.signing.one_time import VALID_S, new_token

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)


@router.post(ONE_TIME)
async def sign_in_once(context: ContextOf, token: Annotated[str, Form()] = "") -> Response:
    """Opens a session for a one-time token.

    It answers with a page that leads on, and not with a redirect: the request comes from another site's page or from a
    file, and browsers would send the new cookie, which is strict, with no request that follows from it.
    """
    if context.one_time.accept(token):
        return context.signed_in(HTMLResponse(context.views.template("signed_in.html.j2")))
    wrong, status, headers = (
        f"This sign-in was used before, or is older than {VALID_S} seconds. Run ./lab open again, or sign in here."
    ), 403, {}  # fmt: skip
    async with context.one_time_attempts.delay() as seconds:
        if seconds is None:
            wrong, status = "Too many wrong tokens at once. Try again in a moment.", 429
            headers["retry-after"] = str(round(LONGEST_DELAY_S))
        else:
            with suppress(TimeoutError):
                await asyncio.wait_for(context.stopping.wait(), seconds)
    html = context.views.template("sign_in.html.j2", next="/", wrong=wrong, username="")
    return HTMLResponse(html, status, headers=headers)


@router.post("/consoles/{name}", dependencies=[WithToken])
async def go(request: Request, context: ContextOf, name: Annotated[str, Path(pattern=NAME)]) -> Response:
    """Signs in to another console of the lab: the answer is a page that posts a one-time token there."""
    key = context.neighbours.key_of(name)
    address = context.neighbours.address(name, urlsplit(f"//{request.headers['host']}").hostname or "")
    if key is None or address is None:
        raise UnknownError(f"This lab has no other console '{name}' that this one can sign in to")
    html = context.views.template(
        "sign_on.html.j2", console=name, action=address + ONE_TIME, token=new_token(key, name)
    )
    # The only page that may post to another address, and to this one only.
    policy = POLICY.replace("form-action 'self'", f"form-action {address}")
    return HTMLResponse(html, headers={"content-security-policy": policy})
