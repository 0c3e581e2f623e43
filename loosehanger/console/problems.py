"""Errors of the API as RFC 9457 describes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi.responses import Response

MEDIA_TYPE = "application/problem+json"


def problem_document(status: int, detail: str, **more: Any) -> dict[str, Any]:
    """The document of an error.

    Args:
        status: the HTTP status.
        detail: what is wrong, where, and what to do.
        more: members of this problem alone.
    """
    title = HTTPStatus(status).phrase if status in set(HTTPStatus) else "Request not completed"
    return {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}


def problem_response(status: int, detail: str, headers: Mapping[str, str] | None = None, **more: Any) -> Response:
    """The response of an error."""
    body = json.dumps(problem_document(status, detail, **more), ensure_ascii=False)
    return Response(body, status, headers=dict(headers or {}), media_type=MEDIA_TYPE)
