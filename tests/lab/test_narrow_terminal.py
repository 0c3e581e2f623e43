"""Every command that shows something, on a terminal of 80 columns in front of a real lab: no line is cut or broken."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time

import pytest

from loosehanger.cli.command_line import COMMANDS
from scripts.sandbox import Kit

pytestmark = [pytest.mark.lab, pytest.mark.slow]

WIDTH, HEIGHT = 80, 24
SECONDS = 300.0
SHOWS = (
    "help", "scenarios", "experiment", "status", "status --credentials", "diff", "doctor", "logs", "topic show",
    "topic show LH.ORDERS", "link", "link europe north-america --delay 5ms", "link europe north-america --heal",
    "stage", "fault list", "fault status", "learn list", "client europe", "client europe --librdkafka", "monitoring",
    "produce europe --topic LH.STOCK --value {}", "mirror-properties", "kafka europe topics --list", "prove",
    "aggregate", "exercise undo", "setup 3-broadcast", "topic show LH.ORDER", "consume europ", "open nowhere", "stat",
)  # fmt: skip


def on_a_terminal(kit: Kit, arguments: list[str]) -> tuple[int, list[str]]:
    """The exit code of a command, and the lines that it shows in a window of 80 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    environment = {name: value for name, value in kit.variables().items() if name not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-P", "-m", "loosehanger.cli", *arguments]
    text, deadline = b"", time.monotonic() + SECONDS
    with subprocess.Popen(
        command, cwd=kit.root, env=environment | {"TERM": "xterm"}, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        try:
            while part := _read(ours):
                text += part
                assert time.monotonic() < deadline
            code = process.wait(60)
        finally:
            process.kill()
            os.close(ours)
    plain = re.sub("\x1b\\[[0-9;?]*[A-Za-z]", "", text.decode(errors="replace"))
    return code, [line.rpartition("\r")[2] for line in plain.replace("\r\n", "\n").splitlines()]


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:
        return b""  # The other end is closed.


def too_wide(lines: list[str]) -> list[str]:
    """Lines that a terminal breaks, but for errors and those that end with a path, an address or a command to copy."""
    return [line for line in lines if len(line) > WIDTH and not re.search(r"^error: |\S{30,}|\./lab .*$", line)]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits(kit: Kit, command: str) -> None:
    code, lines = on_a_terminal(kit, [command, "--help"])
    assert code == 0
    assert too_wide(lines) == []


@pytest.mark.parametrize("command", SHOWS)
def test_what_a_command_shows_fits(kit: Kit, command: str) -> None:
    code, lines = on_a_terminal(kit, command.split())
    assert too_wide(lines) == []
    assert lines
    assert not any("Traceback" in line for line in lines)
    mistakes = ("exercise undo", "setup 3-broadcast", "topic show LH.ORDER", "consume europ", "open nowhere", "stat")
    assert code == (2 if command in mistakes else 0), lines
