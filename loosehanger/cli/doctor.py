"""Whether this machine can run a lab: what ``./lab doctor`` checks. Python's own library is enough for it."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from loosehanger.errors import ExitCode
from loosehanger.model.progress import Progress
from loosehanger.paths import lab_home

from .cleaning import MADE
from .port_base import ENVIRONMENT, read_port_base

GB = 1_000_000_000
MEMORY_BYTES = 4 * GB
"""Three regions with their mirrors, consoles and a proof take some 3 GB."""
DISK_BYTES = 4 * GB
"""What is installed takes 2.5 GB, a lab in use 1 GB."""
LOG_BYTES = GB
PORT_BASE = 19000
_FIRST, _LAST = 100, 500
"""Ports of the regions, counted from the base."""
_LOOPBACK = "127.0.0.1"
_NETWORK_S = 10.0
_INDEX, _MAVEN = "https://pypi.org/simple/", "https://repo1.maven.org/maven2"


@dataclass(frozen=True)
class Check:
    """One thing that a lab needs."""

    what: str
    found: str
    remedy: str = ""
    """What to do; empty where all is well."""

    @property
    def line(self) -> str:
        """The check in a line."""
        return f"{'PROBLEM' if self.remedy else 'ok':<9}{self.what:<12}{self.found}" + (
            f"; {self.remedy}" if self.remedy else ""
        )


def examine(progress: Progress | None, environment: Mapping[str, str] = os.environ) -> int:
    """Prints each check of the machine; returns ``FAILED`` if one of them has a remedy.

    Args:
        progress: what is set up; None for nothing.
        environment: the variables of the command.

    Raises:
        WrongUseError: ``LAB_PORT_BASE`` is not a number of a port.
    """
    checks = list(machine(progress, environment))
    for check in checks:
        print(check.line)
    return ExitCode.FAILED if any(check.remedy for check in checks) else ExitCode.DONE


def machine(progress: Progress | None, environment: Mapping[str, str]) -> Iterator[Check]:
    """The checks, one after the other; those that concern a new lab only where none is set up."""
    home = lab_home()
    installed = (home / "venv" / "bin" / "python").exists()
    yield Check("Python", platform.python_version())
    if progress is None:
        yield memory(Path("/proc/meminfo"))
    yield disk(home, installed=installed)
    yield Check("proxy", ", ".join(name for name in _proxies(environment)) or "none is set")
    if not installed:
        yield reachable("packages", environment.get("PIP_INDEX_URL") or _INDEX, "PIP_INDEX_URL")
        yield reachable("jars", environment.get("LAB_MAVEN_REPOSITORY") or _MAVEN, "LAB_MAVEN_REPOSITORY")
    if progress is None:
        left = [name for name in MADE if (home / name).exists()]
        yield Check(
            "remains",
            f"{home} has {', '.join(left)}" if left else "none of an earlier lab",
            "run ./lab cleanup" * bool(left),
        )
        yield ports(
            read_port_base(text, f"{ENVIRONMENT}={text}") if (text := environment.get(ENVIRONMENT)) else PORT_BASE
        )


def memory(meminfo: Path) -> Check:
    """How much memory is available."""
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
        available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return Check("memory", "not known on this system")
    found = f"{available / GB:.1f} GB available"
    return Check("memory", found, f"free {MEMORY_BYTES / GB:.0f} GB for three regions" * (available < MEMORY_BYTES))


def disk(home: Path, *, installed: bool) -> Check:
    """How much space there is where the lab lies."""
    folder = next(parent for parent in (home, *home.parents) if parent.exists())
    free, needed = shutil.disk_usage(folder).free, LOG_BYTES if installed else DISK_BYTES
    remedy = f"free {needed / GB:.0f} GB, or set LAB_HOME to a folder on another disk"
    return Check("disk", f"{free / GB:.1f} GB free at {folder}", remedy * (free < needed))


def ports(base: int) -> Check:
    """Whether the ports of the regions are free."""
    taken = []
    for port in range(base + _FIRST, min(base + _LAST, 65536)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_LOOPBACK, port))
            except OSError:
                taken.append(port)
    span = f"{base + _FIRST} to {base + _LAST - 1}"
    if not taken:
        return Check("ports", f"{span} are free")
    some = ", ".join(map(str, taken[:5])) + (f" and {len(taken) - 5} more" if len(taken) > 5 else "")
    return Check("ports", f"in use: {some}", f"set {ENVIRONMENT} to another number than {base}")


def reachable(what: str, address: str, variable: str) -> Check:
    """Whether a server answers, whatever it answers."""
    remedy = f"set HTTPS_PROXY if there is a proxy, or {variable} to an address within reach"
    try:
        request = urllib.request.Request(address, method="HEAD")  # noqa: S310 (the user's own address)
        with urllib.request.urlopen(request, timeout=_NETWORK_S):  # noqa: S310
            return Check(what, "reachable")
    except urllib.error.HTTPError:
        return Check(what, "reachable")
    except (OSError, ValueError) as error:
        host = address.partition("//")[2].partition("/")[0].rpartition("@")[2]
        return Check(what, f"{host or 'the address'} is not reachable ({getattr(error, 'reason', error)})", remedy)


def _proxies(environment: Mapping[str, str]) -> Iterator[str]:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE"):
        if environment.get(name):
            yield f"{name} is set"  # its value may have a password
