"""Fuzzed requests against the API's own description: no server error, and no answer that it does not describe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.consoles import Browser, Running, running
from tests.consoles import settings as console_settings


@pytest.fixture(scope="module")
def console() -> Iterator[Running]:
    """The control room, which has every route."""
    with running(console_settings("europe", "north-america", "south-america")) as found:
        yield found


@pytest.fixture(scope="module")
def fuzzer(console: Running) -> Browser:
    """Somebody who signed in and has the token."""
    browser = console.browser()
    browser.headers["X-CSRF-Token"] = browser.token()
    return browser


@pytest.fixture
def schema(console: Running) -> schemathesis.BaseSchema:
    """What it says of itself."""
    return schemathesis.openapi.from_dict(console.browser().get("/api/openapi.json").json())


described = schemathesis.pytest.from_fixture("schema")


@described.parametrize()
@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_fuzzed_requests_bring_no_server_error(case: schemathesis.Case[Any], console: Running, fuzzer: Browser) -> None:
    answer = case.call(base_url=console.url, session=fuzzer, allow_redirects=False, timeout=10)
    case.validate_response(
        answer,
        checks=[not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance],
    )
