"""The support bundle that ``./lab status --bundle`` writes: all that a maintainer needs, in one file."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

from loosehanger.cli.playbook import run_playbook
from loosehanger.errors import ExitCode, LabError, WrongUseError
from loosehanger.files import replacing
from loosehanger.lab.record import Lab
from loosehanger.paths import ROOT, lab_home

_PACKAGES = ("ansible-core", "kafka-python", "kubernetes", "pyspark")
_LOG_BYTES = 1_000_000
_UNREAD = "unread-secrets.txt"
"""The file that a platform writes to a region's folder when it cannot read the secrets, with the reason."""
_QUOTATIONS = ("spark.log", "status.*", *(f"regions/*/{name}" for name in ("events.txt", "logs", "processes.txt")))
"""Logs, and files that quote them."""


def write(lab: Lab, path: Path) -> int:
    """Collects everything into a compressed archive. The archive itself names what could not be read.

    Raises:
        WrongUseError: the file cannot be written.
    """
    try:
        # A new file is readable by its owner only, also for a process that has opened an earlier file of this name.
        with replacing(path) as stream, tempfile.TemporaryDirectory() as collected:
            warnings = _collect(lab, Path(collected))
            with tarfile.open(fileobj=stream, mode="w:gz") as archive:
                archive.add(collected, arcname=path.name.split(".")[0])
    except OSError as error:
        raise WrongUseError(f"--bundle {path}: cannot be written ({error.strerror})") from error
    for line in warnings:
        print(line, file=sys.stderr)
    print(f"{path}: review it before you send it")
    return ExitCode.DONE


def _collect(lab: Lab, folder: Path) -> list[str]:
    """Collects into a folder; returns warnings."""
    (folder / "about.txt").write_text("".join(_about(lab)), encoding="utf-8")
    try:
        _run(lab, "status", "status_file", folder / "status.json")
    except LabError as error:
        (folder / "status.txt").write_text(f"{error}\n", encoding="utf-8")
    spark = lab_home() / "logs" / "spark.log"
    if spark.exists():
        (folder / spark.name).write_bytes(spark.read_bytes()[-_LOG_BYTES:])
    reasons = []
    try:
        # It comes last, because it removes the secrets from all files in the folder.
        _run(lab, "bundle", "platform_bundle", folder)
    except LabError as error:
        reasons.append(f"{error}\n")
    reasons += [
        f"{file.parent.name}: {file.read_text(encoding='utf-8')}" for file in folder.glob(f"regions/*/{_UNREAD}")
    ]
    if not reasons:
        return []
    for quotation in [path for pattern in _QUOTATIONS for path in folder.glob(pattern)]:
        shutil.rmtree(quotation) if quotation.is_dir() else quotation.unlink()
    what = "logs and files that quote them are left out, because secrets in them could not be removed"
    (folder / "left-out.txt").write_text("".join([f"{what}\n", *reasons]), encoding="utf-8")
    return [f"{what}:", *(f"  {reason.strip()}" for reason in reasons)]


def _run(lab: Lab, playbook: str, variable: str, value: Path) -> None:
    run_playbook(f"playbooks/{playbook}.yaml", ["-i", lab.inventory], quiet=True, paths={variable: value})


def _about(lab: Lab) -> list[str]:
    command = ["git", "describe", "--always", "--dirty"]
    revision = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    facts = {
        "scenario": lab.scenario,
        "stage": lab.stage,
        "unfinished": lab.unfinished or "nothing",
        "platform": lab.platform,
        "revision": revision.stdout.strip() or "unknown",
        "machine": platform.platform(),
        "python": platform.python_version(),
        **{package: version(package) for package in _PACKAGES},
        "mirrors": json.dumps([f"{mirror.name}: {mirror.source} -> {mirror.target}" for mirror in lab.mirrors]),
    }
    return [f"{name}: {fact}\n" for name, fact in facts.items()]
