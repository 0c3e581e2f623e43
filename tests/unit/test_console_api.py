"""Fuzzed requests against the API's own description: no server error, and no answer that it does not describe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import booleans
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from loosehanger.console import guard, operations
from loosehanger.console.app import create_app
from loosehanger.console.jobs import Jobs
from loosehanger.console.mirrors import Action
from tests.consoles import Browser, MadeUpService, Running, running
from tests.consoles import settings as console_settings

EXAMPLES = 30
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
MADE_UP = console_settings("europe", "north-america", "south-america", operator=True)
"""The control room, which has every route; with the switch, so that changes are not refused before they are read."""
KNOWN = {
    "region": "north-america", "topic": "LH.ORDERS", "mirror": "mm2", "one": "europe", "other": "north-america",
    "connector": "europe->here.MirrorSourceConnector",
}  # fmt: skip
MADE = {
    ("/api/regions/{region}/topics", "post"): {"create topic"},
    ("/api/regions/{region}/topics/{topic}", "delete"): {"delete topic"},
    ("/api/regions/{region}/mirrors/{mirror}/connectors/{connector}/{action}", "post"): {
        f"{action} connector" for action in get_args(Action)
    },
}
"""Changes that requests make, each at least once."""
FIXED = {
    ("/api/regions/{region}/mirrors/{mirror}/connectors/{connector}/{action}", "post"): [
        {"action": action} for action in get_args(Action)
    ],
}
"""Requests beside the fuzzed ones, by what differs from the names that are there."""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The control room of a lab on this machine, which does not count requests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "MOST_CHANGES", 10**6)
        patch.setattr(operations, "MOST_A_MINUTE", 10**6)
        home = tmp_path_factory.mktemp("lab")
        (home / "regions" / "europe" / "links" / "north-america").mkdir(parents=True)
        with running(replace(MADE_UP, lab_home=home)) as found:
            found.app.state.context.jobs = Jobs(None)  # No proof of a lab that is not there.
            yield found


@pytest.fixture(scope="module")
def fuzzer(console: Running) -> Browser:
    """A user who has signed in and has the token."""
    browser = console.browser()
    browser.headers["X-CSRF-Token"] = browser.token()
    return browser


def routes() -> list[tuple[str, str]]:
    """Every path and method that the control room's API has."""
    document = create_app(MADE_UP, MadeUpService(MADE_UP)).openapi()
    return [(path, method) for path, methods in document["paths"].items() for method in methods]


@pytest.mark.parametrize(("path", "method"), routes())
def test_fuzzed_requests_bring_no_server_error(console: Running, fuzzer: Browser, path: str, method: str) -> None:
    operation = schemathesis.openapi.from_dict(fuzzer.get("/api/openapi.json").json())[path][method]

    def send(case: schemathesis.Case[Any]) -> None:
        answer = case.call(base_url=console.url, session=fuzzer, allow_redirects=False, timeout=10)
        assert answer.status_code != 500
        case.validate_response(answer, checks=CHECKS)

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(case=operation.as_strategy(), known=booleans())
    def fuzz(case: schemathesis.Case[Any], known: bool) -> None:
        if known:  # Of random names, nothing is there that a change could reach.
            case.path_parameters |= {name: KNOWN[name] for name in case.path_parameters if name in KNOWN}
        send(case)

    fuzz()
    for fixed in FIXED.get((path, method), ()):
        names = {name for name in KNOWN if f"{{{name}}}" in path}
        send(operation.Case(path_parameters={name: KNOWN[name] for name in names} | fixed))
    made = {change.action for change in console.app.state.context.changes.latest() if change.done}
    refused = MADE.get((path, method), set()) - made
    assert not refused, "every request was refused before it reached what it would change"
