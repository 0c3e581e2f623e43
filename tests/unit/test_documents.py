"""The runner of README.md and the labs: what is not as the text says fails, with file and line, and in time."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import psutil
import pytest

import conftest
from loosehanger.lab.scenario import scenario_names
from loosehanger.paths import ROOT

from ..e2e.console_block import first_difference
from ..e2e.documents import complaints, edit
from ..e2e.places import DOCUMENTS, LABS, README

CONFTEST = """\
from pathlib import Path

import pytest

from tests.e2e.documents import collector
from tests.e2e.terminal import Terminal

HERE = Path(__file__).parent
pytest_collect_file = collector(sorted(HERE.glob("*.md")))


@pytest.fixture(scope="module")
def terminal(tmp_path_factory, request):
    terminal = Terminal(HERE, {"PATH": "/usr/bin:/bin"}, tmp_path_factory.mktemp("outputs"))
    yield terminal
    terminal.end()
"""
TEXTS = {
    "right.md": """\
Variables, the folder and exit codes stay, from block to block.

```console
$ cd sub; name="an event"; false
$ echo $?
1
```

```diff
--- a/sub/settings.yaml
+++ b/sub/settings.yaml
@@ -1,2 +1,2 @@
 a: 1
-b: 2
+b: 3
```

```console
$ echo "$name" >&2; cat settings.yaml
an   event
...
b: 3
$ for word in one two; do
>   echo "$word took $RANDOM s"
> done
one took ... s
two took ... s
$ cat
$ sleep 600 &
```

```sh
exit 1
```
""",
    "other-output.md": """\
```console
$ echo ready
$ printf 'europe\\n  Running producer\\n'
europe
  Stopped ...
```

```console
$ echo never
```
""",
    "more-output.md": "```console\n$ printf 'one\\ntwo\\n'\none\n```\n",
    "exit-code.md": "\n```console\n$ true\n$ echo gone; false\ngone\n$ true\n```\n",
    "hangs.md": """\
<!-- at most 2 s -->
```console
$ bash -c 'echo $$ >started; sleep 600 & echo $! >>started; setsid sleep 600 & echo $! >>started; echo waiting; wait'
```
""",
    "ends-the-shell.md": "```console\n$ exit 3\n```\n",
    "edit-of-nothing.md": """\
```diff
--- a/sub/settings.yaml
+++ b/sub/settings.yaml
@@ -1,2 +1,2 @@
 a: 1
-b: 7
+b: 8
```
""",
    "no-command.md": "```console\nls\n```\n",
}
FAILURES: dict[str, tuple[Any, ...]] = {
    "other-output.md": (1, "{file}:3: printf", "line 5 is not what it said: Stopped ...", "Running producer"),
    "more-output.md": (1, "{file}:2: printf", "it said more than is expected: two"),
    "exit-code.md": (2, "{file}:4: echo gone; false", "ended with exit code 1", "gone"),
    "hangs.md": (2, "{file}:3: bash -c", "did not end within 2 s, and was ended", "waiting"),
    "ends-the-shell.md": (1, "{file}:2: exit 3", "ended the shell"),
    "edit-of-nothing.md": (1, "{file}:1: the edit cannot be made", "patch failed: sub/settings.yaml:1"),
    "no-command.md": (1, "no-command.md: line 2: a console block begins with '$ ' and a command"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The texts, run."""
    folder = tmp_path_factory.mktemp("some documents")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "sub").mkdir()
    (folder / "sub" / "settings.yaml").write_text("a: 1\nb: 2\n")
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    plugins = ["-p", "no:cacheprovider", "-p", "pytest_timeout"]
    configuration = ["-c", str(ROOT / "pyproject.toml"), f"--rootdir={folder}", "-m", "e2e"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *configuration, "--junitxml=report.xml", "."]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run(command, cwd=folder, env=environment, check=False, timeout=120)
    return folder


def outcomes(folder: Path, name: str) -> dict[int, ET.Element]:
    """What became of a text's blocks, by line."""
    found = {}
    for case in ET.parse(folder / "report.xml").iter("testcase"):  # noqa: S314 - ours
        if f"{case.get('classname')}" == name and (line := re.match(r"line:(\d+)", case.get("name", ""))):
            found[int(line[1])] = case
    return found


def test_a_text_that_is_true_passes(folder: Path) -> None:
    found = outcomes(folder, "right.md")
    assert sorted(found) == [3, 9, 18]
    assert [list(case) for case in found.values()] == [[], [], []]


@pytest.mark.parametrize("name", FAILURES)
def test_a_text_that_is_not_true_fails_with_file_and_line(folder: Path, name: str) -> None:
    block, *messages = FAILURES[name]
    failure = outcomes(folder, name)[block].find("failure")
    assert failure is not None
    for message in messages:
        assert message.format(file=folder / name) in (failure.text or "")


