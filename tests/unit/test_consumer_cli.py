"""The consumer's command line and what it selects."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from loosehanger.errors import WrongUseError
from loosehanger.events.consume import read_arguments
from loosehanger.events.reader import Selection, Start

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2025, 11, 21, 9, 30, tzinfo=UTC)
NOW_MS = 1_763_717_400_000
EXISTING = {"LH.ORDERS", "LHXORDERS", "LH.STOCK", "europe.LH.STOCK", "heartbeats"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--from", "yesterday"], "--from: 'yesterday' is not earliest"),
        (["--from", "-10"], "--from"),
        (["--from", "-10w"], "'-10w'"),
        (["--max", "0"], "--max: '0' is not a whole number above 0"),
        (["--topic", "["], "--topic: '[' is not a regular expression"),
        (["--pattern", "*"], "--pattern: '*' is not a regular expression"),
        (["--group", "g", "--from", "5"], "excludes --group"),
        (["--group", "g", "--no-follow"], "excludes --group"),
        (["--group", "g", "--partition", "0"], "--partition excludes --group"),
        (["--partition", "-1"], "'-1' is not the number of a partition"),
        (["--partition", "x"], "'x' is not the number of a partition"),
        (["surplus"], "surplus"),
    ],
)
def test_wrong_use_is_refused(arguments: list[str], words: str) -> None:
    with pytest.raises(WrongUseError) as caught:
        read_arguments(arguments, {})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrong_use_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    config = tmp_path / "missing.properties"
    arguments = [sys.executable, "-m", "consumers", "--config", str(config)]
    result = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr == f"error: {config}: cannot be read (No such file or directory)\n"


def test_without_arguments_a_person_follows_everything() -> None:
    options = read_arguments([], {})
    assert options.pattern.pattern == r"^(.+\.)?LH\..*"
    assert (options.topic, options.group, options.max, options.json, options.follow) == ([], None, None, False, True)
    assert options.start == Start(end="earliest")


def test_a_deployment_is_told_by_its_environment() -> None:
    options = read_arguments([], {"CONSUMER_GROUP": "consumer-europe", "CONSUMER_PATTERN": "^europe"})
    assert options.group == "consumer-europe"
    assert options.pattern.pattern == "^europe"


def test_a_time_ago_may_follow_its_option() -> None:
    for arguments in (["--json", "--from", "-10m"], ["--from=-10m"]):
        assert read_arguments(arguments, {}).start.time_ms is not None


def test_events_begin_now_with_any_option_but_those_that_say_where() -> None:
    for arguments in ([], ["--max", "3"], ["--topic", "LH.ORDERS", "--json"], ["--group", "mine"]):
        assert read_arguments(arguments, {}, start="latest").start == Start(end="latest"), arguments
    for arguments in (["--from", "earliest"], ["--from", "earliest", "--max", "3"], ["--no-follow"]):
        assert read_arguments(arguments, {}, start="latest").start == Start(end="earliest"), arguments
    assert read_arguments(["--no-follow", "--from", "latest"], {}, start="latest").start == Start(end="latest")


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Start(end="earliest")),
        ("latest", Start(end="latest")),
        ("0", Start(offset=0)),
        ("17", Start(offset=17)),
        ("-10m", Start(time_ms=NOW_MS - 600_000)),
        ("-90s", Start(time_ms=NOW_MS - 90_000)),
        ("-2h", Start(time_ms=NOW_MS - 7_200_000)),
        ("-1d", Start(time_ms=NOW_MS - 86_400_000)),
        ("2025-11-21T09:30:00Z", Start(time_ms=NOW_MS)),
        ("2025-11-21T10:30:00.125+01:00", Start(time_ms=NOW_MS + 125)),
        ("1969-01-01T00:00:00Z", Start(time_ms=0)),
    ],
)
def test_where_to_begin(text: str, start: Start) -> None:
    assert Start.parse(text, NOW) == start


@pytest.mark.parametrize(
    ("topics", "chosen", "unknown"),
    [
        ((), {"LH.ORDERS", "LH.STOCK"}, []),
        (("LH.ORDERS",), {"LH.ORDERS"}, []),
        ((".*STOCK", "heartbeats"), {"LH.STOCK", "europe.LH.STOCK", "heartbeats"}, []),
        (("LH.STOC",), set(), ["LH.STOC"]),
        (("LH.STOCK", "LH.S.+S"), {"LH.STOCK"}, ["LH.S.+S"]),
    ],
)
def test_which_topics(topics: tuple[str, ...], chosen: set[str], unknown: list[str]) -> None:
    selection = Selection(topics, re.compile(r"^LH\..*"))
    assert selection.choose(EXISTING) == chosen
    assert selection.unknown(EXISTING) == unknown
    assert {name for name in EXISTING if re.match(selection.regex(), name)} == chosen, "a group chooses the same"
