"""The consumer's command line. Python's own library is enough for it, so that help needs no installation."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from loosehanger.errors import WrongUseError
from loosehanger.times import moment

PROGRAM = "python -m consumers"
EARLIEST = "earliest"


@dataclass(frozen=True)
class Start:
    """Where reading begins: at an end of the partition, at an offset, or at a time."""

    end: str | None = None
    """``earliest`` or ``latest``."""
    offset: int | None = None
    time_ms: int | None = None

    @classmethod
    def parse(cls, text: str, now: datetime) -> Start:
        """Reads ``earliest``, ``latest``, an offset, an ISO time (local, if it names no zone), or ``-10m`` ago.

        Raises:
            ValueError: it is none of these.
        """
        if text in ("earliest", "latest"):
            return cls(end=text)
        if text.isascii() and text.isdecimal():
            return cls(offset=int(text))
        try:
            time = moment(text, now)
        except ValueError:
            raise ValueError(
                f"'{text}' is not earliest, latest, an offset, a time such as 2025-11-21T09:30 or -10m (s, m, h, d)"
            ) from None
        return cls(time_ms=max(0, round(time.timestamp() * 1000)))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise WrongUseError(f"{message}; {self.prog} --help explains")


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"'{text}' is not a regular expression: {error}") from None


def _topic(text: str) -> str:
    _pattern(text)
    return text


def _start(text: str) -> Start:
    try:
        return Start.parse(text, datetime.now().astimezone())
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _count(text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return number


def parser(environment: Mapping[str, str], prog: str = PROGRAM, start: str = EARLIEST) -> argparse.ArgumentParser:
    """The command line; CONSUMER_GROUP and CONSUMER_PATTERN give the defaults of --group and --pattern."""
    command = _Parser(
        prog=prog,
        description="Shows the records of a cluster as they arrive, committed ones only. "
        "Without --config, the cluster is the one that the KAFKA_… variables name. Ctrl-C ends it.",
    )
    command.add_argument("--config", type=Path, metavar="FILE", help="client properties file: cluster, user, password")
    command.add_argument(
        "--topic",
        type=_topic,
        action="append",
        default=[],
        metavar="NAME_OR_REGEX",
        help="this topic, or those whose whole name matches; may be given several times",
    )
    command.add_argument(
        "--pattern",
        type=_pattern,
        default=environment.get("CONSUMER_PATTERN") or r"^(.+\.)?LH\..*",
        metavar="REGEX",
        help=r"without --topic: topics that match (^(.+\.)?LH\..*) [CONSUMER_PATTERN]",
    )
    command.add_argument(
        "--group",
        default=environment.get("CONSUMER_GROUP") or None,
        metavar="ID",
        help="read as a member of this group, and commit; without one, no trace is left [CONSUMER_GROUP]",
    )
    command.add_argument(
        "--from",
        dest="start",
        type=_start,
        metavar="WHERE",
        help="earliest, latest, an offset, an ISO time, or -10m ago (s, m, h, d) "
        + (f"({start})" if start == EARLIEST else f"({start}, which is now; with --no-follow {EARLIEST})"),
    )
    command.add_argument(
        "--ledger",
        type=Path,
        default=environment.get("CONSUMER_LEDGER") or None,
        metavar="FOLDER",
        help="with --group: keep account of what was shown in files there [CONSUMER_LEDGER]",
    )
    command.add_argument("--max", type=_count, metavar="N", help="end after N records")
    command.add_argument("--json", action="store_true", help="one JSON document for each record")
    command.add_argument(
        "--follow",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="wait for more, or end with what is there (follow)",
    )
    return command


def read_arguments(
    arguments: Sequence[str], environment: Mapping[str, str], prog: str = PROGRAM, start: str = EARLIEST
) -> argparse.Namespace:
    """Reads the command line.

    Args:
        arguments: the words.
        environment: the variables that give defaults.
        prog: what the user has typed to get here, for help and messages.
        start: where to begin without ``--from``. What ends with the records that are there begins with the first.

    Raises:
        WrongUseError: it makes no sense.
    """
    # argparse takes the -10m of "--from -10m" for an option of its own.
    joined = re.sub(r"(^|\0)--from\0-", r"\1--from=-", "\0".join(arguments)).split("\0") if arguments else []
    options = parser(environment, prog, start).parse_args(joined)
    options.start = options.start or _start(start if options.follow else EARLIEST)
    if options.group and options.start.end is None:
        raise WrongUseError("--from an offset or a time goes without --group: a group begins where it left off")
    if options.ledger and not options.group:
        raise WrongUseError("--ledger goes with --group: it is kept for what is committed")
    if options.group and not options.follow:
        raise WrongUseError("--no-follow goes without --group: where a group ends depends on its other members")
    return options