def test_the_blocks_after_one_that_failed_are_not_run(folder: Path) -> None:
    skipped = outcomes(folder, "other-output.md")[8].find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "the block at line 1 failed"


def test_a_command_that_hangs_is_ended_with_all_that_it_started(folder: Path) -> None:
    started = [int(line) for line in (folder / "started").read_text().split()]
    assert len(started) == 3
    assert [number for number in started if psutil.pid_exists(number)] == []


@pytest.mark.parametrize(
    ("expected", "said", "difference"),
    [
        ("", "anything", "it said more than is expected: anything"),
        ("...", "", None),
        ("...\nlast", "a\nlast\nb\nlast", None),
        ("...\nlast", "a\nlast\nb", "it said more than is expected: b"),
        ("a\n...\nc\nd\n...", "a\nc\nb\nc\nd", None),
        ("a ... s", "  a    12.5   s ", None),
        ("took ...s", "took 3s", None),
        ("a.c", "abc", "line 1 is not what it said: a.c"),
        ("one\n\ntwo", "one\n\n\ntwo\n", None),
        ("one\ntwo", "two\none", "line 1 is not what it said: one"),
        ("one\ntwo", "one", "line 2 is not what it said: two"),
    ],
)
def test_three_dots_stand_for_what_varies(expected: str, said: str, difference: str | None) -> None:
    lines = [(number, line) for number, line in enumerate(expected.splitlines(), 1) if line]
    assert first_difference(lines, said) == difference


def test_every_console_block_is_run() -> None:
    """What is not run is no ``console`` block, but ``sh``: its reader must not take it for tested."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    marked = {ROOT / name for name in listed if re.search(r"^\s*```+ *(console|diff)", (ROOT / name).read_text(), re.M)}
    assert marked == set(DOCUMENTS)
    # The tier of the night leaves nothing out.
    assert not re.search(r"README|playbooks|tests/", (ROOT / "scripts" / "test.sh").read_text(encoding="utf-8"))
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert {"README.md", "playbooks"} <= set(configuration["tool"]["pytest"]["ini_options"]["testpaths"])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_of_a_document_is_a_test(request: pytest.FixtureRequest, document: Path) -> None:
    file = conftest.pytest_collect_file(document, request.session)
    assert file is not None
    found = [item.name.split(",")[0] for item in file.collect()]
    lines = document.read_text(encoding="utf-8").splitlines()
    assert found == [f"line:{number}" for number, line in enumerate(lines, 1) if line in ("```console", "```diff")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_edits_of_a_document_can_be_made_and_are_undone(document: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "playbooks", tmp_path / "playbooks")
    text = document.read_text(encoding="utf-8")
    *undone, last = text.split("\n$ ./lab exercise undo\n")
    for edits in [*undone, last]:
        for difference in re.findall(r"^```diff\n(.*?)^```", edits, re.MULTILINE | re.DOTALL):
            assert edit(tmp_path, difference) is None
        if edits is not last:
            # What the command does is tested on its own: it refuses where nothing was changed.
            changed = subprocess.run(compared_with(tmp_path), capture_output=True, check=False).returncode
            assert changed, "there is nothing to undo"
            shutil.rmtree(tmp_path / "playbooks")
            shutil.copytree(ROOT / "playbooks", tmp_path / "playbooks")
    assert subprocess.run(compared_with(tmp_path), capture_output=True, text=True, check=False).stdout == ""


def compared_with(folder: Path) -> list[str]:
    """The command that compares the scenarios with a copy of theirs."""
    return ["diff", "--recursive", str(ROOT / "playbooks"), str(folder / "playbooks")]


def test_every_scenario_has_a_lab_that_sets_it_up_and_cleans_up() -> None:
    assert [lab.parent.name for lab in LABS] == list(scenario_names())
    for document in (README, *LABS):
        blocks = re.findall(r"^```console\n(.*?)^```", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        commands = re.findall(r"^\$ (.*?) *$", "".join(blocks), re.MULTILINE)
        setup = "./setup-03-broadcast.sh" if document == README else f"./lab setup {document.parent.name}"
        assert commands[0].split(" -e ")[0] == setup
        assert commands[-1] == "./lab cleanup"


def test_what_mirrors_complained_of_last_is_told_with_a_failure(tmp_path: Path) -> None:
    logs = tmp_path / ".lab/regions/north-america/logs"
    logs.mkdir(parents=True)
    said = [f"10:00:{second:02d} {'INFO ' if second % 2 else 'WARN '} what {second}" for second in range(60)]
    (logs / "mm2-na-0.log").write_text("\n".join(said))
    (logs / "north-america-kafka-0.log").write_text("10:00:00 ERROR a broker's")
    lines = complaints(tmp_path).split("\n")
    assert lines[1:] == [f"mm2-na-0: 10:00:{second:02d} WARN  what {second}" for second in range(20, 60, 2)]
    assert complaints(tmp_path / "elsewhere") == ""
