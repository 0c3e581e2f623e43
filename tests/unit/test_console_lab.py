"""The control room's page of the lab: its text as HTML, what may be run from it, and what each request needs."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from loosehanger.console.flowchart import drawing
from loosehanger.console.jobs import Jobs
from loosehanger.console.kit_shell import KitShell
from loosehanger.console.lab_text import DOCUMENTS, document_html, lab_html
from loosehanger.console.learning import Learning, LearnOutcome
from loosehanger.console.operations import MOST_A_MINUTE
from loosehanger.lab.scenario_index import PLAYBOOKS, scenario_names
from loosehanger.learn.exercise import read_exercises
from loosehanger.learn.lab_text import Section, read_sections, shell_functions
from loosehanger.paths import ROOT
from tests.consoles import HOSTILE, Browser, Running, running, settings

REGIONS = ("europe", "north-america", "south-america")
LAB = "03-broadcast"
CHECK = {
    "id": f"{LAB}/2",
    "state": "begun",
    "holds": False,
    "conditions": [
        {"description": "It keeps its records", "holds": True, "message": ""},
        {"description": "Both have followed", "holds": False, "message": f"A copy has not followed {HOSTILE}"},
    ],
    "documents": {"status": {"secret": "not shown"}},
}


class MadeUpKit:
    """What ``./lab learn`` answers, as a test says."""

    def __init__(self) -> None:
        self.document: Any = CHECK
        self.code = 1
        self.asked: list[tuple[str, ...]] = []
        self.said: tuple[str, ...] = ()
        self.free: asyncio.Event | None = None

    async def run(self, _: Learning, words: tuple[str, ...], outcome: LearnOutcome) -> tuple[int, bytes]:
        """Answers."""
        self.asked.append(words)
        for line in self.said:
            outcome.said(line)
        if self.free:
            await self.free.wait()
        return self.code, json.dumps(self.document).encode() if self.document else b""


@pytest.fixture
def kit(monkeypatch: pytest.MonkeyPatch) -> MadeUpKit:
    """Takes the place of ``./lab learn``."""
    found = MadeUpKit()

    async def run(self: Learning, words: tuple[str, ...], outcome: LearnOutcome) -> tuple[int, bytes]:
        return await found.run(self, words, outcome)

    monkeypatch.setattr(Learning, "_kit", run)
    return found


@pytest.fixture
def room(tmp_path: Path, kit: MadeUpKit) -> Iterator[Running]:
    """A control room that may change the lab."""
    assert kit.asked == []
    with running(settings(*REGIONS, lab_home=tmp_path, operator=True)) as found:
        yield found


def act(browser: Browser, action: str, exercise: int = 2, **more: Any) -> Any:
    """Posts an action's form."""
    given = {"data": {"csrf": browser.token()}, "params": {"exercise": exercise}, **more}
    return browser.post(f"/learn/{action}", **given)


def shown(browser: Browser, exercise: int, wanted: str) -> str:
    """The page of an exercise, as soon as it has a text."""
    deadline = time.monotonic() + 60
    while wanted not in (html := browser.get(f"/scenario?exercise={exercise}").text):
        assert time.monotonic() < deadline, html
        time.sleep(0.1)  # until the job has said more
    return html


def digest(exercise: int, text: str) -> str:
    """That of the first command of a section that contains a text."""
    section = next(one for one in read_sections(LAB) if one.number == exercise)
    return next(command.digest for command in section.commands if text in command.text)


# The text


def test_code_can_be_copied_and_run_and_tables_scroll() -> None:
    text = (
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n```console\n$ ./lab status\n...\n$ ./lab cleanup\n```\n\n```sh\nls\n```\n"
    )
    html = lab_html(text, LAB, 4, 3)
    assert '<div class="scroll" tabindex="0" role="region" aria-label="Table 1"><table>' in html
    assert html.count("data-copy=") == 3
    assert (
        len(re.findall(r'formaction="/learn/run\?exercise=4&amp;command=\w{16}"', html)) == 1
    )  # a clean-up is not run
    assert '<pre class="expected"><code>...</code></pre>' in html
    assert "formaction" not in lab_html(text, LAB, 0, 3)


