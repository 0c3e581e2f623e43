"""What makes one run of the watch go on where the last one ended: its folder, its clock, and whether it still fits."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from lab.errors import LabError

Identity = Mapping[str, Mapping[str, Any]]
"""What checkpoints hold good for: a text for each thing, by what it is about. Things may come, not change or go."""


@dataclass
class Clock:
    """A clock that stands still while the watch does not run.

    A record that was in flight when the watch was stopped is no older when it goes on: what happened in between, nobody
    saw. So ages are measured in watch time, which is the wall clock's less all pauses.
    """

    pauses: list[tuple[int, int]] = field(default_factory=list)
    """For each start after the first: when it was (wall clock), and the sum of the pauses until then, both in ms."""

    def resume(self, stopped_ms: int, now_ms: int) -> None:
        """Goes on after a pause.

        Args:
            stopped_ms: when the last batch was planned, by the wall clock. It may be run again, at its old time.
            now_ms: the wall clock.
        """
        self.pauses.append((max(now_ms, stopped_ms + 1), self._total() + max(now_ms - stopped_ms, 0)))

    def watch_time(self, wall: Column) -> Column:
        """The watch's time at a time of the wall clock, of this run or of the last one's last batch."""
        total = F.lit(0).cast("long")
        for start, pauses in self.pauses[-2:]:
            total = F.when(F.unix_millis(wall) > start, F.lit(pauses)).otherwise(total)
        return F.timestamp_millis(F.unix_millis(wall) - total)

    def wall(self, watch_ms: int) -> int:
        """The wall clock's time at a time of the watch."""
        total = 0
        for start, pauses in self.pauses:
            if watch_ms + pauses > start:
                total = pauses
        return watch_ms + total

    def started_ms(self) -> int:
        """The watch's time when it was started last, 0 for the first start."""
        return self.pauses[-1][0] - self.pauses[-1][1] if self.pauses else 0

    def _total(self) -> int:
        return self.pauses[-1][1] if self.pauses else 0


class Folder:
    """The folder in which the watch keeps what it must not forget.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps a second watch out.

        Raises:
            LabError: there is one.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.path / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise LabError(f"another watch is running on {self.path}; end it first") from error
            yield

    def checkpoint(self, query: str) -> Path:
        """Where a query's checkpoint is."""
        return self.path / "checkpoints" / query

    def table(self, name: str) -> Path:
        """Where a table is."""
        return self.path / name

    def open(self, identity: Identity, started_ms: int, now_ms: int) -> tuple[dict[str, Any], Clock, str | None]:
        """Goes on with what is there, if it fits, else begins anew.

        Args:
            identity: what is watched now, and how.
            started_ms: where to begin to read, if it begins anew (epoch ms).
            now_ms: the wall clock.

        Returns:
            What holds from now on, ``started_ms`` in it; the clock; why what was there had to be given up, if so.
        """
        stored = self._stored()
        reason = None if stored is None else self._misfit(stored["identity"], identity)
        last = self._last_batch("flows" if identity.get("flow") else "activity")
        if reason is None and stored is not None and last is not None:
            clock = Clock([(start, pauses) for start, pauses in stored["pauses"]])
            clock.resume(last, now_ms)
        else:
            for child in self.path.iterdir() if self.path.exists() else ():
                if child.is_dir():
                    shutil.rmtree(child)
            stored, clock = {"started_ms": started_ms}, Clock()
        stored |= {"identity": {name: dict(things) for name, things in identity.items()}, "pauses": clock.pauses}
        self._store(stored)
        return stored, clock, reason

    def _misfit(self, before: Identity, now: Identity) -> str | None:
        for kind, things in before.items():
            for name, thing in things.items():
                found = now.get(kind, {}).get(name)
                if found is None:
                    return f"{kind} {name} is gone"
                if found != thing:
                    return f"{kind} {name} is another one than before"
        # A source more or less would shift the others in the checkpoint.
        for kind in ("cluster", "option"):
            if more := now.get(kind, {}).keys() - before.get(kind, {}).keys():
                return f"{kind} {min(more)} is new"
        return None

    def _last_batch(self, query: str) -> int | None:
        """When the last batch of a query was planned, by Spark's own log of offsets."""
        try:
            logs = [path for path in (self.checkpoint(query) / "offsets").iterdir() if path.name.isdigit()]
            newest = max(logs, key=lambda path: int(path.name))
            return int(json.loads(newest.read_text(encoding="utf-8").splitlines()[1])["batchTimestampMs"])
        except (OSError, ValueError, LookupError):
            return None

    def _stored(self) -> dict[str, Any] | None:
        try:
            stored: dict[str, Any] = json.loads((self.path / "identity.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return stored if {"identity", "pauses", "started_ms"} <= stored.keys() else None

    def _store(self, document: Mapping[str, Any]) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self.path / "identity.json.new"
        new.write_text(json.dumps(document, indent=1), encoding="utf-8")
        new.replace(self.path / "identity.json")
