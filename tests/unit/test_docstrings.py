"""A docstring names errors that exist: of the kit, of Python, or of a module that its file imports."""

import ast
import builtins
import re
from pathlib import Path

import pytest

from loosehanger import errors
from loosehanger.paths import ROOT

OF_LIBRARIES = {"KafkaError", "PySparkException"}
"""Errors that a called library raises, so that the module need not import them."""
FOLDERS = ("loosehanger", "producer", "consumers", "scripts", "spark-jobs")


def unknown_errors(source: str) -> set[str]:
    """Returns the errors in ``Raises:`` sections that a module cannot know."""
    tree = ast.parse(source)
    known = {*vars(errors), *vars(builtins), *OF_LIBRARIES}
    documented = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                known |= {alias.asname or alias.name for alias in names}
            case ast.Attribute(attr=name) | ast.ClassDef(name=name):
                known.add(name)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            raises = (ast.get_docstring(node) or "").partition("Raises:")[2]
            documented |= set(re.findall(r"^    ([\w.]*(?:Error|Exception)):", raises, re.MULTILINE))
    return documented - known


def sources() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def test_every_documented_error_exists() -> None:
    unknown = {str(path.relative_to(ROOT)): unknown_errors(path.read_text(encoding="utf-8")) for path in sources()}
    assert not {path: names for path, names in unknown.items() if names}


@pytest.mark.parametrize(("name", "unknown"), [("ManifestError", {"ManifestError"}), ("LabError", set[str]())])
def test_an_unknown_error_is_found(name: str, unknown: set[str]) -> None:
    assert (
        unknown_errors(f'def f() -> None:\n    """Does it.\n\n    Raises:\n        {name}: it fails.\n    """\n')
        == unknown
    )
