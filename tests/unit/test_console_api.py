"""Fuzzed requests against the API's own description: no server error, and no answer that it does not describe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from loosehanger.console import guard
from loosehanger.console.app import create_app
from tests.consoles import Browser, MadeUpService, Running, running
from tests.consoles import settings as console_settings

EXAMPLES = 30
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
MADE_UP = console_settings("europe", "north-america", "south-america")


@pytest.fixture(scope="module")
def console() -> Iterator[Running]:
    """The control room, which has every route, and does not count requests."""
    with pytest.MonkeyPatch.context() as patch, running(MADE_UP) as found:
        patch.setattr(guard, "MOST_CHANGES", 10**6)
        yield found


@pytest.fixture(scope="module")
def fuzzer(console: Running) -> Browser:
    """Somebody who signed in and has the token."""
    browser = console.browser()
    browser.headers["X-CSRF-Token"] = browser.token()
    return browser


def operations() -> list[tuple[str, str]]:
    """Every path and method that the control room's API has."""
    document = create_app(MADE_UP, MadeUpService(MADE_UP)).openapi()
    return [(path, method) for path, methods in document["paths"].items() for method in methods]


@pytest.mark.parametrize(("path", "method"), operations())
def test_fuzzed_requests_bring_no_server_error(console: Running, fuzzer: Browser, path: str, method: str) -> None:
    description = schemathesis.openapi.from_dict(fuzzer.get("/api/openapi.json").json())

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(case=description[path][method].as_strategy())
    def fuzz(case: schemathesis.Case[Any]) -> None:
        answer = case.call(base_url=console.url, session=fuzzer, allow_redirects=False, timeout=10)
        case.validate_response(answer, checks=CHECKS)

    fuzz()
