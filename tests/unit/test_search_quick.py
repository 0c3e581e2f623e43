"""Commands of a kit that start at once: they answer as the kit's own do."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from loosehanger.errors import ExitCode
from loosehanger.paths import ROOT
from scripts.sandbox import Kit
from scripts.search.quick import QuickKit


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[QuickKit]:
    """A kit with nothing set up."""
    kit = QuickKit(ROOT, tmp_path, 23000)
    yield kit
    kit.end()
    assert not [child for child in psutil.Process().children(recursive=True) if "scripts.search" in _command(child)]


def _command(process: psutil.Process) -> str:
    """Its command; empty for one that has exited, such as another test's that was not waited for."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("status",), ExitCode.NOTHING_SET_UP),
        (("fault", "inject", "no-such"), ExitCode.NOTHING_SET_UP),
        (("status", "--no-such"), ExitCode.WRONG_USE),
    ],
)
def test_a_command_answers_as_one_that_is_a_process_of_its_own(
    quick: QuickKit, words: tuple[str, ...], code: ExitCode
) -> None:
    for _ in range(2):
        done, slow = quick.run(*words), Kit(quick.root, quick.home, quick.port_base).run(*words)
        assert (done.returncode, done.stdout, done.stderr) == (slow.returncode, slow.stdout, slow.stderr)
        assert done.returncode == code


def test_a_command_that_does_not_end_is_killed_and_the_next_one_runs(quick: QuickKit) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        quick.run("status", timeout=0)
    assert quick.run("status").returncode == ExitCode.NOTHING_SET_UP
