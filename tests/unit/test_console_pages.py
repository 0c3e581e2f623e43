"""The whole console in front of made-up clusters: who may see what, what a change needs, and what is shown as text."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import requests
from fastapi.routing import iter_route_contexts
from starlette.routing import Mount

from loosehanger.console import sign_in
from loosehanger.console.change_log import ChangeLog
from loosehanger.console.cluster import ClusterView
from loosehanger.console.guard import POLICY
from loosehanger.console.history import LastHour
from loosehanger.console.jobs import Jobs
from loosehanger.console.links import LinkView
from loosehanger.console.models import Group, JobState, Mirror
from loosehanger.console.operations import Operations
from loosehanger.console.views import Views, charts, totals
from loosehanger.kafka.retention_risk import PartitionRisk, TopicRisk
from loosehanger.lab.progress import Progress
from loosehanger.paths import ROOT
from loosehanger.platforms.local.certificates import ensure_authority, ensure_certificate
from loosehanger.platforms.local.region import LocalRegion
from tests.consoles import HOSTILE, Browser, MadeUpMirror, MadeUpService, Record, Running, running, settings

REGIONS = ("europe", "north-america", "south-america")
PAGES = (
    "/",
    "/charts",
    "/charts?of=LH.ORDERS",
    "/topics",
    "/topics/LH.ORDERS",
    "/messages",
    "/search",
    "/search?topic=LH.NONE",
    "/mirrors",
    "/groups",
    "/brokers",
    "/scripts",
)
CONTROL_ROOM_PAGES = (*PAGES, "/proof", "/aggregates", "/scenario", "/scenario?exercise=2&file=mm2-na.yaml")
CHANGE = "/api/regions/{}/topics/LH.ORDERS/settings"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """North America's console."""
    with running(settings("north-america", operator=True, lab_home=tmp_path_factory.mktemp("lab"))) as found:
        yield found


