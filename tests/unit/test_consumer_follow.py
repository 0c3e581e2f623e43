"""Following a log file through everything that happens to log files."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loosehanger.errors import WrongUseError
from loosehanger.events.follow import MOST_LINE, follow, main
from loosehanger.events.render import Line, safe

ROOT = Path(__file__).resolve().parents[2]
RECORD = "2025-11-21 10:00:00.007 LH.CUSTOMERS/2     @4711   [a key] new customer Jo"


def news(lines: Iterator[str | None]) -> list[str]:
    """What there is until nothing new comes."""
    found: list[str] = []
    for line in lines:
        if line is None:
            return found
        found.append(line)
    raise AssertionError("a follower does not end by itself")


@contextmanager
def ended(process: subprocess.Popen[Any]) -> Iterator[subprocess.Popen[Any]]:
    """A process that is gone afterwards, whatever the test found."""
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "consumer.log"


def append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as stream:
        stream.write(text)


def test_the_last_lines_and_what_comes(log: Path) -> None:
    append(log, "".join(f"line {number}\n" for number in range(100)))
    lines = follow(log, 3, idle_s=0)
    assert news(lines) == ["line 97", "line 98", "line 99"]
    assert news(lines) == []
    append(log, "one more\r\nand ano")
    assert news(lines) == ["one more"]
    append(log, "ther\n")
    assert news(lines) == ["and another"]


def test_a_rotated_log(log: Path) -> None:
    append(log, "old\n")
    lines = follow(log, 5, idle_s=0)
    assert news(lines) == ["old"]
    append(log, "last words\n")
    log.rename(log.with_suffix(".1"))
    append(log, "new\n")
    assert news(lines) == ["last words", "new"]
    log.rename(log.with_suffix(".2"))
    assert news(lines) == []
    append(log, "newer\n")
    assert news(lines) == ["newer"]


def test_a_truncated_log(log: Path) -> None:
    append(log, "long ago\n")
    lines = follow(log, 5, idle_s=0)
    assert news(lines) == ["long ago"]
    log.write_text("new\n")
    assert news(lines) == ["new"]


def test_an_unfinished_line_is_shown_when_it_is_finished(log: Path) -> None:
    append(log, "done\nhalf")
    lines = follow(log, 5, idle_s=0)
    assert news(lines) == ["done"]
    append(log, " and half\n")
    assert news(lines) == ["half and half"]


def test_a_line_without_an_end_takes_bounded_memory(log: Path) -> None:
    lines = follow(log, 5, idle_s=0)
    for text, expected in (("first\n" + "x" * 5_000_000, ["first"]), ("y" * 5_000_000, []),
                           ("z\nnext\n", ["x" * MOST_LINE, "next"])):  # fmt: skip
        append(log, text)
        tracemalloc.start()
        try:
            assert news(lines) == expected
            assert tracemalloc.get_traced_memory()[1] < 2_000_000
        finally:
            tracemalloc.stop()


def test_any_number_of_lines_may_be_asked_for(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log, "line\n")
    monkeypatch.setattr("time.sleep", lambda _: signal.raise_signal(signal.SIGINT))
    for count in ("9" * 30, "-1", "0"):
        assert main([str(log), "--lines", count]) == 0


@given(st.binary())
@settings(deadline=None)
def test_whatever_is_in_a_log_is_shown(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "consumer.log"
        log.write_bytes(data + b"\n")
        shown = news(follow(log, 1000, idle_s=0))
        assert len(shown) == data.count(b"\n") + 1
        for text in shown:
            line = Line.parse(safe(text))
            assert safe(text).isprintable()
            assert line is None or line.coloured()


def test_no_such_file(log: Path) -> None:
    with pytest.raises(WrongUseError, match=r"consumer\.log: cannot be read \(No such file or directory\)"):
        main([str(log)])


def test_it_ends_quietly_on_an_interrupt_and_escapes_what_is_hostile(log: Path) -> None:
    append(log, f"{RECORD}\nhostile \x1b[2J\n")
    arguments = [sys.executable, "-m", "loosehanger.events.follow", str(log)]
    process = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with ended(process):
        assert process.stdout
        assert process.stdout.readline() == f"{RECORD}\n"
        assert process.stdout.readline() == "hostile \\x1b[2J\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
        assert process.stderr
        assert process.stderr.read() == ""


def test_on_a_terminal_records_are_coloured(log: Path) -> None:
    append(log, f"{RECORD}\n")
    arguments = [sys.executable, "-m", "loosehanger.events.follow", str(log)]
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"}
    outer, inner = pty.openpty()
    with ended(subprocess.Popen(arguments, cwd=ROOT, stdout=inner, env=environment)) as process:
        shown = os.read(outer, 1000).decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
    os.close(inner)
    os.close(outer)
    assert "\x1b[35mLH.CUSTOMERS/2" in shown
