"""No function and no class grows until it has to be searched: what does several things is split by what they are."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from loosehanger.paths import ROOT

_LIMITS: dict[type[ast.stmt], int] = {ast.FunctionDef: 60, ast.AsyncFunctionDef: 60, ast.ClassDef: 350}
"""Lines after the first one."""
_EXCEPTIONS: dict[str, str] = {}
"""``path: name`` of what is longer, and the reason."""


def too_long(source: str) -> Iterator[str]:
    """The names of functions and classes above their limit."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            assert node.end_lineno
            if node.end_lineno - node.lineno > _LIMITS[type(node)]:
                yield node.name


def test_nothing_is_too_long() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for folder in ("loosehanger", "producer", "consumers", "spark-jobs", "scripts")
        for path in (ROOT / folder).rglob("*.py")
        for name in too_long(path.read_text(encoding="utf-8"))
    }
    assert found == set(_EXCEPTIONS)


@pytest.mark.parametrize(("lines", "expected"), [(60, []), (61, ["made"])])
def test_the_limit_is_seen(lines: int, expected: list[str]) -> None:
    assert list(too_long("def made():\n" + "    pass\n" * lines)) == expected
