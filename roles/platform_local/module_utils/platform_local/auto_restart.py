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
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .connect import Rest
from .errors import PlatformError

LOOK_SECONDS = 2.0
HEALTHY_SECONDS = 60.0
"""After so long without a failure the counting starts again."""


def main(settings_file: str) -> int:
    """Looks after the connectors named in the settings until it is told to end."""
    settings: dict[str, Any] = json.loads(Path(settings_file).read_text(encoding="utf-8"))
    rest = Rest(settings["url"], Path(settings["password_file"]), Path(settings["ca_file"]))
    limits: dict[str, int | None] = settings["connectors"]
    restarts = dict.fromkeys(limits, 0)
    last = dict.fromkeys(limits, 0.0)
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    while not ending.wait(LOOK_SECONDS):
        try:
            present = rest.get("/connectors?expand=status")
        except PlatformError:
            continue  # no worker answers: supervisor is starting one again
        for name, limit in limits.items():
            failed = _failed(present.get(name, {}).get("status"))
            now = time.monotonic()
            if not failed:
                if now - last[name] > HEALTHY_SECONDS:
                    restarts[name] = 0
                continue
            count = restarts[name]
            if (limit is not None and count >= limit) or now - last[name] < count * count + count:
                continue
            restarts[name], last[name] = count + 1, now
            print(f"{name}: {failed}; restart {restarts[name]}", flush=True)
            try:
                rest.call("POST", f"/connectors/{quote(name, safe='')}/restart?includeTasks=true&onlyFailed=true")
            except PlatformError as error:
                print(f"{name}: {error}", flush=True)
    return 0


def _failed(status: dict[str, Any] | None) -> str | None:
    if status is None:
        return None
    parts = [("connector", status["connector"]), *((f"task {task['id']}", task) for task in status["tasks"])]
    for part, found in parts:
        if found["state"] == "FAILED":
            return f"{part} failed: {(found.get('trace') or 'no trace').splitlines()[0]}"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
