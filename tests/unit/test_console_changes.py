"""The change log, and the switch that opens a console for changes."""

from __future__ import annotations

import asyncio
import json
import stat
from html import escape
from pathlib import Path

import pytest
from fastapi import Depends

from loosehanger.console import change_log
from loosehanger.console.change_log import ChangeLog
from loosehanger.console.context import require_operator
from loosehanger.console.settings import OPERATOR_OFF
from loosehanger.errors import WrongUseError
from tests.consoles import HOSTILE, running, settings


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
        form = {"csrf": browser.token()}
        browser.post("/regions/north-america/mirrors/mm2/pause?connector=" + HOSTILE, data=form)
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


CHANGES: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("/topics/LH.ORDERS", "/change", {"region": "north-america", "topic": "LH.ORDERS", "name": "a.b", "value": "1"}),
    ("/topics/LH.ORDERS", "/regions/north-america/topics/LH.ORDERS/settings", {"name": "a.b", "value": "1"}),
    ("/mirrors", "/regions/north-america/mirrors/mm2/pause?connector=europe-%3Ehere.MirrorSourceConnector", {}),
    ("/", "/links/europe/north-america?action=cut", {}),
    ("/", "/links", {"ways": "europe both north-america", "delay": "7ms"}),
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
        for path, action, form in CHANGES:
            answer = browser.post(action, data={"csrf": browser.token(), **form})
            assert (answer.status_code == 403) is not operator, action
            assert (escape(OPERATOR_OFF) in answer.text) is not operator
            html = browser.view("mirrors") if path == "/mirrors" else browser.get(path).text
            assert (escape(OPERATOR_OFF[1:]) in html) is not operator, path
            assert ("formaction" in html or 'action="/change"' in html or 'action="/links"' in html) is operator, path
        for method, path, body in API_CHANGES:
            answer = browser.change(method, path, json=body)
            assert (answer.status_code == 403) is not operator, path
            assert (OPERATOR_OFF in answer.text) is not operator
        assert bool(browser.get("/api/changes").json()["changes"]) is operator
        assert browser.post("/jobs/none", data={"csrf": browser.token()}).status_code == 404, "a job changes nothing"


@pytest.mark.parametrize(("operator", "status"), [(False, 403), (True, 200)])
def test_only_a_console_with_the_switch_may_change_more(operator: bool, status: int) -> None:
    with running(settings("north-america", operator=operator)) as console:
        console.app.add_api_route(
            "/api/tried", lambda: "done", methods=["POST"], dependencies=[Depends(require_operator)]
        )
        answer = console.browser().post("/api/tried")
        assert answer.status_code == status
        assert (OPERATOR_OFF in answer.text) is not operator
