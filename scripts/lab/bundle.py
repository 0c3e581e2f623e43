"""What a maintainer needs to help, in one file: what ``status.sh --bundle`` writes."""

from __future__ import annotations

import json
import platform
import subprocess
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

from lab.access import ROOT, Lab, lab_home
from lab.errors import ExitCode, LabError, WrongUseError
from lab.playbook import run_playbook

_PACKAGES = ("ansible-core", "kafka-python", "kubernetes", "pyspark")
_LOG_BYTES = 1_000_000


def write(lab: Lab, path: Path) -> int:
    """Collects everything into a compressed archive. What cannot be read is told in it, and is no failure.

    Raises:
        WrongUseError: the file cannot be written.
    """
    try:
        with tempfile.TemporaryDirectory() as name, tarfile.open(path, "w:gz") as archive:
            folder = Path(name)
            failures = []
            for playbook, variable, value in (
                ("status", "status_file", folder / "status.json"),
                ("bundle", "platform_bundle", folder / "regions"),
            ):
                try:
                    run_playbook(
                        f"playbooks/{playbook}.yaml", ["-i", lab.inventory, "-e", f"{variable}={value}"], quiet=True
                    )
                except LabError as error:
                    failures.append(f"{playbook}: {error}\n")
            (folder / "about.txt").write_text("".join([*_about(lab), *failures]), encoding="utf-8")
            spark = lab_home() / "logs" / "spark.log"
            if spark.exists():
                (folder / "spark.log").write_bytes(spark.read_bytes()[-_LOG_BYTES:])
            archive.add(folder, arcname=path.name.split(".")[0])
    except OSError as error:
        raise WrongUseError(f"--bundle {path}: cannot be written ({error.strerror})") from error
    path.chmod(0o600)
    print(f"{path}: look through it before you send it to anybody")
    return ExitCode.DONE


def _about(lab: Lab) -> list[str]:
    command = ["git", "describe", "--always", "--dirty"]
    revision = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    facts = {
        "scenario": lab.scenario,
        "platform": lab.platform,
        "revision": revision.stdout.strip() or "unknown",
        "machine": platform.platform(),
        "python": platform.python_version(),
        **{package: version(package) for package in _PACKAGES},
        "mirrors": json.dumps([f"{mirror.name}: {mirror.source} -> {mirror.target}" for mirror in lab.mirrors]),
    }
    return [f"{name}: {fact}\n" for name, fact in facts.items()]
