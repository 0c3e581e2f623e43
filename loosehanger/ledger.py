"""Ledgers: what a producer was told is kept, and what a consumer has processed, in files outside the clusters.

A ledger outlives the loss of a cluster, so that "lost", "skipped" and "read again" are facts. It holds ranges of
sequence numbers, not records: a line of JSON each, which is a few lines a second however many records there are. A line
is only ever added; where a file has grown too long, older lines that continue each other become one.

The identity of a record is its run, topic, partition and sequence number: what its headers say, wherever a copy is.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal, NamedTuple

from loosehanger.errors import WrongUseError
from loosehanger.files import make_folder, write_file

RUN, SEQ = "lh-run", "lh-seq"
"""The headers by which the kit's producer numbers its events: its run, and the number within topic and partition."""
DIGITS_MOST = 18
"""Of a sequence number, so that it is one wherever numbers have 64 bits; what has more is nobody's count."""
Kind = Literal["sent", "acked", "unknown", "processed"]
"""What is said of a range of records.

``sent``: may have been handed to the cluster; the range is written before its first record goes, and may end behind
the last one that went. ``acked``: the cluster has acknowledged them. ``unknown``: the run ended without an answer to
them. ``processed``: a consumer has done with them what it does; written before their offsets are committed.
"""
FLUSH_S = 0.2
"""How often ranges are written down: how exact the times of acknowledgements in a ledger are at worst."""
LONGEST_BYTES = 4 * 1024 * 1024
"""A file that is longer is shortened."""
RECENT_MS = 5 * 60 * 1000
"""Of what is newer, every line stays as it is."""

Numbers = list[tuple[int, int]]
"""Sequence numbers: ranges with their last ones, in order, that do not touch."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One line: a range of records of one partition, all of one run, without a hole."""

    kind: Kind
    run: str
    """The producer's run: the header ``RUN``."""
    cluster: str
    """The id of the cluster that the program was connected to."""
    topic: str
    partition: int
    first: int
    """The first sequence number: the header ``SEQ``."""
    last: int
    """The last one."""
    since: int
    """When that is true of the first one, in milliseconds since the epoch."""
    until: int
    """When it is true of the last one."""
    group: str = ""
    """The consumer's group; empty for a producer's entries."""
    first_offset: int = -1
    """Where a consumer found the first one; -1 for a producer's entries."""
    last_offset: int = -1

    @property
    def count(self) -> int:
        """How many records it is about."""
        return self.last - self.first + 1

    @property
    def line(self) -> str:
        """As the file has it; a producer's has no group and no offsets."""
        said = {name: getattr(self, name) for name in (_NAMES if self.group else _OF_A_PRODUCER)}
        return json.dumps(said, separators=(",", ":")) + "\n"

    def continues(self, other: LedgerEntry) -> bool:
        """Whether it begins where another one ends."""
        return self.first == other.last + 1 and (self.first_offset == -1 or self.first_offset > other.last_offset)


_NAMES = tuple(field.name for field in fields(LedgerEntry))
_OF_A_PRODUCER = _NAMES[: _NAMES.index("group")]


