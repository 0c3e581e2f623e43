"""``python -m producer``: writes the events of Loosehanger Jeans to Kafka until it is stopped."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from loosehanger.errors import LabError, WrongUseError, run_command
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.patches import prepare
from loosehanger.ledger import Ledger
from producer import words
from producer.delivery import Delivery
from producer.shop import TOPICS, Shop, events_per_second

CATCH_UP_S = 2.0
"""Seconds the producer may be behind its schedule and still catch up; older events are dropped."""
SHORTEST_WAIT_S = 0.001
LONE_EVENT_S = 0.02
"""Seconds between two events from which each would be sent alone and wake brokers, mirrors and readers."""
BEAT_S = 1.0
"""Seconds between two groups of such events. At most half of the time that may be caught up."""
DRAIN_LOOK_S = 0.02


@dataclass(frozen=True)
class Rate:
    """The speed of shop time: as in the shop, a number of events per second, or as fast as possible."""

    text: str
    per_second: float | None = None

    @classmethod
    def parse(cls, text: str) -> Rate:
        """Parses ``shop``, ``max`` or a number of events per second."""
        if text in ("shop", "max"):
            return cls(text)
        try:
            number = float(text)
        except ValueError:
            number = 0
        if not 0 < number < float("inf"):
            raise argparse.ArgumentTypeError(f"'{text}' is not a number above 0, 'max' or 'shop'")
        return cls(f"{number:g}", number)

    def explain(self, topics: Sequence[str]) -> str:
        """Describes its effect on the delays between events that belong together."""
        average = events_per_second(topics)
        if self.per_second:
            return f"{self.text} events/s, shop time runs {self.per_second / average:.3g} times as fast"
        if self.text == "shop":
            return f"as in the shop, {average:.2g} events/s"
        return "as fast as possible"

    def offset(self, shop_s: float, sent: int) -> float:
        """Returns the seconds from the start at which an event is due, by its shop time and the events before it."""
        if self.per_second:
            return sent / self.per_second
        return shop_s if self.text == "shop" else 0.0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise WrongUseError(f"{message}; python -m producer --help explains")


def _count(text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return number


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds")
    return number


def _seed(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None


def _word(text: str) -> str:
    if not text or text.split() != [text]:
        raise argparse.ArgumentTypeError(f"'{text}' must be one word without blanks")
    return text


def _warehouses(text: str) -> tuple[str, ...]:
    return tuple(_word(part.strip()) for part in text.split(","))


def _topics(text: str) -> tuple[str, ...]:
    wanted = tuple(part.strip() for part in text.split(","))
    for topic in wanted:
        if topic not in TOPICS:
            raise argparse.ArgumentTypeError(
                f"'{topic}' is not a topic of the shop; the topics are {', '.join(TOPICS)}"
            )
    return wanted


def _prefix(text: str) -> str:
    if len(text) > 200 or not all(letter.isascii() and (letter.isalnum() or letter in "._-") for letter in text):
        raise argparse.ArgumentTypeError(f"'{text}' cannot begin a topic's name; use letters, digits, '.', '_' and '-'")
    return text


def parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    """Returns the parser; the environment variable PRODUCER_<OPTION> is each option's default, if set."""
    command = _Parser(
        prog="python -m producer",
        description="Writes the events of Loosehanger Jeans to Kafka until it is stopped. "
        "Each option may be given as an environment variable too: --rate as PRODUCER_RATE, for instance. "
        "Without --config, the cluster is the one that the KAFKA_… variables name.",
    )

    def option(flag: str, default: str | None, kind: Callable[[str], Any], metavar: str, explain: str) -> None:
        variable = "PRODUCER_" + flag.removeprefix("--").replace("-", "_").upper()
        value = environment.get(variable) or default
        command.add_argument(flag, default=value, type=kind, metavar=metavar, help=f"{explain} [{variable}]")

    option("--config", None, Path, "FILE", "client properties file: cluster, user and password")
    option("--origin", "here", _word, "REGION", "region the events come from, for their headers (here)")
    option("--region-code", "EU", _word, "CODE", "region in the orders, which also decides the names (EU)")
    option("--warehouses", ",".join(words.WAREHOUSES), _warehouses, "A,B,…", "where stock arrives")
    option("--rate", "10", Rate.parse, "N|max|shop", "events per second; 'shop': the demonstrations' slow pace (10)")
    option("--events", None, _count, "N", "stop after exactly N records")
    option("--seed", None, _seed, "N", "the same seed gives the same events again")
    option("--prefix", "LH.", _prefix, "TEXT", "what stands before each topic's name (LH.)")
    option("--topics", ",".join(TOPICS), _topics, "A,B,…", "only these of " + ", ".join(TOPICS))
    option("--wait", "120", _seconds, "S", "how long to wait for the cluster and its topics at the start (120)")
    option("--flush", "10", _seconds, "S", "how long the last records may take after a stop signal (10)")
    option("--ledger", None, Path, "FOLDER", "keep a ledger of sent and acknowledged records there")
    option("--report", "10", _seconds, "S", "time between lines about the progress, 0 for none (10)")
    return command


