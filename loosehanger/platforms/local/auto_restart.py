"""Restarts failed connectors and tasks, as Strimzi's operator does for ``autoRestart``.

It runs as a program beside the workers. Between attempts on one connector Strimzi waits n² + n minutes; in the lab the
minutes are seconds.
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
"""Seconds without a failure after which the count of restarts begins again."""


def main(settings_file: str) -> int:
    """Restarts the connectors that the settings name, until the process is stopped."""
    settings: dict[str, Any] = json.loads(Path(settings_file).read_text(encoding="utf-8"))
    rest = ConnectClient.of(settings["connect"])
    limits: dict[str, int | None] = settings["connectors"]
    # The settings of a lab that an older version set up have no path.
    home = Path(settings["home"]) if "home" in settings else None
    watched = {name: Watched() for name in limits}
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    while not ending.wait(LOOK_SECONDS):
        try:
            present = name_topics(rest.statuses(), home, settings.get("region", ""), settings.get("mirror", ""))
        except LabError:
            continue  # no worker answers: supervisor is restarting it
        for name, limit in limits.items():
            one = watched[name]
            if not one.look(present.get(name), limit, time.monotonic()):
                continue
            print(f"{name}: {one.reason}; restart {one.restarts}", flush=True)
            try:
                rest.restart_failed(name)
            except LabError as error:
                print(f"{name}: {error}", flush=True)
        failures = {name: one.summary(time.monotonic()) for name, one in watched.items() if one.reason}
        write_file(Path(settings["failures"]), json.dumps(failures))
    return 0


@dataclass
class Watched:
    """The failures of one connector, kept because Connect forgets why a task failed when the task restarts."""

    restarts: int = 0
    reason: str = ""
    """Why it failed last; empty when it has been running for long enough."""
    _tried: float = 0.0
    _uneasy: float = 0.0

    def look(self, status: Mapping[str, Any] | None, limit: int | None, now: float) -> bool:
        """Evaluates a connector's status; True when it must be restarted.

        Args:
            status: Connect's status; None if the connector does not exist.
            limit: how many restarts are allowed; None for any number.
            now: seconds of a monotonic clock.
        """
        found = list(parts("", status)) if status else []
        failed = next((_failure(part) for part in found if part.state == "FAILED"), "")
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

    def summary(self, now: float) -> dict[str, Any]:
        """Returns the restarts, their reason, and the seconds since everything has been running, for the status."""
        return {"restarts": self.restarts, "reason": self.reason, "running_seconds": now - self._uneasy}


def _failure(part: ConnectorPart) -> str:
    """Returns what failed and why, in one line."""
    what = "connector" if part.task is None else f"task {part.task}"
    return f"{what} failed: {part.cause or 'it left no trace'}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
