"""Restarts failed connectors and tasks, as Strimzi's operator does where a manifest has ``autoRestart``.

Run as a program beside the workers. Between attempts on the same connector it waits n² + n minutes in Strimzi; here the
minutes are seconds, for a lab's patience.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loosehanger.errors import LabError
from loosehanger.files import write_file
from loosehanger.kafka.connect import ConnectClient, ConnectorPart, parts
from loosehanger.kafka.failed_topics import name_topics

LOOK_SECONDS = 2.0
HEALTHY_SECONDS = 60.0
"""After so long with everything running the counting starts again."""


def main(settings_file: str) -> int:
    """Looks after the connectors named in the settings until it is told to end."""
    settings: dict[str, Any] = json.loads(Path(settings_file).read_text(encoding="utf-8"))
    rest = ConnectClient.of(settings["connect"])
    limits: dict[str, int | None] = settings["connectors"]
    # A lab that an older version has set up does not say where it is.
    home = Path(settings["home"]) if "home" in settings else None
    watched = {name: Watched() for name in limits}
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    while not ending.wait(LOOK_SECONDS):
        try:
            present = name_topics(rest.statuses(), home, settings.get("region", ""), settings.get("mirror", ""))
        except LabError:
            continue  # no worker answers: supervisor is starting one again
        for name, limit in limits.items():
            one = watched[name]
            if not one.look(present.get(name), limit, time.monotonic()):
                continue
            print(f"{name}: {one.reason}; restart {one.restarts}", flush=True)
            try:
                rest.restart_failed(name)
            except LabError as error:
                print(f"{name}: {error}", flush=True)
        told = {name: one.told(time.monotonic()) for name, one in watched.items() if one.reason}
        write_file(Path(settings["failures"]), json.dumps(told))
    return 0


@dataclass
class Watched:
    """What is remembered of a connector: Connect itself forgets why a task failed as soon as it is started again."""

    restarts: int = 0
    reason: str = ""
    """Why it failed last; empty when it has been running long enough."""
    _tried: float = 0.0
    _uneasy: float = 0.0

    def look(self, status: Mapping[str, Any] | None, limit: int | None, now: float) -> bool:
        """Takes in a connector's status; True when it is to be restarted.

        Args:
            status: as Connect has it; None when there is no such connector.
            limit: how many restarts are allowed; None for any number.
            now: seconds of a clock that never goes back.
        """
        found = list(parts("", status)) if status else []
        failed = next((_said(part) for part in found if part.state == "FAILED"), "")
        if failed:
            self.reason, self._uneasy = failed, now
            count = self.restarts
            if (limit is not None and count >= limit) or now - self._tried < count * count + count:
                return False
            self.restarts, self._tried = count + 1, now
            return True
        if any(part.state in ("RESTARTING", "UNASSIGNED") for part in found):
            self._uneasy = now
        elif now - self._uneasy > HEALTHY_SECONDS:
            self.restarts, self.reason = 0, ""
        return False

    def told(self, now: float) -> dict[str, Any]:
        """For the status: how often it was restarted, why, and for how many seconds all has been running."""
        return {"restarts": self.restarts, "reason": self.reason, "running_seconds": now - self._uneasy}


def _said(part: ConnectorPart) -> str:
    """What failed, and why, in one line."""
    what = "connector" if part.task is None else f"task {part.task}"
    return f"{what} failed: {part.cause or 'it left no trace'}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
