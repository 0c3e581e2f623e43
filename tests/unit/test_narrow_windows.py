"""Eighty columns, the default width of a terminal: tables are whole, and what is cut is counted."""

from __future__ import annotations

import io
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from loosehanger.audit.balance import KINDS
from loosehanger.audit.display import screen
from loosehanger.cli import credentials, status, topics
from loosehanger.cli.command_line import COMMANDS, overview
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.progress import Progress
from loosehanger.proof.report.tables import show_proof
from tests import samples

WIDTH, HEIGHT = 80, 24
REGIONS = ("europe", "north-america", "south-america")
MINUTE_MS = 1_767_225_600_000


def window(height: int = HEIGHT) -> Console:
    """A terminal in memory."""
    return Console(
        file=io.StringIO(), force_terminal=True, no_color=True, width=WIDTH, height=height, highlight=False, _environ={}
    )


def shown(console: Console) -> list[str]:
    """The lines in it, none of which is wider than it or cut off."""
    file = console.file
    assert isinstance(file, io.StringIO)
    lines = re.sub("\x1b\\[[0-9;?]*[a-z]", "", file.getvalue()).splitlines()
    assert max(map(len, lines)) <= WIDTH, lines
    assert not any("…" in line for line in lines), lines
    return lines


def test_the_list_of_commands_keeps_its_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    lines = overview().splitlines()
    assert max(map(len, lines)) <= WIDTH
    at = next(line for line in lines if line.startswith("  doctor")).index("can this machine")
    assert any(line == " " * at + "next?" for line in lines)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_commands_help(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    lines = COMMANDS[name].parser().format_help().splitlines()
    # A command to copy is whole.
    assert [line for line in lines if len(line) > WIDTH and not line.startswith("  ./lab ")] == []


def test_a_proof_with_every_kind_of_fault() -> None:
    faults: dict[str, Any] = dict.fromkeys(samples.FAULTS, 12_345)
    flow = samples.flow(verdict="disproved", source_records=12_345_678, **faults)
    console = window()
    show_proof(samples.proof(flow, verdict="disproved", reasons=("a difference",)), console)
    text = " ".join(" ".join(shown(console)).split())
    assert "LH.ORDERS" in text
    assert "12,345,678" in text
    for name in ("missing", "duplicates", "altered", "moved"):
        assert f"12,345 {name}" in text


def test_a_table_names_its_flow_where_there_are_several_between_two_clusters() -> None:
    flows = [samples.flow(mirror=f"external/{name}", topic=name) for name in ("shop", "pay")]
    titles = []
    for shown_flows in (flows, flows[:1]):
        console = window()
        show_proof(samples.proof(*shown_flows), console)
        titles.append([line.strip() for line in shown(console) if "→" in line])
    assert titles == [
        ["europe → north-america, flow shop", "europe → north-america, flow pay"],
        ["europe → north-america"],
    ]


def status_of(monkeypatch: pytest.MonkeyPatch, console: Console, detail: str) -> list[str]:
    """What the status shows of one mirror."""
    monkeypatch.setattr(status, "Console", lambda **_: console)
    monkeypatch.setattr(status, "required_progress", lambda: Progress("03-broadcast", "local", "inventories/local"))
    lab: Any = SimpleNamespace(scenario="03-broadcast", platform="local", stage="setup", unfinished="", lost={})
    mirror = {"kind": "KafkaMirrorMaker2", "name": "mm2-north-america", "state": "Running", "healthy": True}
    status.show(lab, {"north-america": [{**mirror, "detail": detail}]})
    return shown(console)


def test_a_long_detail_of_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    detail = "3 connectors, 7 tasks; LH.ORDERS is 12,345 records behind, and retention may reach them within 3.2 h"
    lines = status_of(monkeypatch, window(), detail)
    assert " ".join(" ".join(lines).split()).endswith(detail)
    assert any(line.endswith("KafkaMirrorMaker2/mm2-north-america") for line in lines)


def test_a_short_detail_of_the_status_stays_in_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert any(line.endswith("7 tasks") for line in status_of(monkeypatch, window(), "7 tasks"))


@dataclass
class WebConsole:
    """As the record has it."""

    name: str
    url: str = "http://127.0.0.1:19180/"
    username: str = "console-of-north-america"
    password_of: str = "console-of-north-america"


@pytest.mark.parametrize("terminal", [True, False])
def test_no_line_of_the_credentials_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    password = "p" * 32
    monkeypatch.setattr(credentials, "connection_of", lambda *_: SimpleNamespace(password=password))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_: os.terminal_size((WIDTH, HEIGHT)))
    region = SimpleNamespace(consoles=[WebConsole("north-america"), WebConsole("control room")])
    lab: Any = SimpleNamespace(regions={"north-america": region}, pod=None)
    assert credentials.show_credentials(lab) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.rstrip().endswith(password) for line in lines) == 2
    assert (max(map(len, lines)) <= WIDTH) == terminal


