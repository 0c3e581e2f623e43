"""A mirror that is running and delivers nothing: Connect calls a task RUNNING however long its producer waits.

A position is judged only by readable records that wait beyond it. Transaction markers, aborted records and what
compaction removed are offsets that no mirror ever copies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from loosehanger.kafka.links import OPEN, ask, link_state, relay_folders
from loosehanger.stack_traces import last_error
from loosehanger.times import span

SILENT_S = 30.0
"""A record that waits this long while nothing is delivered makes a running mirror stalled."""
FLUSH_S = 60.0
"""Kafka's default for ``offset.flush.interval.ms``: positions may be that much older than what was delivered."""
_REFRESH_S = 600.0
"""MM2's default for ``refresh.topics.interval.seconds``."""
_FLUSH = "offset.flush.interval.ms"
_TRANSFORMS = "org.apache.kafka.connect.transforms."
_KEEP = frozenset(
    f"{_TRANSFORMS}{name}"
    for name in (
        *(f"{name}$Key" for name in ("Cast", "ExtractField", "Flatten", "HoistField", "InsertField", "MaskField")),
        *(f"{name}$Value" for name in ("Cast", "ExtractField", "Flatten", "HoistField", "InsertField", "MaskField")),
        *("ReplaceField$Key", "ReplaceField$Value", "SetSchemaMetadata$Key", "SetSchemaMetadata$Value"),
        *("TimestampConverter$Key", "TimestampConverter$Value", "ValueToKey", "HeaderFrom$Key", "HeaderFrom$Value"),
        *("DropHeaders", "InsertHeader", "RegexRouter", "TimestampRouter"),
    )
)
"""The transforms that never drop a record."""
_LOG_BYTES = 256 * 1024

Place = tuple[str, int]
"""A topic and a partition."""


class Measured(Protocol):
    """What a look at the source says of a partition: see ``retention_risk.PartitionRisk``."""

    @property
    def topic(self) -> str:
        """Its topic."""

    @property
    def partition(self) -> int:
        """Its number."""

    @property
    def position(self) -> int | None:
        """The last offset that was copied."""

    @property
    def oldest(self) -> int | None:
        """The oldest readable record that waits."""

    @property
    def age_s(self) -> float | None:
        """How old that record is."""

    @property
    def unread(self) -> bool:
        """Whether that could not be read."""


@dataclass(frozen=True)
class Stall:
    """A running mirror that delivers nothing, and the partition that has waited longest."""

    topic: str
    partition: int
    offset: int
    """The oldest record that waits there."""
    seconds: float
    """How long nothing was delivered while it waited."""
    more: int
    """How many more partitions wait."""

    def describe(self, cause: str) -> str:
        """Describes the stall in a sentence.

        Args:
            cause: the last error of the worker's log; empty where none is known.
        """
        others = f" and {self.more} more partition{'s wait' if self.more > 1 else ' waits'}" if self.more else ""
        because = f"; last error in the worker's log: {cause}" if cause else ""
        return (
            f"running, but no record was delivered for {span(self.seconds)}: {self.topic}-{self.partition} waits at "
            f"offset {self.offset:,}{others}{because}"
        )


@dataclass(frozen=True)
class _Stand:
    """A partition, and since when its position has not changed while a readable record waits."""

    position: int | None
    oldest: int | None
    """The oldest readable record beyond it; None where nothing waits."""
    age_s: float
    """How old that record is; 0 where nothing waits."""
    since: float
    moved: float | None
    """When the position changed last; None as long as it was not seen to."""


