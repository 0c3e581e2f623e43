"""What the lab's Prometheus scrapes: files in ``.lab/monitoring/targets``, which it reads again when they change.

``control-room.json`` and ``audit-service.json`` follow the record: a region that a stage kills on purpose has no
targets, so nothing alarms that they are down. ``audit.json`` is a watch's that a person has started; beside it stands
which process that is, because a killed one cannot delete it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from loosehanger.files import write_file
from loosehanger.lab.record import Lab

CONTROL_ROOM, SERVICE, WATCH = "control-room.json", "audit-service.json", "audit.json"
_PROCESS = "audit.process"


def folder(home: Path) -> Path:
    """Returns the folder of the targets in a lab's home."""
    return home / "monitoring" / "targets"


def announce_watch(home: Path, address: str, scenario: str) -> None:
    """Adds a watch, which this process runs.

    Args:
        home: the lab's home.
        address: where it serves its metrics, as host and port.
        scenario: what it watches.
    """
    write_file(folder(home) / _PROCESS, json.dumps({"pid": os.getpid(), "started": _started(os.getpid())}))
    _write(home, WATCH, [address], scenario)


def withdraw_watch(home: Path) -> None:
    """Removes the watch."""
    for name in (WATCH, _PROCESS):
        with suppress(OSError):
            (folder(home) / name).unlink(missing_ok=True)


def forget_dead_watch(home: Path) -> bool:
    """Removes a watch whose process no longer exists; True where there was one."""
    if not (folder(home) / WATCH).exists() or _is_alive(folder(home) / _PROCESS):
        return False
    withdraw_watch(home)
    return True


def follow(home: Path, lab: Lab, leaving: Collection[str] = (), *, begin: bool = False) -> None:
    """Brings the targets into the state of the record, where there is a configuration for Prometheus.

    Args:
        home: the lab's home.
        lab: what is set up.
        leaving: the regions that a stage is about to kill.
        begin: whether to make the folder, too.
    """
    if not (begin or folder(home).exists()):
        return
    forget_dead_watch(home)
    alive = [region for name, region in lab.regions.items() if name not in {*lab.lost, *leaving}]
    rooms = [urlsplit(one.url).netloc for region in alive for one in region.consoles if one.scraper]
    _write(home, CONTROL_ROOM, rooms[:1], lab.scenario)
    _write(home, SERVICE, [audit.address for region in alive for audit in region.audits], lab.scenario)


def _write(home: Path, name: str, addresses: Sequence[str], scenario: str) -> None:
    found = [{"targets": list(addresses), "labels": {"scenario": scenario}}] if addresses else []
    write_file(folder(home) / name, json.dumps(found))


def _is_alive(path: Path) -> bool:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        started = _started(int(found["pid"]))
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return bool(started) and found.get("started") == started


def _started(pid: int) -> str:
    """Returns when a process was started, as the kernel counts it since its own start; empty for no process.

    A process number is used again, but not with the same time.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        # The name of the program, in parentheses, may contain anything.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    # proc(5): 3 is the state, the first after the name; a zombie has ended. 22 is the time.
    return "" if fields[0] == "Z" else f"{boot} {fields[19]}"