def test_topics_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    console = window()
    settings: dict[str, Any] = {"partitions": 3, "retention.ms": "604800000", "min.insync.replicas": "1"}
    settings["cleanup.policy"] = "compact,delete"
    there = {
        "europe": {"LH.ORDERS": settings, "LH.STOCK": settings},
        "north-america": {"LH.ORDERS": settings | {"retention.ms": "86400000"}},
        "south-america": {"LH.ORDERS": settings},
    }
    monkeypatch.setattr(topics, "Console", lambda **size: Console(**size) if size else console)
    monkeypatch.setattr(topics, "describe", lambda region: there[region.name])
    clusters = {name: SimpleNamespace(name=name) for name in REGIONS}
    mirrors = [
        Mirror(f"mm2-{target}", "europe", target, "europe", target, "identity", ".", "LH.*", "", "c", {})
        for target in REGIONS[1:]
    ]
    lab: Any = SimpleNamespace(clusters=clusters, mirrors=mirrors)
    assert topics._show(lab, None) == 0
    lines = shown(console)
    text = "\n".join(lines)
    assert "min.insync.replicas: 1" in text
    for region, value in (("europe", "604800000"), ("north-america", "86400000")):
        assert f"{region} {value}" in text
    assert "  not in north-america, south-america" in lines


def watched(**changes: Any) -> dict[str, Any]:
    """A document of the watch: two mirrors of seven topics, three regions."""
    minute = {"orders": 1234, "cancellations": 12, "revenue": Decimal("123456.78"), "stock_units": 4321, "doors": 99}
    minute |= {"readings": 1234, "temperature": Decimal("21.5"), "unreadable": 0}
    activity = {
        "minutes": [{"minute": MINUTE_MS - number * 60_000, **minute} for number in range(5)],
        "by_product": [{"name": f"Jeans {number}", "revenue": Decimal("9876.50")} for number in range(5)],
        "by_warehouse": [{"name": f"Hall {number}", "units": 99} for number in range(5)],
    }
    numbers = {"records": 1_234_567, "copies": 1_234_567, "loss": None} | dict.fromkeys(
        ("in_flight", "late", *KINDS), 0
    )
    flows = [
        {"source": "europe", "target": target, "topic": f"LH.TOPIC.{number}", **numbers}
        for target in REGIONS[1:]
        for number in range(7)
    ]
    flows[-1] |= changes
    document = {"scenario": "s", "at": MINUTE_MS, "read_at": MINUTE_MS, "since": MINUTE_MS, "flows": flows}
    document |= {"regions": dict.fromkeys(REGIONS, activity)}
    return document | {name: [] for name in ("canaries", "findings", "not_judged", "notes", "problems")}


def on_screen(document: dict[str, Any], height: int) -> list[str]:
    """What a window of this height shows of it."""
    console = window(height)
    console.print(screen(document, WIDTH, height))
    return shown(console)


def test_the_watch_shows_the_audit_before_the_shop() -> None:
    lines = on_screen(watched(), 60)
    at = {word: next(n for n, line in enumerate(lines) if line.startswith(word)) for word in ("mirrored", "UTC")}
    assert at["mirrored"] < at["UTC"]
    assert not any("not shown" in line for line in lines)
    assert any("123,456.78" in line for line in lines)


@pytest.mark.parametrize("height", [10, 24, 40])
def test_the_watch_says_what_it_has_no_room_for(height: int) -> None:
    lines = on_screen(watched(late=5, missing=3, altered=2), height)
    assert len(lines) <= height - 1
    assert any("LH.TOPIC.6" in line and "3 missing, 2 altered" in line for line in lines), "alarms have room"
    assert any(line.startswith("not shown because the window is too small: ") for line in lines)
    assert lines[-1].endswith("Ctrl-C stops it")


def test_ctrl_c_ends_a_watch_in_the_middle_of_a_round() -> None:
    """On a terminal; and here the round never ends."""
    program = (
        "import signal, threading\nfrom loosehanger.jobs import watch\n"
        "signal.signal(signal.SIGINT, lambda *_: watch._end(threading.Event()))\n"
        "print('ready', flush=True)\n"
        "while True: signal.pause()\n"
    )
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", program], stdout=theirs) as process:
        os.close(theirs)
        try:
            os.read(ours, 100)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()
            os.close(ours)
