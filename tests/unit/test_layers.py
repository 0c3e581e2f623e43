"""Imports go down the layers, and never back up: read from the source, with those that stand within functions."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loosehanger.paths import ROOT

PACKAGE = "loosehanger"
BASE = (
    "acls", "arguments", "errors", "files", "headers", "internal_topics", "java_clients", "ledger", "mounts", "paths",
    "ports", "problems", "process_lifetime", "quantiles", "stack_traces", "suggestions", "times", "version", "waiting",
)  # fmt: skip
"""Python's own library only; they may use each other."""
PLATFORMS = ("platforms.local", "platforms.kubernetes")
USES: dict[str, tuple[str, ...]] = {
    "kafka": (),
    "lab": (),
    "events": ("kafka",),
    "signing": (),
    "platforms": ("lab", "kafka"),
    "platforms.local": ("platforms", "lab", "kafka"),
    "platforms.kubernetes": ("platforms", "lab", "kafka"),
    "platforms.registry": ("platforms", *PLATFORMS, "lab", "kafka"),
    "stages": ("platforms", "lab", "kafka"),
    "proof": ("lab", "kafka"),
    "sales": ("proof", "lab", "kafka"),
    "redaction": ("proof", "lab", "kafka"),
    "audit": ("proof", "sales", "lab", "kafka"),
    "jobs": ("audit", "redaction", "sales", "proof", "lab", "kafka"),
    "mirrorproof": ("jobs", "audit", "proof", "lab", "kafka"),
    "learn": ("lab",),
    "console": ("learn", "proof", "audit", "events", "signing", "lab", "kafka"),
    "room": ("console", "events", "learn"),
    "faults": ("platforms", "lab", "kafka"),
    "experiments": ("platforms", "lab", "kafka"),
    "ansible": ("stages", "platforms", "platforms.registry", "lab", "kafka"),
    "cli": (
        "stages",
        "experiments",
        "faults",
        "learn",
        "room",
        "proof",
        "platforms",
        "platforms.registry",
        "events",
        "signing",
        "lab",
        "kafka",
    ),
}
"""What each part may import, besides itself and the base. Every line names only what stands above it."""
PROGRAMS = {"producer": ("kafka",), "consumers": ("events", "kafka"), "spark-jobs": ("jobs",)}
"""The programs outside the package, by folder, and what they import of it besides the base."""
EVERYWHERE = frozenset(sys.stdlib_module_names)
CHANGED_PATH = re.compile(r"\bsys\.path(\.[a-z]+\(|\[.*\] *=|\s*\+?=(?!=))|\baddsitedir\b")
OF_CLIENTS = {"kafka"}
"""Besides the standard library: they also run in pods that have hardly anything else installed."""


def imported(path: Path, root: Path = ROOT) -> Iterator[str]:
    """The modules that a file imports, by their full names; both of ``from package import name``."""
    package = path.relative_to(root).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*above, *([node.module] if node.module else [])))
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def part(module: str) -> str | None:
    """The part of the package that a module belongs to; None for any other module, and for the package as such."""
    parts = module.split(".")
    if parts[0] != PACKAGE or len(parts) == 1:
        return None
    inner = ".".join(parts[1:3])
    return inner if inner in USES else parts[1]


def allowed(name: str) -> set[str]:
    """What a part may import."""
    return {*BASE} if name in BASE else {name, *USES[name], *BASE}


def sources(folder: str, root: Path = ROOT) -> list[Path]:
    """Every Python file of a folder."""
    return sorted((root / folder).rglob("*.py"))


def forbidden(root: Path = ROOT) -> list[str]:
    """The imports of the package that no line of ``USES`` allows."""
    return [
        f"{path.relative_to(root)}: {module}"
        for path in sources(PACKAGE, root)
        if (own := part(".".join(path.relative_to(root).with_suffix("").parts))) not in (None, "__init__")
        for module in imported(path, root)
        if (other := part(module)) and other not in allowed(str(own))
    ]


def test_imports_go_where_they_may() -> None:
    assert forbidden() == []


def test_no_part_is_above_and_below_another() -> None:
    names = list(USES)
    assert not [(name, other) for name in names for other in USES[name] if names.index(other) >= names.index(name)]


