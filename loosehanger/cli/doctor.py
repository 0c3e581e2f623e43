"""``./lab doctor``: checks whether this machine can run a lab. Needs only Python's standard library."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from loosehanger.cli.cleaning import MADE
from loosehanger.cli.port_base import ENVIRONMENT, LOWEST, read_port_base, region_ports
from loosehanger.errors import ExitCode
from loosehanger.lab.progress import Progress
from loosehanger.paths import ROOT, lab_home
from loosehanger.ports import KERNEL, is_taken, outgoing_ports, reserved_ports

GB = 1_000_000_000
MEMORY_BYTES = 4 * GB
"""Three regions with their mirrors, consoles and a proof take some 3 GB."""
DISK_BYTES = 4 * GB
"""The installation takes 2.5 GB, a lab in use 1 GB."""
LAB_BYTES = GB
GAP = 1000
"""Distance of a port base from a range of ports that no region may use."""
_NAMED = 5
"""Most ports that a message names."""
_NETWORK_S = 90


@dataclass(frozen=True)
class Check:
    """One requirement of a lab, and its state."""

    what: str
    found: str
    remedy: str = ""
    """The remedy; empty where there is no problem."""
    only_warns: bool = False
    """Whether a lab may run nevertheless."""

    @property
    def line(self) -> str:
        """The check in a line."""
        verdict = ("warning" if self.only_warns else "PROBLEM") if self.remedy else "ok"
        return f"{verdict:<9}{self.what:<12}{self.found}" + (f"; {self.remedy}" if self.remedy else "")


def examine(progress: Progress | None, environment: Mapping[str, str] = os.environ) -> int:
    """Prints each check of the machine; returns ``FAILED`` if one of them is a problem.

    Args:
        progress: what is set up; None for nothing.
        environment: the variables of the command.

    Raises:
        WrongUseError: ``LAB_PORT_BASE`` is not a number of a port.
    """
    checks = list(machine(progress, environment))
    for check in checks:
        print(check.line)
    return ExitCode.FAILED if any(check.remedy and not check.only_warns for check in checks) else ExitCode.DONE


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
        yield from network()
    if progress is None:
        left = [name for name in MADE if (home / name).exists()]
        yield Check(
            "remains",
            f"{home} has {', '.join(left)}" if left else "none of an earlier lab",
            "run ./lab cleanup" * bool(left),
        )
        text = environment.get(ENVIRONMENT)
        yield ports(read_port_base(text, f"{ENVIRONMENT}={text}") if text else None)


def memory(meminfo: Path) -> Check:
    """Checks the available memory."""
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
        available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return Check("memory", "not known on this system")
    found = f"{available / GB:.1f} GB available"
    return Check("memory", found, f"free {MEMORY_BYTES / GB:.0f} GB for three regions" * (available < MEMORY_BYTES))


def disk(home: Path, *, installed: bool) -> Check:
    """Checks the free space on the disk of the lab."""
    folder = next(parent for parent in (home, *home.parents) if parent.exists())
    free, needed = shutil.disk_usage(folder).free, LAB_BYTES if installed else DISK_BYTES
    remedy = f"free {needed / GB:.0f} GB, or set LAB_HOME to a folder on another disk"
    return Check("disk", f"{free / GB:.1f} GB free at {folder}", remedy * (free < needed))


def ports(base: int | None, kernel: Path = KERNEL) -> Check:
    """Checks that the ports of the regions are free, and stay free: outgoing connections may take them.

    Args:
        base: the port base; None for the inventory's.
        kernel: the folder of the kernel's settings.
    """
    wanted = region_ports(base)
    taken = [port for port in wanted if is_taken(port)]
    if not taken:
        found = f"{wanted[0]} to {wanted[-1]} are free"
        given = outgoing_ports(kernel)
        if not {*wanted} & {*given} - reserved_ports(kernel):
            return Check("ports", found)
        own = f"net.ipv4.ip_local_reserved_ports={wanted[0]}-{wanted[-1]}"
        found += f", but outgoing connections may take {given[0]} to {given[-1]} (net.ipv4.ip_local_port_range)"
        remedy = f"set {ENVIRONMENT} to a number below {given[0] - GAP}, or reserve the ports: sysctl -w {own}"
        if given[0] - GAP <= LOWEST:
            remedy = f"reserve the ports: sysctl -w {own}, or set {ENVIRONMENT} to a number outside that range"
        return Check("ports", found, remedy, only_warns=True)
    some = ", ".join(map(str, taken[:_NAMED])) + (f" and {len(taken) - _NAMED} more" if len(taken) > _NAMED else "")
    return Check("ports", f"in use: {some}", f"set {ENVIRONMENT} to another number, such as 29000")


def network() -> Iterator[Check]:
    """Checks that the sources of the installation are reachable, with the installer's own check."""
    command = [sys.executable, "-B", str(ROOT / "scripts" / "install.py"), "--check"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_NETWORK_S)
    except subprocess.TimeoutExpired:
        yield Check("network", f"no answer within {_NETWORK_S} s", "set HTTPS_PROXY if there is a proxy")
        return
    if not done.returncode:
        yield Check("network", "packages and jars are reachable")
    for line in done.stderr.splitlines() if done.returncode else ():
        found, _, remedy = line.removeprefix("error: ").partition("; ")
        yield Check("network", found, remedy or "see above")


def _proxies(environment: Mapping[str, str]) -> Iterator[str]:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE"):
        if environment.get(name):
            yield f"{name} is set"  # its value may have a password
