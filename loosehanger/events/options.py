"""The consumer's command line. It needs the standard library only, so that help needs no installation."""

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
    """The start position: an end of the partition, an offset, or a time."""

    end: str | None = None
    """``earliest`` or ``latest``."""
    offset: int | None = None
    time_ms: int | None = None

    @classmethod
    def parse(cls, text: str, now: datetime) -> Start:
        """Parses ``earliest``, ``latest``, an offset, an ISO time (local without a zone), or ``-10m`` ago.

        Raises:
            ValueError: the text is not one of these.
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


def _partition(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(f"'{text}' is not the number of a partition, such as 0")
    return int(text)


def parser(environment: Mapping[str, str], prog: str = PROGRAM, start: str = EARLIEST) -> argparse.ArgumentParser:
    """Returns the parser; CONSUMER_GROUP and CONSUMER_PATTERN are the defaults of --group and --pattern."""
    command = _Parser(
        prog=prog,
        description="Shows the records of a cluster as they arrive, committed ones only. "
        "Without --config, the cluster is the one that the KAFKA_… variables name. Ctrl-C stops it.",
    )
    command.add_argument("--config", type=Path, metavar="FILE", help="client properties file: cluster, user, password")
    command.add_argument(
        "--topic",
        type=_topic,
        action="append",
        default=[],
        metavar="NAME_OR_REGEX",
        help="this topic, or those whose whole name matches; may be repeated",
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
        help="with --group: keep a ledger of the shown records there [CONSUMER_LEDGER]",
    )
    command.add_argument(
        "--partition", type=_partition, action="append", default=[], metavar="N", help="only this one; may be repeated"
    )
    _add_presentation(command)
    return command


def _add_presentation(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--headers", action="store_true", help="show each record's headers too; --json has them always"
    )
    command.add_argument(
        "--decode",
        action="store_true",
        help="decode records of internal topics: MM2's offset syncs, checkpoints and heartbeats, Connect's topics",
    )
    command.add_argument("--max", type=_count, metavar="N", help="stop after N records")
    command.add_argument("--json", action="store_true", help="one JSON document for each record")
    command.add_argument(
        "--follow",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="wait for more, or stop after the existing records (follow)",
    )


def read_arguments(
    arguments: Sequence[str], environment: Mapping[str, str], prog: str = PROGRAM, start: str = EARLIEST
) -> argparse.Namespace:
    """Reads the command line.

    Args:
        arguments: the arguments.
        environment: the variables with defaults.
        prog: the program's name in help and messages.
        start: the start position without ``--from``. With ``--no-follow`` it is the first record.

    Raises:
        WrongUseError: the command line is not valid.
    """
    # argparse would parse the -10m of "--from -10m" as an option.
    joined = re.sub(r"(^|\0)--from\0-", r"\1--from=-", "\0".join(arguments)).split("\0") if arguments else []
    options = parser(environment, prog, start).parse_args(joined)
    options.start = options.start or _start(start if options.follow else EARLIEST)
    if options.group and options.start.end is None:
        raise WrongUseError(
            "--from with an offset or a time excludes --group; a group resumes at its committed offsets"
        )
    if options.group and options.partition:
        raise WrongUseError("--partition excludes --group; a group shares out the partitions among its members")
    if options.ledger and not options.group:
        raise WrongUseError("--ledger needs --group; it records what a group commits")
    if options.group and not options.follow:
        raise WrongUseError("--no-follow excludes --group; where a member stops would depend on the other members")
    return options
