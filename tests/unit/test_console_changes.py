"""The change log, and the switch that opens a console for changes."""

from __future__ import annotations

import asyncio
import json
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape, unescape
from pathlib import Path

import pytest
from fastapi import Depends

from loosehanger.console import change_log
from loosehanger.console.change_log import ChangeLog
from loosehanger.console.context import require_operator
from loosehanger.console.operations import MOST_A_MINUTE
from loosehanger.console.settings import OPERATOR_OFF
from loosehanger.errors import WrongUseError
from tests.consoles import HOSTILE, Running, running, settings

from .test_relay import Link, Server, echo


async def _said(text: str) -> str:
    return text


async def _refused() -> str:
    raise WrongUseError("no such topic")


def test_a_change_is_logged_with_its_outcome_in_a_file_of_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "artifacts" / "changes-europe.jsonl"
    log = ChangeLog(path, clock=lambda: 12.5)
    assert asyncio.run(log.record("operator", "europe", "create topic", "LH.NEW", _said("created"))) == "created"
    with pytest.raises(WrongUseError):
        asyncio.run(log.record("operator", "europe", "delete topic", "LH.OLD", _refused()))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0] == {
        "at": 12.5, "user": "operator", "region": "europe", "action": "create topic", "subject": "LH.NEW",
        "done": True, "said": "created",
    }  # fmt: skip
    assert [(line["done"], line["said"]) for line in lines] == [(True, "created"), (False, "no such topic")]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [change.subject for change in ChangeLog(path).latest()] == ["LH.OLD", "LH.NEW"], "also after a restart"


def test_a_change_that_is_interrupted_is_not_logged_as_done(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "log")

    async def run() -> None:
        change = asyncio.ensure_future(log.record("u", "r", "a", "s", asyncio.Event().wait()))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        change.cancel()
        await asyncio.gather(change, return_exceptions=True)

    asyncio.run(run())
    assert [(change.done, change.said) for change in log.latest()] == [(False, "interrupted: its outcome is not known")]


def test_the_log_is_bounded_in_size_and_a_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "MOST_BYTES", 20_000)
    path = tmp_path / "log"
    log = ChangeLog(path)
    for number in range(50):
        log.add("operator", "europe", "create topic", f"LH.{number}" + "x" * 5000, done=False, said=HOSTILE + "\n" * 9)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["log", "log.1"]
    assert all(0 < file.stat().st_size <= 20_000 for file in tmp_path.iterdir())
    assert all(json.loads(line) for file in tmp_path.iterdir() for line in file.read_text().splitlines())
    again = ChangeLog(path).latest()
    assert again[0].subject.startswith("LH.49")
    assert "\x1b" not in again[0].said
    assert "\n" not in again[0].said


def test_a_line_written_in_part_and_a_folder_that_cannot_be_written_end_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log"
    ChangeLog(path).add("u", "r", "a", "first", done=True, said="x")
    path.write_bytes(path.read_bytes() + b'{"at": 1, "us\xff\n')
    assert [change.subject for change in ChangeLog(path).latest()] == ["first"]
    (tmp_path / "file").touch()
    log = ChangeLog(tmp_path / "file" / "log")
    log.add("u", "r", "a", "second", done=True, said="x")
    assert [change.subject for change in log.latest()] == ["second"]
    assert "cannot be written (File exists)" in capsys.readouterr().out


def test_the_log_does_not_follow_a_link_that_someone_put_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("as it was")
    (tmp_path / "log").symlink_to(tmp_path / "victim")
    ChangeLog(tmp_path / "log").add("u", "r", "a", "s", done=True, said="x")
    assert (tmp_path / "victim").read_text() == "as it was"