def test_a_header_without_text_is_no_header() -> None:
    html = lab_html("| | needs |\n|---|---|\n| network | |\n", LAB, 1, 0)
    assert re.findall(r"<(/?t[hd])>", html) == ["td", "/td", "th", "/th", "td", "/td", "td", "/td"]


def test_html_of_a_text_is_escaped_but_an_answer_folds() -> None:
    html = lab_html(f"<details><summary>Answer</summary>\n\nIt is *so*\n\n</details>\n\n{HOSTILE}\n", LAB, 0, 0)
    assert html.startswith("<details><summary>Answer</summary><p>It is <em>so</em></p>")
    assert "<script>" not in html
    assert "<img" not in html
    hostile = lab_html(f"```console\n$ echo {HOSTILE}\n{HOSTILE}\n```\n\n```mermaid\nx\n{HOSTILE}\n```\n", LAB, 1, 0)
    assert "<script>" not in hostile
    assert "<img" not in hostile


@pytest.mark.parametrize(
    ("link", "address"),
    [
        ("../../docs/links.md#on-kubernetes", "/scenario/document?path=docs/links.md#on-kubernetes"),
        ("manifests/mm2-na.yaml", "/scenario?section=7&amp;file=manifests/mm2-na.yaml#manifest"),
        ("#clean-up", "#clean-up"),
        ("https://kafka.apache.org/", "https://kafka.apache.org/"),
        ("http://example.org/", "#"),
        ("//example.org/", "#"),
        ("../../.lab/access/europe/admin.properties", "/scenario/elsewhere?path=.lab/access/europe/admin.properties"),
    ],
)
def test_a_link_leads_to_a_page_of_the_console(link: str, address: str) -> None:
    assert f'href="{address}"' in lab_html(f"[it]({link})", LAB, 0, 7)


@pytest.mark.parametrize("lab", scenario_names())
def test_every_lab_has_its_picture_and_no_link_that_leads_nowhere(lab: str) -> None:
    sections = read_sections(lab)
    html = "".join(lab_html(one.markdown, lab, one.number, at) for at, one in enumerate(sections))
    assert html.count('<figure class="flowchart">') == 1
    assert "mermaid" not in html
    for path in re.findall(r'/scenario/(?:document|elsewhere)\?path=([^"#]+)', html):
        assert (ROOT / path).exists(), path
    assert html.count("&lt;details") == 0


def test_every_document_that_a_text_leads_to_is_shown() -> None:
    for path in sorted(str(path.relative_to(ROOT)) for path in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]):
        assert DOCUMENTS.fullmatch(path), path
        found = document_html(path)
        assert found
        for picture in re.findall(r'src="/scenario/picture\?path=([^"]+)"', found[1]):
            assert (ROOT / picture).is_file()
    for path in ("docs/../.lab/access/x.md", ".lab/x.md", "docs/nothing.md", "/etc/passwd", "docs/%2e%2e/README.md"):
        assert document_html(path) is None


def test_a_flowchart_of_another_form_is_shown_as_text() -> None:
    assert drawing("flowchart LR\n  a --> b\n") is None
    assert drawing('flowchart LR\nsubgraph a["A"]\na_kafka[("Kafka")]\nend\nclick a_kafka "javascript:1"\n') is None
    found = drawing(f'flowchart LR\nsubgraph a["{HOSTILE}"]\na_kafka[("Kafka")]\nend\n')
    assert found is None or "<script>" not in found


# What is asked of ./lab learn


