"""``./lab produce``: writes records that a user types, reads from a file, or lets it make."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from kafka.errors import KafkaError, KafkaTimeoutError

from loosehanger.cli.client_settings import properties_file
from loosehanger.errors import ExitCode, LabError, WrongUseError
from loosehanger.kafka.clients import HURRIED, connect_admin
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.patches import prepare
from loosehanger.kafka.produce import NewRecord, RecordProducer, Written, new_record
from loosehanger.lab.record import Lab
from loosehanger.paths import caller_path
from loosehanger.suggestions import did_you_mean

STANDARD_INPUT = "-"
_IN_FLIGHT = 500
"""Most records without an acknowledgement, where nothing sets a pace."""
_MOST_LINE = 32 * 1024 * 1024
"""Most bytes of a line, which the client could not send anyway."""


def run(lab: Lab, options: argparse.Namespace) -> int:
    """Writes the records that the options describe, and prints where each one is.

    Raises:
        WrongUseError: the region, user, topic, partition or file does not exist.
        InconclusiveError: a record was not acknowledged in time.
        LabError: the cluster does not answer, or the user lacks the right.
    """
    region = lab.region(options.region)
    connection = Connection.from_properties(properties_file(region, options.user))
    first = new_record(options.topic, options.key, options.value or "", (), options.partition)
    headers = tuple((name, os.fsencode(value)) for name, value in options.header)
    with _values(options) as values:
        prepare(lambda _: None)
        with RecordProducer(connection, region.name) as producer:
            records = (first._replace(value=value, headers=headers) for value in values)
            try:
                written = _write(producer, records, options)
            except WrongUseError as error:
                if not isinstance(error.__cause__, KafkaTimeoutError):
                    raise
                raise WrongUseError(f"{error}{_similar(connection, options.topic)}") from error
    if not options.json and written != 1:
        print(f"{written:,} records written to {options.topic} in {region.name}", file=sys.stderr)
    return ExitCode.DONE


@contextmanager
def _values(options: argparse.Namespace) -> Iterator[Iterator[bytes | None]]:
    """The values to write, one for each record."""
    if options.file is not None:
        with _opened(options.file) as stream:
            yield itertools.islice(_lines(stream), options.count)
        return
    if options.null:
        value: Iterator[bytes | None] = itertools.repeat(None)
    elif options.value is not None:
        value = itertools.repeat(os.fsencode(options.value))
    else:
        value = _numbered()
    # A rate, or a time to write for, has no end of its own.
    endless = options.rate is not None or options.seconds is not None
    yield itertools.islice(value, options.count if options.count or endless else 1)


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    path = Path(caller_path(file))
    try:
        stream = path.open("rb")
    except OSError as error:
        raise WrongUseError(f"--file {file}: cannot be read ({error.strerror})") from error
    with stream:
        yield stream


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    for number in itertools.count(1):
        line = stream.readline(_MOST_LINE)
        if not line:
            return
        if len(line) == _MOST_LINE:
            raise WrongUseError(f"--file: line {number} is longer than {_MOST_LINE:,} bytes")
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _numbered() -> Iterator[bytes]:
    for number in itertools.count(1):
        yield json.dumps({"number": number, "time": datetime.now(UTC).isoformat(timespec="milliseconds")}).encode()


def _write(producer: RecordProducer, records: Iterator[NewRecord], options: argparse.Namespace) -> int:
    """Writes records at the pace that is asked for; returns how many are acknowledged."""
    written = 0
    most = _IN_FLIGHT if options.rate is None else 1
    waiting: deque[Callable[[], Written]] = deque()
    try:
        with suppress(KeyboardInterrupt):  # This is how an endless run is stopped. Records in flight are waited for.
            for record in _paced(records, options.rate, options.seconds):
                waiting.append(producer.post(record))
                if len(waiting) >= most:
                    written += _show(waiting.popleft(), as_json=options.json)
        while waiting:
            written += _show(waiting.popleft(), as_json=options.json)
    except LabError:
        if written:
            print(f"{written:,} records were written before this:", file=sys.stderr)
        raise
    return written


def _paced(records: Iterator[NewRecord], rate: float | None, seconds: float | None) -> Iterator[NewRecord]:
    """Yields ``rate`` records a second for ``seconds``; None for no bound."""
    began = time.monotonic()
    for number in itertools.count():
        due = time.monotonic() if rate is None else began + number / rate
        if seconds is not None and due >= began + seconds:
            return
        time.sleep(max(0.0, due - time.monotonic()))  # the rate itself
        record = next(records, None)
        if record is None:
            return
        yield record


def _show(outcome: Callable[[], Written], *, as_json: bool) -> int:
    found = outcome()
    if as_json:
        print(json.dumps(found._asdict(), separators=(",", ":")), flush=True)
    else:
        print(f"{found.topic}: partition {found.partition}, offset {found.offset}", flush=True)
    return 1


def _similar(connection: Connection, topic: str) -> str:
    """A question for a mistyped topic; empty if the user sees no similar one."""
    try:
        with closing(connect_admin(connection, HURRIED)) as admin:
            return did_you_mean(topic, admin.list_topics())
    except (KafkaError, OSError, LabError):
        return ""
