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
    "arguments",
    "errors",
    "paths",
    "files",
    "ledger",
    "parents",
    "ports",
    "suggestions",
    "times",
    "traces",
    "waiting",
)
LAYERS = ("cli", "ansible", "experiments", "platforms", "model", "clients", *BASE)
"""From the top down. A layer may use those below it; the modules of the base may use each other."""
PROGRAMS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "producer": ("producer", ("clients", *BASE), ()),
    "consumers": ("consumers", ("clients", *BASE), ()),
    "spark-jobs": ("pipeline", ("model", "clients", *BASE), ()),
    # It shows events as the consumers do, and a report as the proof does.
    "console": ("console", ("model", "clients", *BASE), ("consumers", "pipeline")),
}
"""By folder: the program's own package, the layers that it uses, and the other programs that it uses."""
EVERYWHERE = frozenset(sys.stdlib_module_names)
CHANGED_PATH = re.compile(r"\bsys\.path(\.[a-z]+\(|\[.*\] *=|\s*\+?=(?!=))|\baddsitedir\b")
OF_CLIENTS = {"kafka"}
"""Beside the standard library: they also run in pods that have hardly anything else installed."""


def imported(path: Path, root: Path = ROOT) -> Iterator[str]:
    """The modules that a file imports, by their full names; of ``from package import name`` both are told."""
    package = path.relative_to(root).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*above, *([node.module] if node.module else [])))
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def layer(module: str) -> str | None:
    """The layer of a module of the package; None for any other, and for the package as such."""
    parts = module.split(".")
    return parts[1] if parts[0] == PACKAGE and len(parts) > 1 else None


def below(name: str) -> tuple[str, ...]:
    """The layers that one may use, its own among them."""
    return BASE if name in BASE else LAYERS[LAYERS.index(name) :]


def sources(folder: str, root: Path = ROOT) -> list[Path]:
    """Every Python file of a folder."""
    return sorted((root / folder).rglob("*.py"))


def upward(root: Path = ROOT) -> list[str]:
    """The imports of the package that lead up."""
    return [
        f"{path.relative_to(root)}: {module}"
        for path in sources(PACKAGE, root)
        if (own := layer(".".join(path.relative_to(root).with_suffix("").parts))) != "__init__"
        for module in imported(path, root)
        if (other := layer(module)) and other not in below(str(own))
    ]


def test_imports_of_the_package_go_down() -> None:
    assert upward() == []


@pytest.mark.parametrize(
    ("place", "statement"),
    [
        ("model/record.py", "from loosehanger.platforms.local.region import Region"),
        ("model/record.py", "def late():\n    from loosehanger.cli import commands"),
        ("clients/connect.py", "from ..model import documents"),
        ("platforms/local/apply.py", "from loosehanger import ansible"),
        ("files.py", "import loosehanger.kafka.connect"),
    ],
)
def test_an_import_that_goes_up_is_found(place: str, statement: str, tmp_path: Path) -> None:
    path = tmp_path / PACKAGE / place
    path.parent.mkdir(parents=True)
    path.write_text(f"from loosehanger.errors import LabError\n{statement}\n", encoding="utf-8")
    assert upward(tmp_path)


def test_every_module_of_the_package_is_in_a_layer() -> None:
    found = {path.relative_to(ROOT / PACKAGE).with_suffix("").parts[0] for path in sources(PACKAGE)}
    assert found == {"__init__", *LAYERS}


def test_the_platforms_do_not_know_each_other() -> None:
    for own, other in (("local", "kubernetes"), ("kubernetes", "local")):
        for path in sources(f"{PACKAGE}/platforms/{own}"):
            assert not [m for m in imported(path) if m.startswith(f"{PACKAGE}.platforms.{other}")], path


def test_clients_and_the_base_use_hardly_anything_else() -> None:
    for path in [*sources(f"{PACKAGE}/clients"), *(ROOT / PACKAGE / f"{name}.py" for name in BASE)]:
        in_clients = path.parent.name == "clients"
        allowed = EVERYWHERE | {PACKAGE} | (OF_CLIENTS if in_clients else set())
        if in_clients and path.name == "connect.py":
            allowed |= {"requests"}
        assert {module.split(".")[0] for module in imported(path)} <= allowed, path


@pytest.mark.parametrize("folder", PROGRAMS)
def test_a_program_uses_the_layers_that_it_needs(folder: str) -> None:
    _, layers, others = PROGRAMS[folder]
    packages = {package for package, _, _ in PROGRAMS.values()}
    for path in sources(folder):
        modules = list(imported(path))
        assert {found for module in modules if (found := layer(module))} <= set(layers), path
        used = {module.split(".")[0] for module in modules} & packages
        assert used <= {PROGRAMS[folder][0], *others}, path


def test_only_the_command_knows_programs() -> None:
    packages = {package for package, _, _ in PROGRAMS.values()}
    for path in sources(PACKAGE):
        if path.relative_to(ROOT / PACKAGE).parts[0] != "cli":
            assert not {module.split(".")[0] for module in imported(path)} & packages, path


def test_what_needs_no_installation_uses_the_standard_library_only() -> None:
    waiting, seen = [ROOT / PACKAGE / "cli" / "front.py"], set[Path]()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        for module in imported(path):
            # Whatever of a program is asked for is looked through likewise.
            assert module.split(".")[0] in {*EVERYWHERE, PACKAGE, "consumers"}, f"{path}: {module}"
            place = ROOT.joinpath(*module.split("."))
            waiting += [found for found in (place.with_suffix(".py"), place / "__init__.py") if found.exists()]
    assert ROOT / PACKAGE / "model" / "outline.py" in seen


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


ONE_OF_EACH_PLATFORM = "EntryPoints"
CALLED_SO_BY_ANSIBLE = "ActionModule"
DOCUMENTS = "loosehanger/console/models.py"
"""The consoles' interface calls what it returns by the names that its readers know."""


def test_a_name_is_one_class() -> None:
    where: dict[str, list[str]] = {}
    for folder in ("loosehanger", "console", "consumers", "producer", "spark-jobs", "scripts"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and node.name[0] != "_" and str(path.relative_to(ROOT)) != DOCUMENTS:
                    where.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    several = {name: paths for name, paths in where.items() if len(paths) > 1}
    assert set(several) == {ONE_OF_EACH_PLATFORM, CALLED_SO_BY_ANSIBLE}, several