class Ledger:
    """A program's ledger: a file of its own in the folder.

    Args:
        folder: where ledgers are kept.
        name: of the file, without its ending: no other program may use it.
        group: the consumer's group; empty for a producer.
    """

    def __init__(self, folder: Path, name: str, group: str = "") -> None:
        make_folder(folder)
        self.folder = folder
        self._path = folder / f"{name}.jsonl"
        self._group = group
        self._handle = self._open()
        self._ranges: dict[tuple[Kind, str, str, int], list[int]] = {}
        self._full: list[LedgerEntry] = []
        self._flushed = time.monotonic()
        self.cluster = ""
        """The id of the cluster that entries are about from now on."""

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def add(
        self, kind: Kind, run: str, topic: str, partition: int, sequence: int, now_ms: int, offset: int = -1
    ) -> None:
        """Notes one record; it is in the file after the next ``flush``."""
        key = kind, run, topic, partition
        known = self._ranges.get(key)
        if known is None:
            self._ranges[key] = [sequence, sequence, now_ms, now_ms, offset, offset]
        elif known[1] == sequence - 1 and (offset == -1 or offset > known[5]):
            known[1], known[3], known[5] = sequence, now_ms, offset
        else:
            self._full.append(self._entry(key, known))
            self._ranges[key] = [sequence, sequence, now_ms, now_ms, offset, offset]

    def write(self, kind: Kind, run: str, topic: str, partition: int, first: int, last: int, now_ms: int) -> None:
        """Writes down a range at once, before the caller goes on."""
        entry = LedgerEntry(kind, run, self.cluster, topic, partition, first, last, now_ms, now_ms, self._group)
        self._write([entry])

    def flush_now_and_then(self) -> None:
        """Writes down what was noted, unless that was done a moment ago."""
        if time.monotonic() - self._flushed >= FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Writes down what was noted."""
        entries = self._full + [self._entry(key, known) for key, known in self._ranges.items()]
        self._full, self._ranges = [], {}
        self._flushed = time.monotonic()
        if entries:
            self._write(entries)

    def close(self) -> None:
        """Writes down what was noted; nothing can be added afterwards."""
        self.flush()
        os.close(self._handle)

    def _entry(self, key: tuple[Kind, str, str, int], known: Sequence[int]) -> LedgerEntry:
        kind, run, topic, partition = key
        first, last, since, until, first_offset, last_offset = known
        return LedgerEntry(
            kind, run, self.cluster, topic, partition, first, last, since, until, self._group, first_offset, last_offset
        )

    def _write(self, entries: Iterable[LedgerEntry]) -> None:
        # One call: a reader sees whole lines, whenever this program is killed.
        os.write(self._handle, "".join(entry.line for entry in entries).encode())
        if os.fstat(self._handle).st_size > LONGEST_BYTES:
            self._shorten()

    def _shorten(self) -> None:
        before = time.time_ns() // 1_000_000 - RECENT_MS
        write_file(self._path, "".join(entry.line for entry in joined(read_entries([self._path]), before)))
        os.close(self._handle)
        self._handle = self._open()


def joined(entries: Iterable[LedgerEntry], before: int) -> list[LedgerEntry]:
    """Makes one of entries that continue each other, as far as they are older than a time.

    Args:
        entries: in the order in which they were written.
        before: milliseconds since the epoch; what was added since then stays as it is.
    """
    kept: list[LedgerEntry] = []
    latest: dict[tuple[str, ...], int] = {}
    for entry in entries:
        key = entry.kind, entry.run, entry.cluster, entry.topic, str(entry.partition), entry.group
        place = latest.get(key)
        if place is not None and entry.until < before and entry.continues(kept[place]):
            kept[place] = replace(kept[place], last=entry.last, until=entry.until, last_offset=entry.last_offset)
            continue
        latest[key] = len(kept)
        kept.append(entry)
    return kept


def normal(ranges: Iterable[tuple[int, int]]) -> Numbers:
    """Ranges in any order, which may overlap, as numbers."""
    found: Numbers = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def holds(numbers: Numbers, number: int) -> bool:
    """Whether a number is among these."""
    place = bisect_right(numbers, (number, sys.maxsize)) - 1
    return place >= 0 and numbers[place][1] >= number


def ledger_files(folder: Path) -> list[Path]:
    """The ledgers in a folder; none where there is no such folder."""
    return sorted(folder.glob("*.jsonl"))


def read_entries(files: Iterable[Path]) -> Iterator[LedgerEntry]:
    """What ledgers say, line by line; a last line that is not complete was never said.

    Raises:
        WrongUseError: a file is no ledger.
    """
    for path in files:
        try:
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        except (OSError, UnicodeDecodeError) as error:
            raise WrongUseError(f"{path}: is not a ledger that can be read: {error}") from error
        for number, line in enumerate(lines, 1):
            if not line.endswith("\n"):
                continue
            try:
                yield LedgerEntry(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise WrongUseError(f"{path}:{number}: is not a line of a ledger: {error}") from error


def number_of(headers: Sequence[tuple[str, bytes | None]]) -> tuple[str, int] | None:
    """The run and the sequence number by which a record's producer knows it; None for what other programs write.

    Of headers with the same name the first counts, as it does for the proof.
    """
    found = dict(reversed(headers))
    run, sequence = found.get(RUN), found.get(SEQ)
    if not run or not sequence or not sequence.isdigit() or len(sequence) > DIGITS_MOST:
        return None
    try:
        return run.decode(), int(sequence)
    except UnicodeDecodeError:
        return None


class Pending(NamedTuple):
    """A record that was sent and not answered: the next run of the same producer sends it again, as it was."""

    topic: str
    partition: int
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


def keep_pending(folder: Path, records: Sequence[Pending]) -> None:
    """Keeps what the next run has to send again, in place of what was kept before."""
    if records:
        write_file(folder / _PENDING, json.dumps(records, default=_text))
    else:
        (folder / _PENDING).unlink(missing_ok=True)


def read_pending(folder: Path) -> list[Pending]:
    """What the run before could not get an answer to."""
    path = folder / _PENDING
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return [
        Pending(topic, partition, _bytes(key), _bytes(value), tuple((n, _bytes(v)) for n, v in headers), timestamp_ms)
        for topic, partition, key, value, headers, timestamp_ms in found
    ]


_PENDING = "pending.json"


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
