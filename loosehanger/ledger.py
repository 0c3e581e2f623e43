"""Ledgers: the records that a producer got acknowledged and a consumer processed, in files outside the clusters.

A ledger outlives the loss of a cluster, so that "lost", "skipped" and "read again" are facts. It holds ranges of
sequence numbers, one line of JSON each, which is a few lines a second for any number of records. Lines are only
appended; in a file that has grown too long, consecutive older ranges are merged.

Run, topic, partition and sequence number identify a record, and every copy has them in its headers.
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
from loosehanger.headers import RUN, SEQ

DIGITS_MOST = 18
"""Most digits of a sequence number, so that it fits a signed 64-bit integer."""
Kind = Literal["sent", "acked", "unknown", "processed"]
"""The state of a range of records.

``sent``: may have been sent to the cluster; the range is written before its first record is sent, and may extend beyond
the last one. ``acked``: the cluster has acknowledged them. ``unknown``: the run ended without an acknowledgement.
``processed``: a consumer has processed them; written before their offsets are committed.
"""
FLUSH_S = 0.2
"""Seconds between two writes of ranges, which bounds the error of times in a ledger."""
LONGEST_BYTES = 4 * 1024 * 1024
"""The size from which a file is shortened."""
RECENT_MS = 5 * 60 * 1000
"""Newer lines are not merged."""

Numbers = list[tuple[int, int]]
"""Sequence numbers, as sorted inclusive ranges that do not touch."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One line: a range, without gaps, of records of one partition and one run."""

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
    """When the first record reached the state, in milliseconds since the epoch."""
    until: int
    """When the last record did."""
    group: str = ""
    """The consumer's group; empty for a producer's entries."""
    first_offset: int = -1
    """The offset of the first record; -1 for a producer's entries."""
    last_offset: int = -1

    @property
    def count(self) -> int:
        """The number of records in the range."""
        return self.last - self.first + 1

    @property
    def line(self) -> str:
        """Returns the line of the file; a producer's has no group and no offsets."""
        fields = {name: getattr(self, name) for name in (_NAMES if self.group else _OF_A_PRODUCER)}
        return json.dumps(fields, separators=(",", ":")) + "\n"

    def continues(self, other: LedgerEntry) -> bool:
        """Whether it begins where another entry ends."""
        return self.first == other.last + 1 and (self.first_offset == -1 or self.first_offset > other.last_offset)


_NAMES = tuple(field.name for field in fields(LedgerEntry))
_OF_A_PRODUCER = _NAMES[: _NAMES.index("group")]


class Ledger:
    """A program's ledger: one file in a folder.

    Args:
        folder: the folder of ledgers.
        name: the file name without suffix, which no other program may use.
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
        """The id of the cluster for the entries from now on."""

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def add(
        self, kind: Kind, run: str, topic: str, partition: int, sequence: int, now_ms: int, offset: int = -1
    ) -> None:
        """Adds one record; the next ``flush`` writes it to the file."""
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
        """Writes a range at once, before the caller continues."""
        entry = LedgerEntry(kind, run, self.cluster, topic, partition, first, last, now_ms, now_ms, self._group)
        self._write([entry])

    def flush_now_and_then(self) -> None:
        """Writes the added records, unless the last write was a moment ago."""
        if time.monotonic() - self._flushed >= FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Writes the added records."""
        entries = self._full + [self._entry(key, known) for key, known in self._ranges.items()]
        self._full, self._ranges = [], {}
        self._flushed = time.monotonic()
        if entries:
            self._write(entries)

    def close(self) -> None:
        """Writes the added records and closes the file."""
        self.flush()
        os.close(self._handle)

    def _entry(self, key: tuple[Kind, str, str, int], known: Sequence[int]) -> LedgerEntry:
        kind, run, topic, partition = key
        first, last, since, until, first_offset, last_offset = known
        return LedgerEntry(
            kind, run, self.cluster, topic, partition, first, last, since, until, self._group, first_offset, last_offset
        )

    def _write(self, entries: Iterable[LedgerEntry]) -> None:
        # One call, so that a reader sees whole lines even if this program is killed.
        os.write(self._handle, "".join(entry.line for entry in entries).encode())
        if os.fstat(self._handle).st_size > LONGEST_BYTES:
            self._shorten()

    def _shorten(self) -> None:
        before = time.time_ns() // 1_000_000 - RECENT_MS
        write_file(self._path, "".join(entry.line for entry in joined(read_entries([self._path]), before)))
        os.close(self._handle)
        self._handle = self._open()


def joined(entries: Iterable[LedgerEntry], before: int) -> list[LedgerEntry]:
    """Merges entries that continue each other and are older than a time.

    Args:
        entries: the entries, in the order in which they were written.
        before: milliseconds since the epoch; newer entries are not merged.
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
    """Normalises ranges, which may overlap and be in any order."""
    found: Numbers = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def holds(numbers: Numbers, number: int) -> bool:
    """Whether the ranges contain a number."""
    place = bisect_right(numbers, (number, sys.maxsize)) - 1
    return place >= 0 and numbers[place][1] >= number


def ledger_files(folder: Path) -> list[Path]:
    """Returns the ledgers in a folder; none if it does not exist."""
    return sorted(folder.glob("*.jsonl"))


def read_entries(files: Iterable[Path]) -> Iterator[LedgerEntry]:
    """Reads the entries of ledgers; an incomplete last line is skipped.

    Raises:
        WrongUseError: a file is not a ledger.
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
    """Returns the run and the sequence number in a record's headers; None for records of other programs.

    The first header of a name counts, as in the proof.
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
    """A record that was sent and not acknowledged: the next run of the producer sends it again unchanged."""

    topic: str
    partition: int
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


def keep_pending(folder: Path, records: Sequence[Pending]) -> None:
    """Writes the records that the next run must send again, and replaces the previous ones."""
    if records:
        write_file(folder / _PENDING, json.dumps(records, default=_text))
    else:
        (folder / _PENDING).unlink(missing_ok=True)


def read_pending(folder: Path) -> list[Pending]:
    """Reads the records that the previous run got no acknowledgement for."""
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