@pytest.mark.parametrize(
    ("place", "statement"),
    [
        ("lab/record.py", "from loosehanger.platforms.local.region import Region"),
        ("lab/record.py", "def late():\n    from loosehanger.cli import commands"),
        ("lab/record.py", "from loosehanger.kafka.connection import Connection"),
        ("kafka/connect.py", "from ..lab.manifests import documents"),
        ("platforms/local/apply.py", "from loosehanger import ansible"),
        ("platforms/local/apply.py", "from loosehanger.platforms.kubernetes.apply import apply"),
        ("platforms/kubernetes/pods.py", "def late():\n    from loosehanger.stages import steps"),
        ("stages/steps.py", "def late():\n    from loosehanger.platforms.kubernetes import pods"),
        ("experiments/site.py", "from loosehanger.platforms.local.services import offers"),
        ("faults/injecting.py", "from loosehanger.platforms import registry"),
        ("proof/verdict.py", "from loosehanger.cli import commands"),
        ("files.py", "import loosehanger.kafka.connect"),
    ],
)
def test_an_import_that_may_not_be_is_found(place: str, statement: str, tmp_path: Path) -> None:
    path = tmp_path / PACKAGE / place
    path.parent.mkdir(parents=True)
    path.write_text(f"from loosehanger.errors import LabError\n{statement}\n", encoding="utf-8")
    assert forbidden(tmp_path)


def test_every_module_of_the_package_belongs_to_a_part() -> None:
    found = {path.relative_to(ROOT / PACKAGE).with_suffix("").parts[0] for path in sources(PACKAGE)}
    assert found == {"__init__", *BASE, *(name.partition(".")[0] for name in USES)}


def test_the_clients_and_the_base_use_hardly_anything_else() -> None:
    for path in [*sources(f"{PACKAGE}/kafka"), *(ROOT / PACKAGE / f"{name}.py" for name in BASE)]:
        of_kafka = path.parent.name == "kafka"
        allowed = EVERYWHERE | {PACKAGE} | (OF_CLIENTS if of_kafka else set())
        if of_kafka and path.name == "connect.py":
            allowed |= {"requests"}
        if of_kafka and path.name == "key_stores.py":
            allowed |= {"cryptography"}  # Only for clusters of the user's own, which no pod connects to.
        assert {module.split(".")[0] for module in imported(path)} <= allowed, path


@pytest.mark.parametrize("folder", PROGRAMS)
def test_a_program_imports_what_it_needs(folder: str) -> None:
    for path in sources(folder):
        found = {name for module in imported(path) if (name := part(module))}
        assert found <= {*PROGRAMS[folder], *BASE}, path


def test_the_package_imports_no_program() -> None:
    for path in sources(PACKAGE):
        assert not {module.split(".")[0] for module in imported(path)} & {"producer", "consumers"}, path


def test_what_needs_no_installation_uses_the_standard_library_only() -> None:
    waiting, seen = [ROOT / PACKAGE / "cli" / "bootstrap_cli.py"], set[Path]()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        for module in imported(path):
            assert module.split(".")[0] in {*EVERYWHERE, PACKAGE}, f"{path}: {module}"
            place = ROOT.joinpath(*module.split("."))
            waiting += [found for found in (place.with_suffix(".py"), place / "__init__.py") if found.exists()]
    assert ROOT / PACKAGE / "lab" / "scenario_index.py" in seen


def test_nobody_changes_where_python_looks_for_modules() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / line for line in listed.splitlines() if (ROOT / line).is_file()]
    assert not [path for path in files if path.suffix == ".pth"]
    for path in files:
        if path.suffix in (".py", ".sh", ".toml") and path != Path(__file__):
            text = path.read_text(encoding="utf-8")
            assert ".pth" not in text, path
            assert not CHANGED_PATH.search(text), path


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("sys.path.insert(0, here)", True),
        ("sys.path += [here]", True),
        ("sys.path[:0] = [here]", True),
        ("sys.path = [here]", True),
        ("site.addsitedir(here)", True),
        ("paths = os.pathsep.join(sys.path)", False),
        ("if sys.path == []:", False),
    ],
)
def test_what_counts_as_a_change(text: str, changes: bool) -> None:
    assert bool(CHANGED_PATH.search(text)) == changes


CALLED_SO_BY_ANSIBLE = "ActionModule"
DOCUMENTS = "loosehanger/console/models.py"
"""The consoles' interface calls what it returns by the names that its readers know."""


def test_a_name_is_one_class() -> None:
    where: dict[str, list[str]] = {}
    for folder in ("loosehanger", "consumers", "producer", "spark-jobs", "scripts"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and node.name[0] != "_" and str(path.relative_to(ROOT)) != DOCUMENTS:
                    where.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    several = {name: paths for name, paths in where.items() if len(paths) > 1}
    assert set(several) == {CALLED_SO_BY_ANSIBLE}, several
