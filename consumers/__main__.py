"""``python -m consumers``: shows the records of a cluster as they arrive."""

from __future__ import annotations

import argparse
import os
import re
import select
import signal
import sys
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import NoReturn

from consumers.reader import Reader, Selection, Start
from consumers.render import Line, colours_wanted, to_json
from loosehanger.clients.connection import Connection
from loosehanger.clients.kafka_client import prepare
from loosehanger.errors import WrongUseError, run_command
from loosehanger.ledger import Ledger

MOST_OF_A_VALUE = 64 * 1024
"""Bytes of a key and of a value that are kept for a line; what the shop sends is far shorter."""
PROGRAM = "python -m consumers"
EARLIEST = "earliest"


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


class _Stop:
    """What a signal does: the first asks to stop, the next interrupts.

    Without a group there is nothing to tidy up, so that the first interrupts at once.
    """

    def __init__(self, *, patient: bool) -> None:
        self._patient = patient
        self.asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked or not self._patient:
            raise KeyboardInterrupt
        self.asked = True


def _reader_gone() -> bool:
    """Whether the other end of standard output was closed, as ``head`` does when it has enough."""
    poll = select.poll()
    poll.register(sys.stdout, 0)
    return any(event & (select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None, prog: str = PROGRAM, start: str = EARLIEST) -> int:
    """Reads the command line and shows records until there is a reason to end.

    Args:
        arguments: the command line; None for this process's own.
        prog: what the user has typed to get here, for help and messages.
        start: where to begin without ``--from``.

    Raises:
        LabError: wrong use, or the cluster cannot be read.
    """
    options = read_arguments(sys.argv[1:] if arguments is None else arguments, os.environ, prog, start)
    connection = (
        Connection.from_properties(options.config, os.environ, _tell)
        if options.config
        else Connection.from_environment()
    )
    stop = _Stop(patient=options.group is not None)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    selection = Selection(tuple(options.topic), options.pattern)
    coloured = colours_wanted(sys.stdout)
    try:
        client_log = prepare(_tell)
        if options.group:
            _tell(f"reading {selection.regex()} from {connection!r} as group {options.group}")
        reader = Reader(
            connection,
            selection,
            group=options.group,
            start=options.start,
            follow=options.follow,
            client_log=client_log,
            tell=_tell,
            value_bytes=None if options.json else MOST_OF_A_VALUE,
            ledger=Ledger(options.ledger, f"consumer-{uuid.uuid4()}", options.group) if options.ledger else None,
        )
        try:
            for batch in reader.batches(options.max, lambda: stop.asked):
                for record in batch:
                    if options.json:
                        text = to_json(record)
                    else:
                        line = Line.of(record)
                        text = line.coloured() if coloured else line.plain()
                    sys.stdout.write(text + "\n")
                sys.stdout.flush()
                if _reader_gone():
                    break
        finally:
            reader.close()
    except KeyboardInterrupt:
        pass  # A follower is ended this way: that is no failure.
    except BrokenPipeError:
        # Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
