"""A learner does every exercise of a lab in the control room's page of it: a real browser, a real lab.

What the text says is run there with *Run*. Set-up, stages, clean-up and edits of manifests are done in a terminal, as
the page says. ``./test.sh tests/lab/test_lab_page.py -k 03-broadcast`` for one lab.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Iterator, Sequence

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, ViewportSize, expect

from loosehanger.learn.exercise import LabExercise, lab_names, read_exercises
from loosehanger.learn.lab_text import BlockCommand, Section, read_commands, read_sections, shell_functions
from scripts.sandbox import Kit, copy_kit
from tests.browser.conftest import browser  # noqa: F401 - the machine's browser
from tests.browser.people import Person, person
from tests.e2e.console_block import asks_for_exit_code, first_difference
from tests.e2e.documents import edit
from tests.e2e.terminal import Terminal
from tests.learners import looks

pytestmark = [pytest.mark.lab, pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(1500)]

LABS = lab_names()
WITHOUT_TERMINAL = "03-broadcast"
"""The lab whose exercises all begin on the page."""
WITHOUT_PAGE = "07-migration/1"
"""The exercise that begins before the region of the control room has a cluster."""
OPERATOR = "console_operator=true"
COMMAND_SECONDS = 600.0
DESK, PHONE = ViewportSize(width=1280, height=900), ViewportSize(width=390, height=844)
_BLOCK = re.compile(r"^```(console|diff)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_MARKS = re.compile(r"[`*]|<[^>]*>")
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> str:
    """Whose exercises are done."""
    return str(request.param)


@pytest.fixture(scope="module")
def kit(lab: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    """A lab whose control room may change it."""
    found = copy_kit(tmp_path_factory.mktemp("page"), port_base=24000)
    # As the learner's own set-ups: by another path to Python, the first of these would start every program again.
    command = ["./lab", "setup", lab, "-e", OPERATOR]
    try:
        done = subprocess.run(
            command, cwd=found.root, env=found.variables(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        yield found
    finally:
        done = found.run("cleanup")
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def terminal(lab: str, kit: Kit, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """The learner's terminal, for what the page leaves to it."""
    found = Terminal(kit.root, kit.variables(), tmp_path_factory.mktemp("outputs"))
    for definition in shell_functions(read_sections(lab)):
        assert found.run(definition, COMMAND_SECONDS) == (0, "")
    yield found
    found.end()


class LabPage:
    """The page of the lab, before a learner who signs in again after a clean-up."""

    def __init__(self, kit: Kit, browser: Browser) -> None:  # noqa: F811 - the fixture
        self._kit, self._browser = kit, browser
        self._reader: Person | None = None
        self.number = self.done = 0

    def consoles(self) -> list[dict[str, str]]:
        """How to sign in to the control room; empty before a stage has made it."""
        entries = json.loads(self._kit.run("status", "--credentials", "--json").stdout)
        return [entry for entry in entries if entry["console"] == "control-room"]

    def is_there(self) -> bool:
        """Whether the lab has the page."""
        return self._reader is not None or bool(self.consoles())

    def reader(self) -> Person:
        """The learner, signed in."""
        if self._reader is None:
            (found,) = self.consoles()
            self._reader = person(self._browser, found["url"], found["username"], found["password"], viewport=DESK)
        return self._reader

    def open(self, number: int) -> Page:
        """Opens an exercise."""
        self.number = number
        self.reader().open(f"/scenario?exercise={number}")
        return self.reader().page

    def leave(self) -> None:
        """Closes the browser's page, of which the browser has not complained."""
        if self._reader:
            assert self._reader.said == []
            self._reader.page.context.close()
            self._reader = None

    @contextlib.contextmanager
    def without_console(self) -> Iterator[None]:
        """Takes back what the browser complains of while a set-up or a stage stops the console, and nothing else."""
        before = len(self._complaints())
        yield
        said = self._complaints()
        said[before:] = [one for one in said[before:] if "ERR_CONNECTION_REFUSED" not in one]

    def _complaints(self) -> list[str]:
        if self._reader is None:
            return []
        self._reader.page.evaluate("0")  # which brings those that are under way
        return self._reader.said

    def press(self, name: str) -> str:
        """Presses a button of the exercise, and waits until that is done; returns the outcome."""
        return self._press(f'#progress button:text-is("{name}")')

    def check(self) -> bool:
        """Presses *Check*; returns whether the exercise is done."""
        began = time.monotonic()
        outcome = self.press("Check")
        print(f"{self.number}: check {time.monotonic() - began:.1f} s with its page, {outcome}")
        assert outcome.startswith(("Done", "Not yet")), outcome
        return outcome.startswith("Done")

    def run(self, command: BlockCommand) -> tuple[int, str]:
        """Presses *Run* beside a command; returns its exit code and its output."""
        outcome = self._press(f'.command button[formaction$="command={command.digest}"]')
        found = re.match(r"Exit code (\d+)", outcome)
        assert found, f"{command.text}: {outcome}"
        output = self.reader().page.locator(".output")
        return int(found[1]), output.inner_text() if output.count() else ""

    def _press(self, selector: str) -> str:
        page = self.open(self.number)
        page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
        # The form's own answer: the page asks for itself from time to time, too.
        with page.expect_response(lambda one: one.request.method == "POST" and "/learn/" in one.url):
            page.locator(selector).first.click()
        page = self.open(self.number)  # with this outcome, and not that of the command before
        stop = page.get_by_role("button", name="Stop", exact=True)
        expect(stop).to_have_count(0, timeout=COMMAND_SECONDS * 1000)
        return page.locator(".outcome").inner_text().strip()