def test_changes_are_shown_to_who_is_signed_in(tmp_path: Path) -> None:
    with running(settings("north-america", lab_home=tmp_path, operator=True)) as console:
        browser = console.browser()
        path = "/api/regions/north-america/topics/{}/settings"
        assert browser.change("PATCH", path.format("LH.ORDERS"), json={"settings": {"a.b": "1"}}).status_code == 200
        assert browser.change("PATCH", path.format("LH.NONE"), json={"settings": {"a.b": "1"}}).status_code == 400
        form = {"csrf": browser.token(), **CONNECTOR, "connector": HOSTILE, "action": "pause"}
        browser.post("/operate/connector", data=form)
        found = browser.get("/api/changes").json()
        assert found["operator"] is True
        assert [(one["action"], one["subject"], one["done"]) for one in found["changes"][1:]] == [
            ("change settings", "LH.NONE", False),
            ("change settings", "LH.ORDERS", True),
        ]
        assert found["changes"][0]["user"] == "operator"
        page = browser.get("/changes").text
        assert "<script>document" not in page
        assert "change settings" in page
        assert console.browser(signed_in=False).get("/api/changes").status_code == 401
    assert (tmp_path / "artifacts" / "console" / "changes-north-america.jsonl").exists()


SETTING = {"region": "north-america", "topic": "LH.ORDERS", "name": "retention.ms", "value": "7"}
CONNECTOR = {"region": "north-america", "mirror": "mm2", "connector": "europe->here.MirrorSourceConnector"}
FORMS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("/topics/LH.ORDERS", "settings", SETTING),
    ("/mirrors", "connector", {**CONNECTOR, "action": "pause"}),
    ("/", "link", {"ways": "europe both north-america", "action": "cut"}),
    ("/", "link", {"ways": "europe both north-america", "delay": "7ms"}),
)
API_CHANGES = (
    ("PATCH", "/api/regions/north-america/topics/LH.ORDERS/settings", {"settings": {"a.b": "1"}}),
    ("POST", "/api/regions/north-america/mirrors/mm2/connectors/europe-%3Ehere.MirrorSourceConnector/pause", None),
    ("PATCH", "/api/links/europe/north-america", {"action": "cut"}),
)


@pytest.mark.parametrize("operator", [False, True])
def test_settings_connectors_and_links_are_changed_with_the_switch_only(tmp_path: Path, operator: bool) -> None:
    (tmp_path / "regions" / "europe" / "links" / "north-america").mkdir(parents=True)
    with running(settings("europe", "north-america", operator=operator, lab_home=tmp_path)) as console:
        browser = console.browser()
        for path, name, form in FORMS:
            asked = browser.get(f"/confirm/{name}", params=form)
            answer = browser.post(f"/operate/{name}", data={"csrf": browser.token(), **form})
            for one in (asked, answer):
                assert (one.status_code == 403) is not operator, name
                assert (escape(OPERATOR_OFF) in one.text) is not operator
            html = browser.view("mirrors") if path == "/mirrors" else browser.get(path).text
            assert (escape(OPERATOR_OFF[1:]) in html) is not operator, path
            assert (f"/confirm/{name}" in html) is operator, path
        for method, path, body in API_CHANGES:
            answer = browser.change(method, path, json=body)
            assert (answer.status_code == 403) is not operator, path
            assert (OPERATOR_OFF in answer.text) is not operator
        assert bool(browser.get("/api/changes").json()["changes"]) is operator
        assert browser.post("/jobs/none", data={"csrf": browser.token()}).status_code == 404, "a job changes nothing"


