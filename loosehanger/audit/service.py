"""The audit as a service of the lab: it watches whatever is set up, and pauses while a stage runs.

A stage kills regions, recreates clusters and turns mirrors round, so what it leaves behind is judged once it has been
reached. The service notices a stage by the lab's record: a watch ends when the record changes, and the next one begins
when no stage is unfinished.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from loosehanger.audit.display import line_of
from loosehanger.audit.metrics import AuditMetrics
from loosehanger.errors import LabError
from loosehanger.proof.session import SparkEndedError

LOOK_S = 1.0
"""Seconds between two looks at the record."""
RETRY_S = 5.0
"""Seconds after which a region that does not answer is asked again."""
Document = Mapping[str, Any]
Say = Callable[[str], None]
Rounds = Callable[[threading.Event], Iterator[Document]]
"""Yields the document of each round of a watch, until the event is set."""


class AuditService:
    """Runs one watch after another, each for as long as the lab's record stays the same.

    Args:
        access: the folder of the lab's record.
        unfinished: returns the stage that was begun and not finished, empty for none; raises LabError while nothing is
            set up.
        rounds: watches the lab as it is set up now.
        metrics: what is served of it.
        say: takes a line of the log.
    """

    def __init__(
        self, access: Path, unfinished: Callable[[], str], rounds: Rounds, metrics: AuditMetrics, say: Say
    ) -> None:
        self._access = access
        self._unfinished = unfinished
        self._rounds = rounds
        self._metrics = metrics
        self._say = say
        self._said = ""

    def run(self, ended: threading.Event) -> None:
        """Watches until ``ended`` is set.

        Raises:
            SparkEndedError: Spark has ended; a new process is needed.
        """
        self._metrics.pause()
        while not ended.is_set():
            before = digest(self._access)
            if reason := self._waits_for():
                self._tell(f"waiting: {reason}")
                ended.wait(LOOK_S)
                continue
            changed = threading.Event()
            looker = threading.Thread(target=self._look, args=(before, ended, changed), daemon=True)
            looker.start()
            try:
                self._metrics.resume()
                for document in self._metrics.following(self._rounds(changed)):
                    self._tell(line_of(document))
            except SparkEndedError:
                raise
            except LabError as error:
                self._tell(f"waiting: {error}")
                changed.wait(RETRY_S)
            finally:
                changed.set()
                self._metrics.pause()
                looker.join()

    def _waits_for(self) -> str:
        try:
            stage = self._unfinished()
        except LabError as error:
            return str(error)
        return f"the stage '{stage}' is not finished" if stage else ""

    def _look(self, before: str, ended: threading.Event, changed: threading.Event) -> None:
        """Ends the present watch when the record changes, or when the service ends."""
        while not changed.is_set():
            if ended.wait(LOOK_S) or digest(self._access) != before:
                self._metrics.pause()
                changed.set()

    def _tell(self, line: str) -> None:
        if line != self._said:
            self._said = line
            self._say(line)


def digest(folder: Path) -> str:
    """Returns a digest of a record: the files of a folder, without those of its subfolders."""
    together = hashlib.sha256()
    for path in sorted(folder.glob("*.json")):
        try:
            content = path.read_bytes()
        except OSError:
            continue  # It was deleted since.
        together.update(f"{path.name} {len(content)} ".encode() + content)
    return together.hexdigest()