@pytest.fixture(scope="module")
def learner(kit: Kit, browser: Browser) -> Iterator[LabPage]:  # noqa: F811 - the fixture
    """The learner's browser."""
    found = LabPage(kit, browser)
    yield found
    found.leave()


def section_of(exercise: LabExercise) -> Section:
    """The text of an exercise."""
    return next(section for section in read_sections(exercise.lab) if section.number == exercise.number)


def reads(learner: LabPage, section: Section) -> None:
    """The page has the section's prose, its commands and its edits."""
    article = learner.reader().page.get_by_role("article")
    expect(article.get_by_role("heading", level=2)).to_have_text(section.title)
    shown = " ".join((article.text_content() or "").split())
    for paragraph in _FENCED.sub("", section.markdown).split("\n\n"):
        for piece in re.split(r"\||^[#\d.-]+ ", paragraph.strip(), flags=re.MULTILINE):
            if not re.fullmatch(r"[-: ]*\s*", piece):
                assert " ".join(_LINK.sub(r"\1", _MARKS.sub("", piece)).split()) in shown
    for command in section.commands:
        assert all(" ".join(line.split()) in shown for line in command.text.splitlines())
    for kind, block in _BLOCK.findall(section.markdown):
        assert kind == "console" or " ".join(block.split()) in shown


def begins(learner: LabPage, exercise: LabExercise, terminal: Terminal) -> None:
    """Presses *Begin*; where that needs a set-up, a stage or a clean-up, the page leaves it to a terminal."""
    outcome = learner.press("Begin")
    if outcome == "The lab is at the beginning of this exercise.":
        return
    assert exercise.lab != WITHOUT_TERMINAL
    command = f"./lab learn start {exercise.id}"
    assert outcome.endswith(f"in a terminal, {command} brings it there"), outcome
    learner.leave()
    code, said = terminal.run(command, COMMAND_SECONDS)
    assert code == 0, said
    learner.open(exercise.number)


def follows(learner: LabPage, exercise: LabExercise, kit: Kit, terminal: Terminal) -> bool:
    """Does what a section's text says: in the browser what runs there, and the rest in a terminal.

    It checks after each block where a state on the way counts, and else at the end.

    Returns:
        Whether the last check has found it done.
    """
    on_the_way = any(condition.once for condition in exercise.content.conditions)
    done = False
    for kind, block in _BLOCK.findall(section_of(exercise).markdown):
        if kind == "diff":
            assert edit(kit.root, block) is None
        else:
            runs(learner, read_commands(block, 1), kit, terminal)
        if on_the_way:
            done = learner.check()
    return done if on_the_way else learner.check()