@contextmanager
def control_room(home: Path) -> Iterator[Running]:
    """The control room of a lab with a real relay, which may change."""
    folder = home / "regions" / "europe" / "links" / "north-america"
    folder.mkdir(parents=True)
    server = Server(echo)
    link = Link(folder, server.port, between=("europe", "north-america"))
    try:
        with running(settings("europe", "north-america", operator=True, lab_home=home)) as found:
            yield found
    finally:
        link.close()
        server.close()


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Running]:
    with control_room(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One that all tests share which change nothing."""
    with control_room(tmp_path_factory.mktemp("lab")) as found:
        yield found


def state_of(console: Running) -> object:
    """All that a change of settings, of a connector or of a link could change."""
    regions = console.service.regions
    links = console.browser().get("/api/links").json()["links"]
    ways = [(link["state"], way["delay_ms"]) for link in links for way in link["directions"]]
    configs = [dict(region.cluster.config) for region in regions.values()]
    return configs, regions["north-america"].mirrors["mm2"].connector_state, ways  # type: ignore[attr-defined]


def rows_of(html: str) -> list[list[str]]:
    """The rows of the page that asks: what is changed, as it is, and as it will be."""
    table = html.split('aria-label="Before and after"')[1]
    return [re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", row) for row in table.split("<tr>")[2:]]


@pytest.mark.parametrize(
    ("name", "form", "rows", "warning"),
    [
        ("settings", SETTING, [["retention.ms", "1000 (override)", "7 (override)"]], "restores its source"),
        (
            "settings", {**SETTING, "region": "europe", "unset": "true"},
            [["retention.ms", "1000 (override)", "its default"]], "Mirrors of this topic follow within seconds",
        ),
        (
            "connector", {**CONNECTOR, "action": "pause"},
            [["Connector", "running", "paused"], ["Task 0", "running", "paused"]], "its lag grows",
        ),
        (
            "connector", {**CONNECTOR, "action": "restart"},
            [["Connector", "running", "running, started again"], ["Task 0", "running", "running, started again"]],
            "continue where they stopped",
        ),
        (
            "link", {"ways": "europe both north-america", "action": "cut"},
            [["europe → north-america", "unshaped", "cut"], ["north-america → europe", "unshaped", "cut"]],
            "mm2 copies nothing until the link is healed",
        ),
        (
            "link", {"ways": "europe to north-america", "delay": "7ms", "jitter": "2ms"},
            [["europe → north-america", "unshaped", "7 ms ± 2 ms"], ["north-america → europe", "unshaped", "unshaped"]],
            "Mirrors whose records cross it: mm2",
        ),
    ],
)  # fmt: skip
def test_each_change_shows_before_and_after_and_asks_once(
    console: Running, name: str, form: dict[str, str], rows: list[list[str]], warning: str
) -> None:
    browser = console.browser()
    before = state_of(console)
    page = browser.get(f"/confirm/{name}", params=form)
    assert page.status_code == 200, page.text
    assert rows_of(page.text) == rows
    assert warning in page.text
    assert state_of(console) == before, "to ask changes nothing"
    assert browser.get("/api/changes").json()["changes"] == []
    # The form of the page has all that the change needs, without a script.
    fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', page.text.split("/operate/")[1]))
    answer = browser.post(f"/operate/{name}", data={key: unescape(value) for key, value in fields.items()})
    assert answer.status_code == 303, answer.text
    assert 'class="note good"' in browser.get(answer.headers["location"]).text
    assert (state_of(console) == before) is (form.get("action") == "restart")
    (change,) = browser.get("/api/changes").json()["changes"]
    assert (change["user"], change["done"]) == ("operator", True)


@pytest.mark.parametrize(
    ("name", "form", "status", "said"),
    [
        ("settings", {**SETTING, "name": "retention ms"}, 400, "is not a setting&#39;s name"),
        ("settings", {**SETTING, "name": HOSTILE}, 400, "is not a setting&#39;s name"),
        ("settings", {**SETTING, "value": ""}, 400, "retention.ms needs a value"),
        ("settings", {**SETTING, "topic": "LH.NONE"}, 400, "has no topic &#39;LH.NONE&#39;"),
        ("settings", {**SETTING, "region": "nowhere"}, 404, "has no region"),
        ("settings", {**SETTING, "value": "x" * 4001}, 422, "4000"),
        ("connector", {**CONNECTOR, "action": "explode"}, 422, "action"),
        ("connector", {**CONNECTOR, "action": "pause", "connector": HOSTILE}, 400, "has no connector"),
        ("connector", {**CONNECTOR, "action": "pause", "mirror": "none"}, 404, "has no mirror &#39;none&#39;"),
        ("link", {"ways": "europe both north-america", "action": "explode"}, 400, "is not an action of a link"),
        ("link", {"ways": "europe both nowhere", "action": "cut"}, 404, "no link between europe and nowhere"),
        ("link", {"ways": "europe to north-america", "action": "cut"}, 400, "only silent works one way"),
        ("link", {"ways": "europe both north-america", "delay": "7"}, 400, "has no unit"),
        ("link", {"ways": "europe both north-america"}, 400, "nothing would change"),
        ("link", {"ways": HOSTILE, "action": "cut"}, 400, "does not exist"),
    ],
)
def test_what_cannot_be_changed_is_explained_where_one_is_asked_and_where_one_is_not(
    untouched: Running, name: str, form: dict[str, str], status: int, said: str
) -> None:
    browser = untouched.browser()
    before = state_of(untouched)
    asked = browser.get(f"/confirm/{name}", params=form)
    assert (asked.status_code, said in asked.text) == (status, True), asked.text
    made = browser.post(f"/operate/{name}", data={"csrf": browser.token(), **form})
    shown = browser.get(made.headers["location"]).text if made.status_code == 303 else made.text
    assert said in shown
    for html in (asked.text, shown):
        assert "<script>document" not in html
    assert state_of(untouched) == before


def test_a_forged_change_of_settings_connectors_or_links_is_refused(untouched: Running) -> None:
    browser, before = untouched.browser(), state_of(untouched)
    for token in ("", "wrong", untouched.browser().token()):
        for _, name, form in FORMS:
            assert browser.post(f"/operate/{name}", data={"csrf": token, **form}).status_code == 403, name
    for _, name, form in FORMS:
        data = {"csrf": browser.token(), **form}
        answer = browser.post(f"/operate/{name}", data=data, headers={"Origin": "https://evil.example"})
        assert answer.status_code == 403, name
        assert browser.get(f"/operate/{name}", params=data).status_code in (404, 405)
    assert state_of(untouched) == before


def test_changes_of_settings_count_among_the_changes_of_a_minute(console: Running) -> None:
    browser = console.browser()
    headers = {"X-CSRF-Token": browser.token()}
    path, body = "/api/regions/europe/topics/LH.ORDERS/settings", {"settings": {"retention.ms": "7"}}
    statuses = [browser.patch(path, json=body, headers=headers).status_code for _ in range(MOST_A_MINUTE + 2)]
    assert (statuses.count(200), statuses.count(429)) == (MOST_A_MINUTE, 2)


def test_on_kubernetes_settings_and_pauses_are_left_to_their_resources() -> None:
    with running(settings("north-america", operator=True)) as console:
        browser, region = console.browser(), console.service.regions["north-america"]
        config = dict(region.cluster.config)
        resource = "kubectl -n north-america edit kafkatopic lh.orders"
        asked = browser.get("/confirm/settings", params=SETTING)
        assert resource in asked.text
        assert "/operate/settings" not in asked.text
        answer = browser.change("PATCH", API_CHANGES[0][1], json=API_CHANGES[0][2])
        assert (answer.status_code, resource in answer.json()["detail"]) == (400, True)
        browser.post("/operate/settings", data={"csrf": browser.token(), **SETTING})
        assert region.cluster.config == config
        page = browser.get("/topics/LH.ORDERS").text
        assert resource in page
        assert "/confirm/settings" not in page

        resource = "kubectl -n north-america edit kafkamirrormaker2 mm2"
        for action in ("pause", "resume"):
            form = {**CONNECTOR, "action": action}
            assert resource in browser.get("/confirm/connector", params=form).text
            browser.post("/operate/connector", data={"csrf": browser.token(), **form})
            assert resource in browser.get("/mirrors").text
        assert region.mirrors["mm2"].connector_state == "RUNNING"  # type: ignore[attr-defined]
        page = browser.view("mirrors")
        assert resource in page
        assert "action=restart" in page
        assert "action=pause" not in page
        form = {**CONNECTOR, "action": "restart"}
        assert "/operate/connector" in browser.get("/confirm/connector", params=form).text
        browser.post("/operate/connector", data={"csrf": browser.token(), **form})
        assert "requested to restart" in browser.get("/mirrors").text


@pytest.mark.parametrize(("operator", "status"), [(False, 403), (True, 200)])
def test_only_a_console_with_the_switch_may_change_more(operator: bool, status: int) -> None:
    with running(settings("north-america", operator=operator)) as console:
        console.app.add_api_route(
            "/api/tried", lambda: "done", methods=["POST"], dependencies=[Depends(require_operator)]
        )
        answer = console.browser().post("/api/tried")
        assert answer.status_code == status
        assert (OPERATOR_OFF in answer.text) is not operator