def say(text: str) -> None:
    """Writes one line with the time to standard output, at once."""
    print(f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S%z} {text}", flush=True)


class Run:
    """One run of the producer.

    Args:
        options: the command line's options.
        connection: the connection to the cluster.
        stop: set to stop the run.
    """

    def __init__(self, options: argparse.Namespace, connection: Connection, stop: threading.Event) -> None:
        self._options = options
        self._stop = stop
        self._seed: int = secrets.randbits(32) if options.seed is None else options.seed
        self._run = str(uuid.uuid4())
        self._connection = connection
        self._delivery = Delivery(
            connection,
            prefix=options.prefix,
            run=self._run,
            origin=options.origin,
            client_log=prepare(say),
            stop=stop,
            ledger=Ledger(options.ledger, f"producer-{self._run}") if options.ledger else None,
        )

    def start(self) -> int:
        """Runs until it is stopped or has sent its number of records; returns the exit code.

        Raises:
            LabError: the cluster or a topic is missing, or records were not acknowledged.
        """
        options = self._options
        say(
            f"run {self._run} to {self._connection!r}: topics {options.prefix}{{{','.join(options.topics)}}}, "
            f"{options.rate.explain(options.topics)}, {options.events or 'endless'} events, "
            f"origin {options.origin}, seed {self._seed}"
        )
        shop = Shop(self._seed, options.region_code, options.warehouses, options.topics)
        self._delivery.open(options.topics, options.wait, say)
        began = time.monotonic()
        failure = ""
        try:
            self._produce(shop)
        except LabError as error:
            failure = f"{error}; "
        lost = self._delivery.close(options.flush)
        if failure or lost:
            raise LabError(f"{failure}{lost} of {self._delivery.sent} records were not acknowledged")
        seconds = time.monotonic() - began
        sent, megabytes = self._delivery.sent, self._delivery.bytes / 1e6
        say(f"done: {sent} records in {seconds:.1f} s, {sent / seconds:.0f} records/s, {megabytes:.1f} MB")
        return 0

    def _produce(self, shop: Shop) -> None:
        rate: Rate = self._options.rate
        delivery = self._delivery
        limit: float = self._options.events or float("inf")
        start = time.monotonic()
        report_at = start + self._options.report if self._options.report else float("inf")
        reported = 0
        while delivery.sent - delivery.again < limit and not self._stop.is_set():
            now = time.monotonic()
            if now >= report_at:
                self._report(now - report_at + self._options.report, reported)
                report_at, reported = now + self._options.report, delivery.sent
            ahead = start + rate.offset(shop.due, delivery.sent - delivery.again) - now
            if ahead > SHORTEST_WAIT_S:
                delivery.settle()
                pause = ahead if ahead < LONE_EVENT_S else max(ahead, BEAT_S)
                self._stop.wait(min(pause, report_at - now, CATCH_UP_S))
                continue
            if ahead < -CATCH_UP_S:
                start -= ahead
            if not delivery.room():
                continue
            for event in shop.step(time.time_ns() // 1_000_000):
                if delivery.sent - delivery.again < limit:
                    delivery.send(event)
        # A complete run waits for as long as a record may take; only a stop signal sets a shorter bound.
        while delivery.acknowledged < delivery.sent and not self._stop.is_set():
            delivery.settle()
            self._stop.wait(DRAIN_LOOK_S)

    def _report(self, seconds: float, before: int) -> None:
        sent, acknowledged = self._delivery.sent, self._delivery.acknowledged
        rate = (sent - before) / seconds
        say(f"{acknowledged} records acknowledged, {sent - acknowledged} in flight, {rate:.1f} records/s")


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads the command line and the environment, and runs.

    Raises:
        LabError: wrong use, or the run failed.
    """
    options = parser(os.environ).parse_args(arguments)
    connection = (
        Connection.from_properties(options.config, os.environ, say) if options.config else Connection.from_environment()
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return Run(options, connection, stop).start()


if __name__ == "__main__":
    sys.exit(run_command(main))