def runs(learner: LabPage, commands: Sequence[BlockCommand], kit: Kit, terminal: Terminal) -> None:
    """Runs the commands of a block, and compares exit codes and outputs with the text."""
    in_terminal = False
    for command, following in zip(commands, [*commands[1:], None], strict=True):
        asks = asks_for_exit_code(command)
        in_terminal = command.for_terminals or (in_terminal and asks) or not learner.is_there()
        code, said = in_a_terminal(learner, command.text, kit, terminal) if in_terminal else learner.run(command)
        assert code == 0 or (following and asks_for_exit_code(following)), f"{command.text}: exit code {code}\n{said}"
        assert not command.output or first_difference(command.output, said) is None, f"{command.text}\n{said}"


def in_a_terminal(learner: LabPage, command: str, kit: Kit, terminal: Terminal) -> tuple[int, str]:
    """Runs what the page leaves to a terminal; returns its exit code and its output."""
    if command.startswith("./lab cleanup"):
        learner.leave()
    if command.startswith("./lab setup") and not (kit.home / "access" / "lab.json").exists():
        command += f" -e {OPERATOR}"
    may_stop_it = command.startswith(("./lab setup", "./lab stage"))
    with learner.without_console() if may_stop_it else contextlib.nullcontext():
        return terminal.run(command, COMMAND_SECONDS)


def everybody_can_read(page: Page) -> None:
    """At a desk and on a phone, by day and by night: nothing is wider than the page, and axe finds nothing."""
    for viewport in (DESK, PHONE):
        page.set_viewport_size(viewport)
        page.emulate_media(color_scheme="dark" if viewport == PHONE else "light")
        page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"], page.url
        answer = Axe().run(page)
        assert answer.response["violations"] == [], f"{page.url} {viewport}: {answer.generate_report()}"
    page.set_viewport_size(DESK)
    page.emulate_media(color_scheme="light")


def watches(learner: LabPage, exercise: LabExercise) -> None:
    """Follows every link of the exercise to where it can be watched."""
    for path, name in exercise.content.watch.items():
        page = learner.open(exercise.number)
        page.get_by_role("link", name=name, exact=True).click()
        page.wait_for_url(f"**{path}")
        expect(page.locator("main")).not_to_contain_text("Asking ")
        assert not page.get_by_role("heading", name=re.compile("Not (found|possible)")).count()


@pytest.mark.parametrize(
    ("lab", "exercise"),
    [(lab, exercise) for lab in LABS for exercise in read_exercises(lab)],
    indirect=["lab"],
    ids=lambda value: value if isinstance(value, str) else str(value.number),
    scope="module",
)
def test_an_exercise_is_done_in_the_browser(
    exercise: LabExercise, learner: LabPage, kit: Kit, terminal: Terminal
) -> None:
    numbers = [one.number for one in read_exercises(exercise.lab)]
    if learner.is_there():
        page = learner.open(exercise.number)
        expect(page.get_by_role("heading", name=f"{learner.done} of {len(numbers)} exercises done")).to_be_visible()
        reads(learner, section_of(exercise))
        if not looks(exercise):
            begins(learner, exercise, terminal)
            assert not learner.check()
    else:
        assert exercise.id == WITHOUT_PAGE
        for action, code in (("start", 0), ("check", 1)):
            assert terminal.run(f"./lab learn {action} {exercise.id}", COMMAND_SECONDS)[0] == code
        learner.number = exercise.number
    assert follows(learner, exercise, kit, terminal)
    learner.done += 1
    page = learner.open(exercise.number)
    expect(page.get_by_role("heading", name=f"Exercise {exercise.number}: done")).to_be_visible()
    expect(page.get_by_role("heading", name=f"{learner.done} of {len(numbers)} exercises done")).to_be_visible()
    listed = (
        page.get_by_role("navigation", name="exercises done").get_by_role("link").nth(numbers.index(exercise.number))
    )
    expect(listed).to_have_text(f"✓ {exercise.number}. {exercise.content.title}: done")
    everybody_can_read(page)
    watches(learner, exercise)
