"""The words of the texts, those of tests included: some that a reader stumbles over are refused."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from loosehanger.paths import ROOT

REFUSED = {
    r"told|tells?": "a proof reports, a page shows, a message names",
    r"nobody|whoever|somebody": "name what acts: the client, the operator, an application",
    r"so\s+long": "say what is measured: 'how long …', 'seconds without …'; or 'while', 'until'",
    r"shall": "a requirement says 'must'; what is allowed 'may'",
    r"(?<!there )is none": "say 'is not a …'; 'there is none' is good English",
}
"""Words, and what to write in their place."""
EXCEPTIONS: dict[tuple[str, str], str] = {}
"""A file and the words around a refused one, and why it stays."""
WHOLE = {".md", ".j2", ".html", ".yaml", ".yml", ".sh", ".toml", ".properties"}
"""Documents, templates and settings, which are read as a whole; of Python only comments and strings are."""
JINJA = {".j2", ".html", ".yaml", ".yml"}
"""Where ``is none`` is a test of Jinja's."""
NAMES = {"lab", "Containerfile", ".dockerignore", ".ci/run"}
THIS = "tests/unit/test_words.py"
"""Has the words as its data."""
_WORDS = re.compile(
    rf"(?i:\b(?:{'|'.join(word for word in REFUSED if 'none' not in word)})\b)|(?<!there )\b[Ii]s none\b"
)


def refused(path: str, text: str) -> list[str]:
    """What is refused in a text: file, line, the word, and what to write in its place."""
    found = python_words(text) if path.endswith(".py") else list(words(text))
    if Path(path).suffix in JINJA:
        found = [(number, word) for number, word in found if not word.endswith("none")]
    lines = text.split("\n")
    excepted = [phrase for file, phrase in EXCEPTIONS if file == path]
    return [
        f"{path}:{number}: '{word}': {instead(word)}"
        for number, word in found
        if not any(phrase in lines[number - 1] and word in phrase for phrase in excepted)
    ]


def words(text: str, first_line: int = 1) -> Iterator[tuple[int, str]]:
    """The refused words of a text, each with its line."""
    for match in _WORDS.finditer(text):
        yield first_line + text.count("\n", 0, match.start()), " ".join(match[0].split())


def python_words(source: str) -> list[tuple[int, str]]:
    """The refused words of a program's comments, docstrings and messages; names of variables may be any."""
    found = {
        (token.start[0], word)
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
        for _, word in words(token.string)
    }
    lines = source.split("\n")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for word in {word for _, word in words(node.value)}:
                begin = word.split()[0]
                places = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                found.add((next((n for n in places if begin in lines[n - 1]), node.lineno), word))
    return sorted(found)


def instead(word: str) -> str:
    """What to write in place of a refused word."""
    return next(advice for pattern, advice in REFUSED.items() if re.fullmatch(pattern, word, re.IGNORECASE))


def with_texts() -> list[str]:
    """The files that hold texts."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [
        name
        for name in listed.split("\0")
        if (Path(name).suffix in {*WHOLE, ".py"} or name in NAMES) and name != THIS and (ROOT / name).is_file()
    ]


def test_no_text_has_a_refused_word() -> None:
    names = with_texts()
    assert {"README.md", "docs/kubernetes.md", "loosehanger/errors.py", ".ci/run", "tests/consoles.py"} <= set(names)
    problems = [line for name in names for line in refused(name, (ROOT / name).read_text(encoding="utf-8"))]
    assert not problems, "\n" + "\n".join(problems)


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("docs/x.md", "A page.\nIt tells more.\n", "docs/x.md:2: 'tells': a proof reports"),
        ("docs/x.md", "Nobody waits.\n", "docs/x.md:1: 'Nobody': name what acts"),
        ("docs/x.md", "He waits so\nlong.\n", "docs/x.md:1: 'so long': say what is measured"),
        ("docs/x.md", "It is none of them.\n", "docs/x.md:1: 'is none': say 'is not a …'"),
        ("roles/x/tasks/main.yml", "# What shall be.\n- a\n", "roles/x/tasks/main.yml:1: 'shall': a requirement"),
        ("x.py", "A = 1\n# Whoever asks.\n", "x.py:2: 'Whoever': name what acts"),
        ("x.py", '"""A page.\n\nIs told.\n"""\n', "x.py:3: 'told': a proof reports"),
        ("x.py", 'print(\n    f"{1} is told"\n)\n', "x.py:2: 'told': a proof reports"),
    ],
)
def test_a_refused_word_is_found_with_its_line(path: str, text: str, line: str) -> None:
    [problem] = refused(path, text)
    assert problem.startswith(line)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("docs/x.md", "It says what has a teller; marshalling; there is none.\n"),
        ("x.py", "told = None\nassert told is None\n"),
        ("x.py", 'print(f"{told}")\n'),
        ("x.html.j2", "{% if count is none %}–{% endif %}\n"),
    ],
)
def test_other_words_are_not_refused(path: str, text: str) -> None:
    assert refused(path, text) == []


def test_an_exception_is_for_one_file_and_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXCEPTIONS, ("a.md", "shall mean"), "a licence")
    assert refused("a.md", "It shall mean this.\n") == []
    assert len(refused("a.md", "It shall be.\n")) == 1
    assert len(refused("b.md", "It shall mean this.\n")) == 1


def test_every_exception_has_a_reason() -> None:
    assert all(reason for reason in EXCEPTIONS.values())