def test_a_check_shows_what_holds_and_the_first_sentence(room: Running, kit: MadeUpKit) -> None:
    browser = room.browser()
    assert act(browser, "check").headers["location"] == "/scenario?exercise=2#progress"
    html = shown(browser, 2, "Not yet")
    assert kit.asked == [("learn", "check", f"{LAB}/2", "--json")]
    assert "<strong>Not yet</strong>: 1 of 2" in html
    assert "A copy has not followed &lt;/pre&gt;" in html
    assert "not shown" not in html
    held = [{"description": "It keeps its records", "holds": True, "message": ""}]
    kit.document, kit.code = {"id": f"{LAB}/2", "holds": True, "conditions": held}, 0
    act(browser, "check")
    assert "<strong>Done</strong>: 1 of 1" in shown(browser, 2, "Done")
    assert browser.get("/api/changes").json()["changes"] == []  # it changed nothing but the learner's progress


def test_a_solution_is_followed_and_logged(room: Running, kit: MadeUpKit) -> None:
    browser = room.browser()
    kit.said, kit.code = ("Settings follow", HOSTILE), 0
    kit.document = {"id": f"{LAB}/2", "did": [{"why": "So it is", "what": f"./lab {HOSTILE}"}], "seconds": 1}
    act(browser, "solve")
    html = shown(browser, 2, "Check judges it")
    assert "Settings follow\n" in html
    assert "So it is" in html
    assert "<script>document" not in html
    (change,) = browser.get("/api/changes").json()["changes"]
    assert (change["action"], change["subject"], change["done"]) == ("solve: the lab's text", f"{LAB}/2", True)


def test_a_failure_is_said_in_its_own_words(room: Running, kit: MadeUpKit) -> None:
    browser = room.browser()
    kit.said, kit.document, kit.code = ("error: nothing is set up; ./lab setup",), None, 3
    act(browser, "solve")
    assert '<p class="problem">nothing is set up; ./lab setup</p>' in shown(browser, 2, "nothing is set up")
    assert [one["done"] for one in browser.get("/api/changes").json()["changes"]] == [False]


def test_one_thing_runs_at_a_time_and_can_be_stopped(room: Running, kit: MadeUpKit) -> None:
    browser = room.browser()
    kit.free = asyncio.Event()
    act(browser, "check")
    assert "running, for" in shown(browser, 2, "/learn/stop?exercise=2")
    assert "the lab job is running" in browser.get(act(browser, "hint").headers["location"]).text
    browser.post("/jobs/proof", data={"csrf": browser.token()})
    assert "the lab job is running" in browser.get("/proof").text
    act(browser, "stop")
    assert "it was stopped" in shown(browser, 2, "it was stopped")


@pytest.mark.parametrize(
    ("action", "given", "status"),
    [
        ("check", {"data": {}}, 403),
        ("check", {"data": {"csrf": "x"}}, 403),
        ("check", {"headers": {"Origin": "https://example.org"}}, 403),
        ("check", {"params": {"exercise": 99}}, 404),
        ("check", {"params": {"exercise": "2/../../x"}}, 422),
        ("check", {"params": {"exercise": 0}}, 422),
        ("cleanup", {}, 422),
        ("run", {"params": {"exercise": 2, "command": "0" * 16}}, 404),
        ("run", {"params": {"exercise": 2, "command": "rm -rf /"}}, 422),
        ("check", {"data": {"csrf": "x" * 70_000}}, 413),
    ],
)
def test_a_forged_or_malformed_request_does_nothing(
    room: Running, kit: MadeUpKit, action: str, given: dict[str, Any], status: int
) -> None:
    browser = room.browser()
    assert act(browser, action, **given).status_code == status
    assert kit.asked == []


def test_only_who_is_signed_in_sees_or_does_anything(room: Running, kit: MadeUpKit) -> None:
    stranger = room.browser(signed_in=False)
    for path in ("/scenario", "/scenario/document?path=README.md", "/scenario/picture?path=docs/console-map.png"):
        assert stranger.get(path).status_code == 303
    assert stranger.post("/learn/check?exercise=2", data={}).status_code in (303, 401, 403)
    assert kit.asked == []


