"""The console consumer: shows the records of a cluster as they arrive."""

from __future__ import annotations

import os
import select
import signal
import sys
import uuid
from collections.abc import Sequence
from types import FrameType

from loosehanger.events.options import EARLIEST, PROGRAM
from loosehanger.events.options import parser as parser
from loosehanger.events.options import read_arguments as read_arguments
from loosehanger.events.reader import Reader, Selection
from loosehanger.events.render import Line, colours_wanted, to_json
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.patches import prepare
from loosehanger.ledger import Ledger

MOST_OF_A_VALUE = 64 * 1024
"""Most bytes of a key and of a value to keep for a line; the shop's are far shorter."""


class _Stop:
    """Handles signals: the first requests a stop, the next interrupts.

    Without a group there is nothing to commit, so the first interrupts at once.
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
    """Whether the reader of standard output has closed it, as ``head`` does."""
    poll = select.poll()
    poll.register(sys.stdout, 0)
    return any(event & (select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None, prog: str = PROGRAM, start: str = EARLIEST) -> int:
    """Reads the command line and shows records until the end.

    Args:
        arguments: the command line; None for this process's own.
        prog: the program's name in help and messages.
        start: the start position without ``--from``.

    Raises:
        LabError: wrong use, or the cluster cannot be read.
    """
    options = read_arguments(sys.argv[1:] if arguments is None else arguments, os.environ, prog, start)
    connection = (
        Connection.from_properties(options.config, os.environ, _report)
        if options.config
        else Connection.from_environment()
    )
    stop = _Stop(patient=options.group is not None)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    selection = Selection(tuple(options.topic), options.pattern)
    coloured = colours_wanted(sys.stdout)
    try:
        client_log = prepare(_report)
        if options.group:
            _report(f"reading {selection.regex()} from {connection!r} as group {options.group}")
        reader = Reader(
            connection,
            selection,
            group=options.group,
            start=options.start,
            follow=options.follow,
            client_log=client_log,
            report=_report,
            value_bytes=None if options.json else MOST_OF_A_VALUE,
            only=options.partition,
            ledger=Ledger(options.ledger, f"consumer-{uuid.uuid4()}", options.group) if options.ledger else None,
        )
        try:
            for batch in reader.batches(options.max, lambda: stop.asked):
                for record in batch:
                    if options.json:
                        text = to_json(record, decoded=options.decode)
                    else:
                        line = Line.of(record, with_headers=options.headers, decoded=options.decode)
                        text = line.coloured() if coloured else line.plain()
                    sys.stdout.write(text + "\n")
                sys.stdout.flush()
                if _reader_gone():
                    break
        finally:
            reader.close()
    except KeyboardInterrupt:
        pass  # This is how a follower is stopped, and not an error.
    except BrokenPipeError:
        # Python would report the error again when it flushes at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