@pytest.fixture(scope="module")
def control_room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The control room of three regions."""
    with running(settings(*REGIONS, operator=True, lab_home=tmp_path_factory.mktemp("lab"))) as found:
        yield found


@pytest.fixture
def elsewhere() -> Iterator[Running]:
    """A control room whose lab is on another machine."""
    with running(settings(*REGIONS, operator=True)) as found:
        yield found


def routes(found: Running) -> list[tuple[str, str]]:
    """Every method and path that the application has, with something in place of its parameters."""
    given = {"region": "north-america", "topic": "LH.ORDERS", "mirror": "mm2", "action": "pause", "view": "topics",
             "connector": "x", "name": "proof", "identity": "0" * 16,
             "one": "europe", "other": "north-america"}  # fmt: skip
    listed = []
    for context in iter_route_contexts(found.app.routes):
        if isinstance(getattr(context, "route", context), Mount) or not getattr(context, "methods", None):
            continue
        path = re.sub(r"\{(\w+)\}", lambda match: given[match[1]], str(context.path))
        listed += [(method, path) for method in sorted(context.methods or ())]
    return listed


def test_there_are_routes_to_test(control_room: Running) -> None:
    found = routes(control_room)
    assert ("PATCH", CHANGE.format("north-america")) in found
    assert ("GET", "/events/messages") in found
    assert len(found) > 35


def test_without_a_session_everything_is_closed(control_room: Running) -> None:
    stranger = control_room.browser(signed_in=False)
    for method, path in [*routes(control_room), ("GET", "/nothing"), ("GET", "/api/nothing"), ("GET", "/api")]:
        if path in ("/sign-in", "/health"):
            continue
        if path == "/metrics":
            assert stranger.request(method, path).status_code == 404, "this console has no token for scrapers"
            continue
        if path == "/sign-in/once":
            assert stranger.request(method, path).status_code == 403, "it needs a token"
            continue
        answer = stranger.request(method, path)
        if path.startswith(("/api", "/events/")):
            assert answer.status_code == 401, path
        else:
            assert answer.status_code == 303, path
            assert answer.headers["location"].startswith("/sign-in"), path
    answer = stranger.get("/api/topics")
    assert answer.json()["detail"].startswith("sign in first: send a token of the page /scripts")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_no_change_works_without_its_token(control_room: Running) -> None:
    browser = control_room.browser()
    changes = [(method, path) for method, path in routes(control_room) if method not in ("GET", "HEAD", "OPTIONS")]
    changes.remove(("POST", "/sign-in"))
    assert len(changes) >= 9
    for method, path in changes:
        for headers in ({}, {"X-CSRF-Token": "wrong"}, {"X-CSRF-Token": control_room.browser().token()}):
            body = {"json": {"settings": {"a": "b"}}} if path.startswith("/api") else {
                "data": {"csrf": headers.get("X-CSRF-Token", ""), "region": "europe", "topic": "LH.ORDERS", "name": "a"}
            }  # fmt: skip
            answer = browser.request(method, f"{path}?connector=x", headers=headers, **body)
            assert answer.status_code == 403, (method, path, answer.text)
    assert browser.get("/api/session").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1:1"}, {"Origin": "http://["},
     {"Origin": "http://]:x"}, {"Origin": ""},
     {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}],
)  # fmt: skip
def test_another_sites_page_can_change_nothing_not_even_sign_in(console: Running, headers: dict[str, str]) -> None:
    browser = console.browser()
    answer = browser.patch(
        CHANGE.format("north-america"),
        json={"settings": {"a": "b"}},
        headers={"X-CSRF-Token": browser.token(), **headers},
    )
    assert answer.status_code == 403
    assert "another site" in answer.json()["detail"]
    stranger = console.browser(signed_in=False)
    right = {"username": "operator", "password": "a password of the tests"}
    assert stranger.post("/sign-in", data=right, headers=headers).status_code == 403


def test_its_own_page_may(console: Running) -> None:
    browser = console.browser(signed_in=False)
    headers = {"Origin": console.url, "Sec-Fetch-Site": "same-origin"}
    right = {"username": "operator", "password": "a password of the tests"}
    assert browser.post("/sign-in", data=right, headers=headers).status_code == 303


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "europe.localhost", "127.0.0.1.evil.example", "", "[::2]", "a@127.0.0.1"],
)
def test_a_foreign_name_that_was_pointed_here_is_refused(console: Running, host: str) -> None:
    for path in ("/", "/sign-in", "/api/topics", "/static/console.css"):
        answer = console.browser().get(path, headers={"Host": host})
        assert answer.status_code in (400, 421), path
        assert "operator" not in answer.text


@pytest.mark.parametrize(
    "host", ["localhost:1234", "127.0.0.1", "[::1]:99", "LOCALHOST", "north-america.localhost:19270"]
)
def test_its_own_names_are_known_on_any_port(console: Running, host: str) -> None:
    assert console.browser(signed_in=False).get("/sign-in", headers={"Host": host}).status_code == 200


def test_every_answer_has_the_security_headers(control_room: Running) -> None:
    browser, stranger = control_room.browser(), control_room.browser(signed_in=False)
    answers = [browser.get(path) for path in (*CONTROL_ROOM_PAGES, "/api/topics", "/static/console.js", "/nothing")]
    answers += [stranger.get(path) for path in ("/", "/api/topics", "/sign-in")]
    answers += [stranger.sign_in(password="wrong"), browser.get("/", headers={"Host": "evil.example"})]
    for answer in answers:
        assert answer.headers["content-security-policy"] == POLICY, answer.url
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        kept = "no-cache" if "/static/" in answer.url else "no-store"
        assert answer.headers["cache-control"] == kept, answer.url
        assert "server" not in answer.headers
    assert "unsafe" not in POLICY


class Elements(HTMLParser):
    """The elements of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keeps it."""
        self.found.append((tag, dict(attrs)))


def test_pages_have_no_script_or_style_of_their_own(control_room: Running) -> None:
    browser = control_room.browser()
    for path in (*CONTROL_ROOM_PAGES, "/sign-in"):
        elements = Elements(browser.get(path, allow_redirects=True).text).found
        assert len(elements) > 10
        for tag, attributes in elements:
            assert tag != "style", path
            assert not [name for name in attributes if name == "style" or name.startswith("on")], (path, tag)
            assert tag != "script" or (attributes["src"] or "").startswith("/static/"), path
            for address in (attributes.get("src"), attributes.get("href"), attributes.get("action")):
                assert not re.match(r"\w+:|//", address or ""), (path, address)


def test_the_cookie_is_for_this_console_only_and_for_no_script(console: Running) -> None:
    browser = console.browser(signed_in=False)
    cookie = browser.sign_in().headers["set-cookie"]
    assert cookie.startswith("session-north-america=")
    assert {"httponly", "samesite=strict", "path=/"} <= {part.strip().lower() for part in cookie.split(";")}


def test_with_a_certificate_it_speaks_tls_and_so_does_the_cookie(tmp_path: Path) -> None:
    region = LocalRegion(tmp_path, ROOT, "europe", 0)
    ensure_authority(region, "console", 1)
    ensure_certificate(region, "console", "console-tls", "console", [], 1)
    pair = region.secrets / "console-tls"
    with running(settings("europe", certificate=pair / "tls.crt", key=pair / "tls.key")) as found:
        browser = found.browser(signed_in=False)
        browser.verify = str(region.secrets / "console-cluster-ca-cert" / "ca.crt")
        assert "secure" in browser.sign_in().headers["set-cookie"].lower()
        assert browser.get("/api/topics").status_code == 200
        browser.close()


@pytest.mark.parametrize(
    ("wanted", "location"),
    [("/topics?a=b", "/topics?a=b"), ("//evil.example", "/"), ("https://evil.example", "/"), ("/\\evil.example", "/"),
     ("/a\r\nset-cookie: x=y", "/"), ("", "/"), ("/..//evil.example", "/"), ("/%2e%2E//evil.example", "/"),
     ("/topics//evil.example", "/"), ("/%5cevil.example", "/"), ("/a/../b", "/"), ("/%0d%0aa", "/"),
     ("/search?text=a//b\\..", "/search?text=a//b%5C.."), ("/topics/", "/topics/")],
)  # fmt: skip
def test_signing_in_leads_on_within_the_console(console: Running, wanted: str, location: str) -> None:
    assert console.browser(signed_in=False).sign_in(next=wanted).headers["location"] == location


def test_who_was_sent_to_sign_in_comes_back_to_where_he_wanted(console: Running) -> None:
    stranger = console.browser(signed_in=False)
    location = stranger.get("/messages?topic=LH.ORDERS&text=a%26b").headers["location"]
    form = stranger.get(location).text
    assert 'name="next" value="/messages?topic=LH.ORDERS&amp;text=a%26b"' in form


def test_signing_out_ends_the_session_wherever_its_cookie_is(console: Running) -> None:
    browser = console.browser()
    kept = browser.cookies.get_dict()
    assert browser.post("/sign-out", data={"csrf": browser.token()}).status_code == 303
    thief = console.browser(signed_in=False)
    thief.cookies.update(kept)
    assert thief.get("/api/topics").status_code == 401


def test_wrong_passwords_are_slowed_down_and_lock_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in, "LONGEST_DELAY_S", 6.0)
    with running(settings("europe")) as found, ThreadPoolExecutor(60) as pool:

        def attempt(number: int) -> tuple[int, float, str]:
            began = time.monotonic()
            answer = found.browser(signed_in=False).sign_in(password=f"guess {number}")
            return answer.status_code, time.monotonic() - began, answer.text

        first = [attempt(number) for number in range(3)]
        assert {status for status, _, _ in first} == {403}
        assert "User or password is wrong" in first[0][2]
        assert max(seconds for _, seconds, _ in first) < 5
        guesses = [pool.submit(attempt, number) for number in range(60)]
        deadline = time.monotonic() + 120
        while found.app.state.context.attempts._delayed < sign_in.MOST_DELAYED:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        # It waits for the passwords before it, and not for their answers.
        assert found.browser(signed_in=False).sign_in().status_code == 303
        answers = [guess.result() for guess in guesses]
        assert {status for status, _, _ in answers} == {403, 429}
        assert max(seconds for status, seconds, _ in answers if status == 403) > 1
        assert any("The right one is still accepted" in text for _, _, text in answers)


def test_asking_for_the_form_starts_work_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(settings("europe")) as found:
        cluster = found.service.regions["europe"].cluster
        held = threading.Event()
        tries: list[None] = []
        monkeypatch.setattr(cluster, "warm", lambda: ClusterView.warm(cluster))

        def connect() -> None:
            tries.append(None)
            held.wait(10)

        monkeypatch.setattr(cluster, "_connect_quietly", connect)
        try:
            for _ in range(12):
                assert found.browser(signed_in=False).get("/sign-in").status_code == 200
            assert len(tries) == 1
            assert cluster._thread._work_queue.qsize() == 0
        finally:
            held.set()


def test_pages_open(console: Running, control_room: Running) -> None:
    for found, pages in ((console, PAGES), (control_room, CONTROL_ROOM_PAGES)):
        browser = found.browser()
        for path in pages:
            answer = browser.get(path)
            assert answer.status_code == 200, path
            assert 'aria-current="page"' in answer.text, path
            assert "could not be rendered" not in answer.text


def test_a_regions_console_has_nothing_of_another_region(console: Running) -> None:
    browser = console.browser()
    for path in ("/proof", "/aggregates", "/scenario", "/api/flows", "/api/proof", "/events/messages?region=europe"):
        assert browser.get(path).status_code == 404, path
    answer = browser.change("PATCH", CHANGE.format("europe"), json={"settings": {"retention.ms": "1"}})
    assert answer.status_code == 404
    assert answer.json()["detail"] == "this console has no region 'europe'; it has: north-america"
    assert "europe" not in browser.get("/topics").text
    assert {topic["region"] for topic in browser.get("/api/topics").json()["topics"]} == {"north-america"}


def test_a_configuration_is_changed_through_the_api_and_through_the_page(control_room: Running) -> None:
    browser = control_room.browser()
    answer = browser.change("PATCH", CHANGE.format("europe"), json={"settings": {"retention.ms": "5000"}})
    assert answer.json() == {
        "said": "europe: LH.ORDERS: retention.ms=5000. Mirrors of this topic follow within seconds"
    }
    form = {"csrf": browser.token(), "region": "south-america", "topic": "LH.ORDERS", "name": "retention.ms"}
    answer = browser.post("/operate/settings", data={**form, "value": "7"})
    assert answer.headers["location"] == "/topics/LH.ORDERS"
    (comparison,) = browser.get("/api/topics/LH.ORDERS/comparison").json()
    assert comparison["regions"][0] == "europe"
    rows = {row["name"]: row for row in comparison["rows"]}
    assert [cell["value"] for cell in rows["retention.ms"]["cells"]] == ["5000", "1000", "7"]
    assert rows["retention.ms"]["differs"]
    assert not rows["cleanup.policy"]["differs"]
    page = browser.get("/topics/LH.ORDERS").text
    assert "south-america: LH.ORDERS: retention.ms=7" in page
    assert "retention.ms=7. Mirrors" not in browser.get("/topics/LH.ORDERS").text


def test_a_mirror_is_paused_and_says_what_to_do(console: Running) -> None:
    browser = console.browser()
    connector = "europe->here.MirrorSourceConnector"
    form = {"csrf": browser.token(), "region": "north-america", "mirror": "mm2", "connector": connector}
    assert browser.post("/operate/connector", data={**form, "action": "pause"}).status_code == 303
    mirror = browser.get("/api/mirrors").json()["mirrors"][0]
    assert mirror["health"] == "warning"
    assert "north-america's mirror mm2: europe->here.MirrorSourceConnector is paused" in mirror["explanation"]
    assert "Start it with Resume" in browser.get("/mirrors").text
    browser.change("POST", f"/api/regions/north-america/mirrors/mm2/connectors/{connector.replace('>', '%3E')}/resume")
    assert browser.get("/api/mirrors").json()["mirrors"][0]["health"] == "good"


def test_a_cluster_that_is_away_is_explained_and_the_others_are_shown(control_room: Running) -> None:
    browser = control_room.browser()
    cluster = control_room.service.regions["south-america"].cluster
    cluster.down = True
    try:
        for path in ("/topics", "/groups", "/brokers", "/topics/LH.ORDERS", "/"):
            page = browser.get(path).text
            assert "south-america: Kafka does not answer" in page, path
            assert "europe" in page
        answer = browser.get("/api/topics").json()
        assert len(answer["topics"]) == 2
        assert len(answer["problems"]) == 1
        refused = browser.change("PATCH", CHANGE.format("south-america"), json={"settings": {"a": "b"}})
        assert refused.status_code == 503
    finally:
        cluster.down = False


def test_hostile_content_is_shown_as_text(control_room: Running) -> None:
    browser = control_room.browser()
    for region in control_room.service.regions.values():
        for mirror in region.mirrors.values():
            mirror.connector_state, mirror.trace = "FAILED", f"{HOSTILE}\n\tat {HOSTILE}"  # type: ignore[attr-defined]
    try:
        for path in (
            "/topics",
            "/topics/LH.ORDERS",
            "/groups",
            "/mirrors",
            "/",
            f"/messages?topic={HOSTILE}&text={HOSTILE}",
        ):
            page = browser.get(path).text
            assert "<script>document" not in page, path
            assert "<img src=x" not in page
            assert "\x1b" not in page
            assert "\u202e" not in page
        assert "&lt;script&gt;" in browser.get("/mirrors").text
    finally:
        for region in control_room.service.regions.values():
            for mirror in region.mirrors.values():
                mirror.connector_state, mirror.trace = "RUNNING", ""  # type: ignore[attr-defined]


def events(answer: requests.Response) -> Iterator[tuple[str, Any]]:
    """The events of a stream."""
    name = ""
    for line in answer.iter_lines(chunk_size=1, decode_unicode=True):
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def stream(browser: Browser, path: str) -> requests.Response:
    """A stream."""
    answer = browser.get(path, stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    return answer


def test_messages_arrive_while_a_viewer_waits(console: Running) -> None:
    live = console.service.regions["north-america"].live
    with stream(console.browser(), "/events/messages?topic=LH.STOCK&text=jeans") as answer:
        deadline = time.monotonic() + 120
        while not live._viewers:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        live.feed(
            Record(topic="LH.STOCK", value=b"shoes"), Record(topic="LH.STOCK", value=HOSTILE.encode() + b" Jeans")
        )
        name, data = next(events(answer))
    assert (name, len(data["messages"]), data["dropped"]) == ("messages", 1, 0)
    assert data["messages"][0]["value"].endswith(" Jeans")


def test_a_view_is_sent_again_when_it_has_changed(control_room: Running) -> None:
    browser = control_room.browser()
    with stream(control_room.browser(), "/events/views/topic?of=LH.ORDERS") as answer:
        found = events(answer)
        assert "4711" not in next(found)[1]
        browser.change("PATCH", CHANGE.format("europe"), json={"settings": {"retention.ms": "4711"}})
        assert "4711" in next(found)[1]


@pytest.mark.parametrize("path", ["/events/messages", "/events/views/topics"])
def test_a_stream_ends_with_its_session(console: Running, path: str) -> None:
    browser, other = console.browser(), console.browser(signed_in=False)
    other.cookies.update(browser.cookies.get_dict())
    token = browser.token()
    with stream(browser, path) as answer:
        other.post("/sign-out", data={"csrf": token})
        assert [data for name, data in events(answer) if name == "end"] == ["signed out"]
    live = console.service.regions["north-america"].live
    deadline = time.monotonic() + 120
    while live._viewers or len(console.app.state.context.channels):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_fifty_viewers_who_leave_leave_nothing_behind(console: Running) -> None:
    browser = console.browser()
    answers = [stream(browser, "/events/messages") for _ in range(25)]
    answers += [stream(browser, "/events/views/topics") for _ in range(25)]
    context = console.app.state.context
    live = console.service.regions["north-america"].live
    assert len(context.channels) == 1
    for answer in answers:
        answer.close()
    deadline = time.monotonic() + 120
    while live._viewers or len(context.channels):
        live.feed(Record())
        assert time.monotonic() < deadline, (len(live._viewers), len(context.channels))
        time.sleep(0.1)


def test_a_request_that_is_too_long_is_refused(console: Running) -> None:
    browser = console.browser()
    big = {"settings": {f"a{number}": "x" * 3000 for number in range(40)}}
    assert browser.change("PATCH", CHANGE.format("north-america"), json=big).status_code == 413


def test_the_openapi_description_is_for_those_who_signed_in(console: Running, control_room: Running) -> None:
    document = control_room.browser().get("/api/openapi.json").json()
    assert {"/api/topics", "/api/history", "/api/mirrors", "/api/flows", "/api/proof"} <= set(document["paths"])
    assert "/api/flows" not in console.browser().get("/api/openapi.json").json()["paths"]


def test_the_proof_cannot_run_where_the_lab_is_on_another_machine(elsewhere: Running) -> None:
    browser = elsewhere.browser()
    assert browser.get("/api/proof").json()["state"] == "unavailable"
    answer = browser.change("POST", "/api/proof")
    assert answer.status_code == 400
    assert "run ./lab prove" in answer.json()["detail"]


def test_it_answers_whoever_asks_for_its_health(console: Running) -> None:
    assert console.browser(signed_in=False).get("/health").text == "healthy\n"


def test_odd_numbers_and_names_in_the_aggregates_end_no_page() -> None:
    odd = ["NaN", "sNaN", "-Infinity", "Infinity", None, "x", 10**400, "-5", "7.5", [1]]
    rows = [{"name": f"{HOSTILE}\ud800 {number}", "revenue": value} for number, value in enumerate(odd)]
    result: dict[str, object] = {
        "regions": {region: {"revenue": odd[place], "by_product": rows} for place, region in enumerate("abc")}
    }
    job = JobState(name="aggregates", state="done", explanation="", started=1.0, seconds=1.0, progress=[], exit_code=0,
                   result=result)  # fmt: skip
    given = settings(*REGIONS)
    service = MadeUpService(given)
    operations = Operations(given, service, LinkView(None), ChangeLog(None))
    views = Views(given, service, Jobs(None), LinkView(None), LastHour(), operations)
    data = {"job": job, "charts": charts(job), "totals": totals(job)}
    page = views.fragment("aggregates", data).encode().decode()
    assert "7.5" in page
    assert "<script>document" not in page
    assert all(0 <= share <= 1 for chart in charts(job) for _, bars in chart["groups"] for _, share in bars)


def test_a_mirror_that_could_lose_records_is_warned_of_and_what_is_lost_is_told(control_room: Running) -> None:
    losses = control_room.service.regions["europe"].losses
    danger = TopicRisk("LH.ORDERS", 2000, 90.0, 45.0, "time", 0, 0.0, endangered=True, gone=0, made_again=False)
    try:
        losses.dangers = {danger.topic: danger}
        flows = control_room.browser().get("/api/flows").json()["flows"]
        flow = next(flow for flow in flows if flow["source"] == "europe")
        assert (flow["lag_s"], flow["loss_in_s"], flow["health"]) == (90.0, 45.0, "warning")
        page = control_room.browser().get("/").text
        assert "the source may delete them by time in 45 s" in page
        losses.dangers = {danger.topic: replace(danger, gone=1500)}
        flows = control_room.browser().get("/api/flows").json()["flows"]
        flow = next(flow for flow in flows if flow["source"] == "europe")
        assert (flow["gone"], flow["health"]) == (1500, "bad")
        assert "1,500 offsets were deleted before they were copied" in control_room.browser().get("/").text
    finally:
        losses.dangers = {}


@pytest.mark.parametrize(
    ("progress", "said"),
    [
        (Progress("07-active-active", "local", "i", stage="setup"),
         "07-active-active</a>, stage <strong>setup</strong>, on the platform <strong>local</strong>"),
        (Progress("05-active-passive", "local", "i", stage="setup", unfinished="failover"), "failover was begun"),
        (None, "03-broadcast</a></p>"),
    ],
)  # fmt: skip
def test_the_map_says_what_is_set_up_and_how_far_it_is(tmp_path: Path, progress: Progress | None, said: str) -> None:
    if progress:
        (tmp_path / "access").mkdir()
        (tmp_path / "access" / "lab.json").write_text(progress.text)
    with running(settings(*REGIONS, lab_home=tmp_path)) as found:
        assert said in found.browser().get("/").text


def test_the_map_keeps_the_flow_of_a_mirror_whose_workers_have_gone(
    control_room: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = control_room.service.regions["north-america"].mirrors["mm2"]
    assert isinstance(mirror, MadeUpMirror)
    (connector,) = asyncio.run(mirror.state()).connectors
    gone = Mirror(region="north-america", name="mm2", answers=False, connectors=[], latency_ms_p50=None,
                  latency_ms_p99=None, health="bad", explanation="no Connect worker answers")  # fmt: skip

    async def state() -> Mirror:
        return gone

    monkeypatch.setattr(mirror, "state", state)
    monkeypatch.setattr(mirror, "last", lambda: [connector.model_copy(update={"lag": 4711})])
    browser = control_room.browser()
    flow = next(one for one in browser.get("/api/flows").json()["flows"] if one["target"] == "north-america")
    assert (flow["lag"], flow["health"]) == (4711, "bad")
    assert "no Connect worker answers. Its lag is counted from" in flow["explanation"]
    assert "4,711 behind" in browser.get("/").text


def test_a_mirror_that_runs_and_delivers_nothing_is_not_shown_as_good(control_room: Running) -> None:
    stands = control_room.service.regions["europe"].losses.stands
    mirror: Any = control_room.service.regions["north-america"].mirrors["mm2"]
    key = "north-america/europe->here.MirrorSourceConnector"
    waits = PartitionRisk("LH.ORDERS", 0, 3, 0, 9, 5, age_s=100.0, oldest=4)
    browser = control_room.browser()

    def shown() -> list[tuple[str, str]]:
        mirrors = browser.get("/api/mirrors").json()["mirrors"]
        flows = browser.get("/api/flows").json()["flows"]
        (one,) = [found for found in mirrors if found["region"] == "north-america"]
        (flow,) = [found for found in flows if found["target"] == "north-america"]
        return [(found["health"], found["explanation"]) for found in (one, flow)]

    said = "no record was delivered for 1.7 min: LH.ORDERS-0 waits at offset 4"
    try:
        stands.read(key, [waits], 0.0)
        stands.read(key, [waits], 50.0)
        assert [health for health, _ in shown()] == ["good", "good"], "half a minute, and a minute for the position"
        stands.read(key, [waits], 100.0)
        assert all(health == "bad" and said in explanation for health, explanation in shown())
        assert browser.get("/api/mirrors").json()["mirrors"][0]["state"] == "Stalled"
        assert said in browser.get("/").text
        assert said in browser.get("/mirrors").text
        mirror.connector_state = "PAUSED"
        assert [health for health, _ in shown()] == ["warning", "warning"], "it must not deliver"
        mirror.connector_state = "RUNNING"
        assert [health for health, _ in shown()] == ["good", "good"], "its clock begins anew"
    finally:
        mirror.connector_state = "RUNNING"
        stands.forget(key)


@pytest.mark.parametrize(
    ("region", "settings", "synchronisation", "said"),
    [
        ("europe", ["min.insync.replicas"], {}, "=1. No mirror copies min.insync.replicas: set it in"),
        ("europe", ["retention.ms", "min.insync.replicas"], {},
         "follow within seconds. mm2 does not copy min.insync.replicas"),
        ("europe", ["retention.ms"], {"sync.topic.configs.enabled": "false"}, "No mirror copies retention.ms"),
        ("europe", ["retention.ms"], {"config.properties.exclude": r"a,retention\..*"}, "No mirror copies"),
        ("europe", ["min.insync.replicas"], {"config.properties.exclude": "a"}, "follow within seconds"),
        ("north-america", ["retention.ms"], {}, "north-america: LH.ORDERS: retention.ms=1"),
    ],
)  # fmt: skip
def test_a_change_says_whether_mirrors_copy_it(
    control_room: Running, monkeypatch: pytest.MonkeyPatch, region: str, settings: list[str],
    synchronisation: dict[str, str], said: str,
) -> None:  # fmt: skip
    routes = [replace(one, synchronisation=synchronisation) for one in control_room.service.routes]
    monkeypatch.setattr(control_room.service, "routes", tuple(routes))
    changed = {"settings": dict.fromkeys(settings, "1")}
    found = control_room.browser().change("PATCH", CHANGE.format(region), json=changed).json()["said"]
    assert said in found
    assert ("follow" in found) == ("follow" in said)


def test_what_no_mirror_copies_is_no_difference_to_wait_for(
    control_room: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = control_room.service.regions["europe"].cluster
    monkeypatch.setattr(cluster, "config", {"min.insync.replicas": "2"})
    for name in REGIONS[1:]:
        monkeypatch.setattr(control_room.service.regions[name].cluster, "config", {"min.insync.replicas": "1"})
    browser = control_room.browser()
    (comparison,) = browser.get("/api/topics/LH.ORDERS/comparison").json()
    (row,) = [row for row in comparison["rows"] if row["name"] == "min.insync.replicas"]
    assert (row["differs"], row["copied"]) == (True, False)
    page = browser.get("/topics/LH.ORDERS").text
    assert "no mirror copies it" in page
    assert "differs</span>" not in page


def test_a_group_without_members_is_no_alarm(console: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = Group(region="north-america", name="a visitor", kind="consumer", state="Empty", members=[], partitions=[],
                  lag=None)  # fmt: skip

    async def groups() -> list[Group]:
        return [empty]

    monkeypatch.setattr(console.service.regions["north-america"].cluster, "groups", groups)
    page = console.browser().get("/groups").text
    assert "It has no members now" in page
    assert 'class="problem"' not in page
    assert 'class="state warning"' not in page


def test_a_console_without_mirrors_shows_its_topics_in_its_charts() -> None:
    with running(settings("europe")) as found:
        page = found.browser().get("/charts").text
        assert "europe&#39;s topics" in page or "europe's topics" in page
        assert "Flows" not in page
    with running(settings("north-america")) as found:
        assert "Flows" in found.browser().get("/charts").text


def test_a_mirror_that_its_manifest_stops_is_shown_as_it_should_be(
    console: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = console.service.regions["north-america"].mirrors["mm2"]
    monkeypatch.setattr(mirror, "connector_state", "STOPPED")
    page = console.browser().get("/mirrors").text
    assert "degraded" in page
    assert "`" not in page
    monkeypatch.setattr(mirror, "wanted", "STOPPED")
    browser = console.browser()
    (found,) = browser.get("/api/mirrors").json()["mirrors"]
    assert (found["health"], found["state"], found["explanation"]) == ("good", "Stopped", "")
    page = browser.get("/mirrors").text
    assert "As intended: its manifest says stopped." in page
    assert "degraded" not in page


def test_a_mirror_that_any_pod_may_change_is_named(console: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "Network policies are not enforced here: any pod may change this mirror."
    assert said not in console.browser().get("/mirrors").text
    monkeypatch.setattr(console.service.regions["north-america"].mirrors["mm2"], "open_to_pods", True)
    assert said in console.browser().get("/mirrors").text