def test_without_the_switch_the_lab_is_not_changed(tmp_path: Path, kit: MadeUpKit) -> None:
    with running(settings(*REGIONS, lab_home=tmp_path)) as found:
        browser = found.browser()
        assert act(browser, "solve").status_code == 403
        assert act(browser, "run", params={"exercise": 2, "command": digest(2, "topic set")}).status_code == 403
        assert kit.asked == []
        assert act(browser, "check").status_code == 303
        html = shown(browser, 2, "Not yet")
        assert 'formaction="/learn/run' not in html
        assert "console_operator=true" in html


def test_what_a_console_may_not_survive_is_left_to_a_terminal(room: Running, kit: MadeUpKit) -> None:
    browser = room.browser()
    html = browser.get("/scenario?exercise=8").text
    assert "/learn/solve?exercise=8" not in html
    assert f"<code>./lab learn solve {LAB}/8</code>" in html
    assert "run it in a terminal" in browser.get(act(browser, "solve", 8).headers["location"]).text
    cleanup = {"exercise": 8, "command": digest(8, "./lab cleanup")}
    assert "run it in a terminal" in browser.get(act(browser, "run", params=cleanup).headers["location"]).text
    assert kit.asked == []


def test_an_exercise_begins_here_where_that_needs_no_set_up(room: Running, kit: MadeUpKit) -> None:
    browser = room.browser()
    html = browser.get("/scenario?exercise=5").text
    assert "/learn/start?exercise=5" in html
    assert "In a terminal" not in html
    kit.document, kit.code = {"id": f"{LAB}/5", "state": "begun"}, 0
    act(browser, "start", 5)
    assert "The lab is at the beginning" in shown(browser, 5, "The lab is at the beginning")
    assert kit.asked == [("learn", "start", f"{LAB}/5", "--no-setup", "--json")]
    kit.said, kit.document, kit.code = (f"error: the lab is not at the beginning of {LAB}/5; in a terminal",), None, 2
    act(browser, "start", 5)
    shown(browser, 5, "is not at the beginning")
    html = browser.get("/scenario?exercise=1").text
    assert "/learn/start?exercise=1" not in html
    assert f"<code>./lab learn start {LAB}/1</code>" in html


def test_changes_are_bounded_in_rate(room: Running, kit: MadeUpKit) -> None:
    browser = room.browser()
    operations = room.app.state.context.operations
    for _ in range(MOST_A_MINUTE):
        operations.count_change()
    assert "more than 30 changes in a minute" in browser.get(act(browser, "hint").headers["location"]).text
    assert kit.asked == []


def test_a_command_of_the_text_is_run_and_shown_as_it_comes(room: Running) -> None:
    browser = room.browser()
    command = digest(2, "LH.ORDERS retention.ms=3600000")
    act(browser, "run", params={"exercise": 2, "command": command})
    html = shown(browser, 2, "Exit code")
    assert "Exit code 3" in html
    assert "nothing is set up" in html
    (change,) = browser.get("/api/changes").json()["changes"]
    assert change["subject"] == "./lab topic set europe LH.ORDERS retention.ms=3600000"


def test_where_the_lab_is_on_another_machine_its_text_is_shown() -> None:
    with running(settings(*REGIONS, operator=True)) as found:
        browser = found.browser()
        html = browser.get("/scenario?exercise=2").text
        assert "run ./lab learn there" in html
        assert 'formaction="/learn/' not in html
        assert "on another machine" in browser.get(act(browser, "check").headers["location"]).text


def test_an_exercise_without_a_check_says_so(tmp_path: Path) -> None:
    lab = "10-forwarding"
    checked = {one.number for one in read_exercises(lab)}
    numbers = {one.number for one in read_sections(lab) if one.number}
    assert checked < numbers
    with running(settings(*REGIONS, lab_home=tmp_path, scenario=lab)) as found:
        browser = found.browser()
        for number in numbers:
            html = browser.get(f"/scenario?exercise={number}").text
            assert f"Exercise {number} of {len(numbers)}" in html
            assert (f"Exercise {number} of {len(numbers)}: nothing to check" in html) == (number not in checked)