class Stands:
    """Since when the positions of mirrors stand still. A reading that fails leaves what earlier ones said."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, dict[Place, _Stand]]] = {}

    def read(self, mirror: str, found: Iterable[Measured], now: float) -> None:
        """Takes a look at the source of a mirror.

        Args:
            mirror: its name, which keeps mirrors apart.
            found: what the look says of each partition that it copies.
            now: when, on the monotonic clock.
        """
        _, before = self._known.get(mirror, (0.0, {}))
        self._known[mirror] = (
            now,
            {(one.topic, one.partition): _next(before.get((one.topic, one.partition)), one, now) for one in found},
        )

    def keep(self, mirror: str, positions: Mapping[Place, int | None], now: float) -> None:
        """Takes the positions of a mirror whose source could not be read."""
        _, before = self._known.get(mirror, (0.0, {}))
        unread = [_Unread(*place, position) for place, position in positions.items()]
        self.read(mirror, [one for one in unread if (one.topic, one.partition) in before], now)

    def forget(self, mirror: str) -> None:
        """Begins anew with a mirror: it was held, or cannot reach its source."""
        self._known.pop(mirror, None)

    def stalled(self, mirror: str, bound: float, found_s: float = 0.0) -> Stall | None:
        """Whether a mirror delivered nothing while a readable record waited; None if not.

        Args:
            mirror: which.
            bound: for so many seconds.
            found_s: how much longer a mirror that never copied anything may take: it looks for topics now and then.
        """
        at, stands = self._judged(mirror)
        # A consumer that works off a backlog fetches one partition after the other.
        if any(one.age_s >= bound and one.moved is not None and at - one.moved < bound for one in stands.values()):
            return None
        still = {
            place: one
            for place, one in stands.items()
            if one.oldest is not None and at - one.since >= bound + (found_s if one.position is None else 0)
        }
        if not still:
            return None
        place, one = min(still.items(), key=lambda item: (item[1].since, item[0]))
        assert one.oldest is not None
        return Stall(*place, one.oldest, at - one.since, len(still) - 1)

    def suspects(self, mirror: str, bound: float, *, new: bool) -> bool:
        """Whether a record waits that is older than ``bound`` seconds, and no such position was seen to change.

        Args:
            mirror: which.
            bound: the seconds.
            new: whether a mirror that never copied anything counts.
        """
        _, stands = self._judged(mirror)
        old = [one for one in stands.values() if one.age_s >= bound and (new or one.position is not None)]
        return bool(old) and all(one.moved is None for one in old)

    def _judged(self, mirror: str) -> tuple[float, dict[Place, _Stand]]:
        at, stands = self._known.get(mirror, (0.0, {}))
        # What its pattern takes and it never copied, it may have no right to see: rights keep topics where they belong.
        begun = {place: one for place, one in stands.items() if one.position is not None}
        return at, begun or stands


@dataclass(frozen=True)
class _Unread:
    topic: str
    partition: int
    position: int | None
    oldest: int | None = None
    age_s: float | None = None
    unread: bool = True


def _next(before: _Stand | None, found: Measured, now: float) -> _Stand:
    oldest, age_s = found.oldest, found.age_s or 0.0
    if before is None or before.position != found.position:
        if found.unread:
            oldest, age_s = None, 0.0
        return _Stand(found.position, oldest, age_s, since=now, moved=None if before is None else now)
    if found.unread:
        oldest, age_s = before.oldest, before.age_s
    waited = before.oldest is not None and oldest is not None
    return _Stand(found.position, oldest, age_s, before.since if waited else now, before.moved)


def runs(status: Mapping[str, Any]) -> bool:
    """Whether a connector and all its tasks are running, by what Connect says of them."""
    tasks = status.get("tasks") or ()
    return bool(tasks) and all(part["state"] == "RUNNING" for part in (status["connector"], *tasks))


def drops(config: Mapping[str, str]) -> bool:
    """Whether a connector has a transform that may drop records: Connect keeps no position for these."""
    names = [name.strip() for name in config.get("transforms", "").split(",") if name.strip()]
    return any(config.get(f"transforms.{name}.type", "") not in _KEEP for name in names)


def found_s(config: Mapping[str, str]) -> float:
    """In how many seconds a source connector finds a new topic or partition; infinite where it does not look."""
    if config.get("refresh.topics.enabled", "true").lower() != "true":
        return math.inf
    seconds = config.get("refresh.topics.interval.seconds", "")
    return float(seconds) if seconds.isdecimal() else _REFRESH_S


def looked_s(config: Mapping[str, str]) -> float:
    """The seconds from one look of a source connector for topics or settings to the next; 0 for other connectors."""
    if not config.get("connector.class", "").endswith("MirrorSourceConnector"):
        return 0.0
    seconds = config.get("sync.topic.configs.interval.seconds", "")
    return max(found_s(config), float(seconds) if seconds.isdecimal() else _REFRESH_S)


def cut_off(home: Path | None, runs_in: str, source: str, target: str) -> bool:
    """Whether a link between a mirror and one of its ends is cut or silent, or its relay does not answer.

    Args:
        home: the lab's home; None where it is another machine's, which has no links.
        runs_in: the mirror's region.
        source: the region that it reads.
        target: the region that it writes.
    """
    if home is None:
        return False
    wanted = [{runs_in, end} for end in (source, target)]
    try:
        return any(
            link_state(ask(folder)) != OPEN for pair, folder in relay_folders(home).items() if set(pair) in wanted
        )
    except OSError:
        return True


def bound_s(home: Path | None, region: str, mirror: str) -> float:
    """After how many seconds without a delivery a mirror's position shows it: positions are written now and then.

    Args:
        home: the lab's home; None where it is another machine's.
        region: the region that the mirror runs in.
        mirror: its name.
    """
    flush = FLUSH_S
    if home is not None:
        try:
            text = (home / "regions" / region / "connect" / mirror / "worker-0.properties").read_text(encoding="utf-8")
        except OSError:
            text = ""
        for line in text.splitlines():
            name, _, value = line.partition("=")
            if name == _FLUSH and value.strip().isdecimal():
                flush = int(value) / 1000
    return SILENT_S + flush


def cause(home: Path | None, region: str, mirror: str) -> str:
    """The last error in the logs of a mirror's workers; empty where there is none, or they are not here."""
    return next(filter(None, map(last_error, worker_logs(home, region, mirror))), "")


def worker_logs(home: Path | None, region: str, mirror: str) -> Iterator[str]:
    """The ends of the logs of a mirror's workers, the one written last first; none where they are not here."""
    logs = sorted((home / "regions" / region / "logs").glob(f"{mirror}-[0-9]*.log"), key=_written) if home else []
    return map(_end, reversed(logs))


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _end(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LOG_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
