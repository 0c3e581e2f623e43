"""The cases of the corpus, and what each side of a case has: see ``corpus/README.md``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from loosehanger.paths import ROOT

FOLDER = ROOT / "corpus"
PREFIX = "case."
COUNTS = ("missing", "duplicates", "unexpected", "altered", "moved", "reordered", "expired")
"""The differences of which a case expects a number; one that it leaves out is 0."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KEYS = {
    "case": {"id", "says", "source", "copy", "target", "names", "expect"},
    "source": {
        "records", "partitions", "settings", "changes", "headers", "step_ms", "transaction", "aborted", "open_at",
        "compression", "delete_before", "absent",
    },
    "copy": {
        "partitions", "settings", "transaction", "aborted_first", "open_last", "compression", "batch", "delete_before",
        "absent", "name", "former",
    },
    "expect": {"verdict", "settings", *COUNTS},
}  # fmt: skip


@dataclass(frozen=True)
class CaseRecord:
    """A record of a case."""

    number: int
    """Its number at the source; -1 for one that the source never had."""
    partition: int
    timestamp: int
    """In milliseconds since 1970."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Case:
    """A case, as its file describes it."""

    id: str
    says: str
    expect: Mapping[str, Any]
    source: Mapping[str, Any] = field(default_factory=dict)
    copy: Mapping[str, Any] = field(default_factory=dict)
    target: tuple[Mapping[str, Any], ...] = ()
    names: Mapping[str, Any] | None = None

    @property
    def topic(self) -> str:
        """The topic's name at the source."""
        return f"{PREFIX}{self.id}"

    @property
    def copied_topic(self) -> str:
        """The topic's name at the target."""
        return str(self.copy.get("name", self.topic))

    @property
    def copied_partitions(self) -> int:
        """How many partitions the topic has at the target."""
        return int(self.copy.get("partitions", self.source.get("partitions", 1)))

    def counts(self) -> dict[str, int]:
        """Returns how many differences of each kind the case expects."""
        return {name: int(self.expect.get(name, 0)) for name in COUNTS}

    def written(self, base_ms: int) -> list[CaseRecord]:
        """Returns the records that a producer sends to the source, in this order, aborted ones included.

        Args:
            base_ms: the time of the first one.
        """
        partitions, step = self.source.get("partitions", 1), self.source.get("step_ms", 1000)
        shared = _headers(self.source.get("headers", ()))
        found: list[CaseRecord] = []
        for number in range(self.source.get("records", 40)):
            key, value = b"k%d" % number, b"v%d" % number
            made = CaseRecord(number, number % partitions, base_ms + number * step, key, value, shared)
            change = self.source.get("changes", {}).get(number, {})
            if "same_as" in change:
                made = replace(found[change["same_as"]], number=number)
            found.append(_changed(made, change))
        return found

    def copied(self, base_ms: int) -> list[CaseRecord]:
        """Returns the records that the copier writes to the target, in this order."""
        written, aborted = self.written(base_ms), set(self.source.get("aborted", ()))
        if any("with_aborted" in fault for fault in self.target):
            aborted = set()
        found = [record for record in written if record.number not in aborted]
        for fault in self.target:
            ((kind, what),) = fault.items()
            found = _FAULTS[kind](found, what, written, base_ms)
        return found


def read_cases(folder: Path = FOLDER) -> list[Case]:
    """Reads every case.

    Raises:
        ValueError: a case has an unknown key, or an id that another one has.
    """
    cases: list[Case] = []
    for path in sorted(folder.glob("*.yaml")):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8")):
            for part, known in _KEYS.items():
                given = entry if part == "case" else entry.get(part, {})
                if unknown := set(given) - known:
                    raise ValueError(f"{path.name}: {entry.get('id')}: unknown {', '.join(sorted(unknown))}")
            cases.append(Case(**entry | {"target": tuple(entry.get("target", ()))}))
    ids = [case.id for case in cases]
    if twice := {one for one in ids if ids.count(one) > 1}:
        raise ValueError(f"two cases are called {', '.join(sorted(twice))}")
    return cases


def _bytes(given: Any) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, dict):
        if "hex" in given:
            return bytes.fromhex(given["hex"])
        return str(given["repeat"]).encode() * int(given["times"])
    return str(given).encode()


def _headers(given: Any) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((str(name), _bytes(value)) for name, value in given)


def _changed(record: CaseRecord, change: Mapping[str, Any]) -> CaseRecord:
    further: dict[str, Any] = {name: _bytes(change[name]) for name in ("key", "value") if name in change}
    if "headers" in change:
        further["headers"] = _headers(change["headers"])
    if "at" in change:
        further["timestamp"] = (datetime.fromisoformat(change["at"]) - _EPOCH) // timedelta(milliseconds=1)
    further["timestamp"] = further.get("timestamp", record.timestamp) + change.get("later_ms", 0)
    return replace(record, **further)


Records = list[CaseRecord]


def _drop(found: Records, numbers: Any, *_: Any) -> Records:
    return [record for record in found if record.number not in numbers]


def _twice(found: Records, numbers: Any, *_: Any) -> Records:
    return [copy for record in found for copy in [record] * (2 if record.number in numbers else 1)]


def _again(found: Records, numbers: Any, written: Records, *_: Any) -> Records:
    return [*found, *(written[number] for number in numbers)]


def _change(found: Records, changes: Any, *_: Any) -> Records:
    done: set[int] = set()
    made = []
    for record in found:
        change = {} if record.number in done else changes.get(record.number, {})
        done.add(record.number)
        made.append(_changed(record, change))
    return made


def _move(found: Records, places: Any, *_: Any) -> Records:
    return [replace(record, partition=places.get(record.number, record.partition)) for record in found]


def _swap(found: Records, pair: Any, *_: Any) -> Records:
    first, second = (next(place for place, one in enumerate(found) if one.number == number) for number in pair)
    made = list(found)
    made[first], made[second] = made[second], made[first]
    return made


def _last(found: Records, numbers: Any, *_: Any) -> Records:
    return [*_drop(found, numbers), *(record for record in found if record.number in numbers)]


def _first(found: Records, numbers: Any, *_: Any) -> Records:
    return [*(record for record in found if record.number in numbers), *_drop(found, numbers)]


def _add(found: Records, given: Any, _: Records, base_ms: int) -> Records:
    made = _changed(CaseRecord(-1, given.get("partition", 0), base_ms + 45_000, None, None), given)
    place = given.get("place", len(found))
    return [*found[:place], made, *found[place:]]


def _by_partition(found: Records, *_: Any) -> Records:
    return sorted(found, key=lambda record: record.partition)


def _with_aborted(found: Records, *_: Any) -> Records:
    return found


_FAULTS: dict[str, Any] = {
    "drop": _drop,
    "twice": _twice,
    "again": _again,
    "change": _change,
    "move": _move,
    "swap": _swap,
    "last": _last,
    "first": _first,
    "add": _add,
    "by_partition": _by_partition,
    "with_aborted": _with_aborted,
}