def test_where_one_can_watch_an_exercise_there_is_a_page(room: Running, kit: MadeUpKit) -> None:
    browser = room.browser()
    learning = room.app.state.context.learning
    for exercise in learning.exercises():
        watch = learning.watch(exercise)
        assert watch
        for path in watch:
            assert browser.get(path).status_code == 200, path
        html = browser.get(f"/scenario?exercise={exercise.number}").text
        assert "Watch it: <a href=" in html
    assert kit.asked == []


# The shell


def in_shell(home: Path, *commands: str) -> list[tuple[int | None, list[str]]]:
    """Runs commands in one shell, and ends it."""

    async def run() -> list[tuple[int | None, list[str]]]:
        shell = KitShell(home)
        found = []
        try:
            for command in commands:
                said: list[str] = []
                found.append((await shell.run(command, said.append), said))
        finally:
            await shell.close()
        return found

    return asyncio.run(run())


def test_variables_exit_codes_and_functions_stay_from_command_to_command(tmp_path: Path) -> None:
    found = in_shell(tmp_path, "a=7; false", "echo $? $a", 'f() {\n echo "in $1"\n}', "f 'x y'", "pwd; cat")
    assert found == [(1, []), (0, ["1 7"]), (0, []), (0, ["in x y"]), (0, [str(ROOT)])]


def test_a_line_that_is_long_and_output_without_an_end_are_bounded(tmp_path: Path) -> None:
    ((code, said),) = in_shell(tmp_path, "head -c 300000 /dev/zero | tr '\\0' x; printf 'no end'")
    assert code == 0
    assert len(said) == 1
    assert len(said[0]) <= 8192


def test_a_shell_that_a_command_ends_begins_again(tmp_path: Path) -> None:
    assert in_shell(tmp_path, "exit 3", "echo again") == [(None, []), (0, ["again"])]


def test_a_command_may_use_the_functions_of_an_earlier_section(room: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Section(0, "Before", "```console\n$ greet() {\n>   echo hello $1\n> }\n$ greet all\n```")
    section = Section(2, "Greet", "```console\n$ kill -9 $$\n$ greet you\n```")
    monkeypatch.setattr("loosehanger.console.learning.read_sections", lambda _: [before, section])
    browser = room.browser()
    for command, outcome in zip(section.commands, ("the shell ended", "hello you"), strict=True):
        act(browser, "run", params={"exercise": 2, "command": command.digest})
        shown(browser, 2, outcome)


def test_the_functions_of_a_text_are_found() -> None:
    found = shell_functions(read_sections("11-silent-faults"))
    assert [one.partition("(")[0] for one in found] == ["connect", "healthy", "metrics"]


def test_what_is_stopped_leaves_nothing_behind(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    async def run() -> None:
        shell = KitShell(tmp_path)
        work = asyncio.create_task(shell.run(f"sleep 500 & echo $! >{pid}; sleep 501", print))
        while not pid.exists() or not pid.read_text():
            await asyncio.sleep(0.02)  # until it has begun
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(run())
    assert not psutil.pid_exists(int(pid.read_text())) or psutil.Process(int(pid.read_text())).status() == "zombie"


def test_a_job_that_is_cancelled_before_it_begins_leaves_room_for_the_next(tmp_path: Path) -> None:
    async def run() -> None:
        jobs = Jobs(tmp_path)
        jobs.require_free()
        jobs.occupy("lab", asyncio.sleep(60))
        await jobs.close()
        await asyncio.sleep(0)  # its callback
        jobs.require_free()

    asyncio.run(run())


def test_every_lab_has_sections_whose_commands_can_be_read() -> None:
    for lab in scenario_names():
        sections = read_sections(lab)
        assert sections[0].title == "Introduction"
        assert all(not one.markdown.startswith("---") for one in sections)
        numbers = [one.number for one in sections if one.number]
        assert numbers == list(range(1, len(numbers) + 1))
        assert (PLAYBOOKS / lab / "README.md").exists()
