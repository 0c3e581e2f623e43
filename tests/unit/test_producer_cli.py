"""The producer's command line: what it takes, what it refuses, and how it keeps to a rate."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from loosehanger.errors import WrongUseError
from loosehanger.kafka.connection import Connection
from producer import __main__ as command
from producer.__main__ import Rate, Run, parser
from producer.shop import TOPICS, Event

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rate", "0"], "--rate: '0' is not a number above 0"),
        (["--rate", "nan"], "--rate: 'nan'"),
        (["--rate", "inf"], "--rate: 'inf'"),
        (["--rate", "quick"], "--rate: 'quick'"),
        (["--events", "0"], "--events: '0' is not a whole number above 0"),
        (["--events", "1e3"], "--events: '1e3'"),
        (["--seed", "x"], "--seed: 'x'"),
        (["--topics", "ORDERS,SHOES"], "'SHOES' is not a topic of the shop; the topics are ORDERS"),
        (["--warehouses", "A,,B"], "--warehouses"),
        (["--warehouses", "La Paz"], "'La Paz' must be one word"),
        (["--region-code", ""], "--region-code"),
        (["--prefix", "a/b"], "--prefix: 'a/b'"),
        (["--wait", "-1"], "--wait: '-1' is not a number of seconds"),
        (["--no-such"], "--no-such"),
    ],
)
def test_wrong_use_is_refused(arguments: list[str], words: str) -> None:
    with pytest.raises(WrongUseError) as caught:
        parser({}).parse_args(arguments)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrong_use_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    config = tmp_path / "missing.properties"
    result = subprocess.run(
        [sys.executable, "-m", "producer", "--config", str(config)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr == f"error: {config}: cannot be read (No such file or directory)\n"


def test_the_environment_gives_defaults_and_options_win() -> None:
    environment = {
        "PRODUCER_ORIGIN": "south-america",
        "PRODUCER_REGION_CODE": "SA",
        "PRODUCER_WAREHOUSES": "SãoPaulo,LaPaz",
        "PRODUCER_RATE": "max",
        "PRODUCER_EVENTS": "7",
        "PRODUCER_SEED": "-3",
        "PRODUCER_PREFIX": "X.",
        "PRODUCER_TOPICS": "STOCK",
        "PRODUCER_FLUSH": "",
    }
    options = parser(environment).parse_args(["--events", "8"])
    assert (options.origin, options.region_code, options.prefix) == ("south-america", "SA", "X.")
    assert options.warehouses == ("SãoPaulo", "LaPaz")
    assert options.rate == Rate("max")
    assert (options.events, options.seed, options.topics, options.flush) == (8, -3, ("STOCK",), 10)


def test_rates_place_events_in_time() -> None:
    assert Rate.parse("200").offset(shop_s=99, sent=50) == 0.25
    assert Rate.parse("shop").offset(shop_s=99, sent=50) == 99
    assert Rate.parse("max").offset(shop_s=99, sent=50) == 0
    assert Rate.parse("10").explain(TOPICS) == "10 events/s, shop time runs 22.4 times as fast"


class Sent:
    """Stands where ``Delivery`` does: keeps what it is given, and takes it for acknowledged."""

    def __init__(self) -> None:
        self.events: list[tuple[float, Event]] = []
        self.bytes = 0
        self.again = 0
        self.stop = threading.Event()
        self.stop_after = 0

    @property
    def sent(self) -> int:
        return len(self.events)

    acknowledged = sent

    def open(self, *_: object) -> None: ...

    def room(self) -> bool:
        return True

    def settle(self) -> None: ...

    def send(self, event: Event) -> None:
        self.events.append((time.monotonic(), event))
        if self.sent == self.stop_after:
            self.stop.set()

    def close(self, bound_s: float) -> int:  # noqa: ARG002
        return 0


def produce(arguments: list[str], monkeypatch: pytest.MonkeyPatch, stop_after: int = 0) -> Sent:
    sent = Sent()
    sent.stop_after = stop_after
    monkeypatch.setattr(command, "Delivery", lambda *_, **__: sent)
    monkeypatch.setattr(command, "prepare", lambda _: None)
    run = Run(parser({}).parse_args(arguments), Connection(("127.0.0.1:1",)), sent.stop)
    assert run.start() == 0
    return sent


def test_exactly_as_many_records_as_wanted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for count in (1, 2, 999, 1000):
        sent = produce(["--rate", "max", "--events", str(count), "--seed", "5"], monkeypatch)
        assert len(sent.events) == count
        assert f"done: {count} records in " in capsys.readouterr().out


def test_a_limit_may_fall_between_the_two_of_a_double(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--rate", "max", "--seed", "5", "--topics", "STOCK", "--events"]
    events = [event for _, event in produce([*arguments, "100"], monkeypatch).events]
    first_of_two = next(n for n, (one, next_one) in enumerate(pairwise(events), 1) if one == next_one)
    assert len(produce([*arguments, str(first_of_two)], monkeypatch).events) == first_of_two


def test_a_seed_repeats_the_keys_at_any_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = produce(["--rate", "max", "--events", "300", "--seed", "5"], monkeypatch)
    paced = produce(["--rate", "2000", "--events", "300", "--seed", "5"], monkeypatch)
    assert [event[:2] for _, event in quick.events] == [event[:2] for _, event in paced.events]


def test_a_rate_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = produce(["--rate", "400", "--events", "200"], monkeypatch)
    took = sent.events[-1][0] - sent.events[0][0]
    # The first event may be late on a busy machine, and the others then catch up.
    assert took >= 0.8 * 199 / 400


def test_at_a_low_rate_events_go_together_and_the_rate_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [at for at, _ in produce(["--rate", "20", "--events", "50"], monkeypatch).events]
    assert times[-1] - times[0] >= 0.8 * 49 / 20
    pauses = [after - before for before, after in pairwise(times) if after - before > 0.1]
    assert 2 <= len(pauses) <= 3, pauses


def test_a_stop_ends_the_run_in_good_order(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = produce(["--rate", "max"], monkeypatch, stop_after=123)
    assert 123 <= len(sent.events) <= 124


def test_only_values_of_the_topics_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = produce(["--rate", "max", "--events", "50", "--topics", "STOCK"], monkeypatch)
    assert {event.topic for _, event in sent.events} == {"STOCK"}
    assert all("movementid" in json.loads(event.value) for _, event in sent.events)


def test_a_signal_while_waiting_for_the_cluster_ends_it(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("bootstrap.servers=127.0.0.1:1\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "producer", "--config", str(config)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    with process:
        try:
            assert process.stdout
            assert "run " in process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "done: 0 records" in output
