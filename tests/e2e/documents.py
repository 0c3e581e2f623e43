"""README.md and the labs, run from their own text: every command, its output, and every edit.

CONTRIBUTING.md describes the form of such a text. Sybil finds the blocks and makes a test of each of them. They share
one terminal: one that fails keeps those after it from running.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import pytest
from sybil import Document, Example, Region, Sybil
from sybil.parsers.markdown.lexers import FencedCodeBlockLexer

from loosehanger.learn.lab_text import BlockError, read_commands

from .console_block import asks_for_exit_code, first_difference
from .terminal import Terminal, TerminalError

BLOCK_SECONDS = 300.0
"""How long the commands of a block may take together, if the text does not say otherwise."""
_BOUND = re.compile(r"<!-- at most (\d+) s -->\n+\Z")
_LONGEST_SECONDS = 1500
SLOW = re.compile(r"\A(?:---\n(?:.+\n)+---\n\n)?# .*\n\n<!-- slow\b")
"""Follows the front matter and title of a document that is left out where time is short."""
_COMPLAINT = re.compile(r" (WARN|ERROR) ")
_COMPLAINTS = 20
"""Most lines of each mirror's log that a failure quotes: the lab is gone by the time it is read."""


def collector(documents: Collection[Path]) -> Callable[[Path, pytest.Collector], pytest.File | None]:
    """Returns the hook that pytest calls for each file: documents have tests.

    A fixture ``terminal`` of the scope of a module runs their commands.
    """
    names = sorted({path.name for path in documents})
    collect = Sybil(parsers=[_blocks], patterns=names, path="/", fixtures=["terminal"]).pytest()

    def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.File | None:
        if file_path not in documents:
            return None
        file: pytest.File = collect(file_path, parent)
        file.add_marker(pytest.mark.e2e)
        if SLOW.match(file_path.read_text(encoding="utf-8")):
            file.add_marker(pytest.mark.slow)
        file.add_marker(pytest.mark.timeout(_LONGEST_SECONDS))  # every block has a bound of its own
        return file

    return pytest_collect_file


def _blocks(document: Document) -> Iterable[Region]:
    for language, run in (("console", _run), ("diff", _apply)):
        for region in FencedCodeBlockLexer(language)(document):
            region.parsed, region.evaluator = region.lexemes["source"], _after_the_others(run)
            yield region


def _after_the_others(run: Callable[[Example, Terminal], str | None]) -> Callable[[Example], str | None]:
    def evaluate(example: Example) -> str | None:
        if "failed" in example.namespace:
            pytest.skip(f"the block at line {example.namespace['failed']} failed")
        example.namespace["failed"] = example.line
        said = run(example, example.namespace["terminal"])
        if said is None:
            del example.namespace["failed"]
            return None
        return said + complaints(example.namespace["terminal"].folder)

    return evaluate


def _run(example: Example, terminal: Terminal) -> str | None:
    try:
        commands = read_commands(example.parsed, example.line + 1)
    except BlockError as error:
        return f"{Path(example.path).name}: {error}"
    bound = _BOUND.search(example.document.text[: example.start])
    deadline = time.monotonic() + (float(bound[1]) if bound else BLOCK_SECONDS)
    for command, following in zip(commands, [*commands[1:], None], strict=True):
        where = f"{example.path}:{command.line}: {command.text}"
        try:
            code, said = terminal.run(command.text, max(deadline - time.monotonic(), 1))
        except TerminalError as error:
            return f"{where}\n{error}"
        if code and not (following and asks_for_exit_code(following)):
            return f"{where}\nended with exit code {code}; it said:\n{said}"
        if command.output and (difference := first_difference(command.output, said)):
            return f"{where}\n{difference}\nit said:\n{said}"
    return None


def _apply(example: Example, terminal: Terminal) -> str | None:
    refusal = edit(terminal.folder, example.parsed)
    return f"{example.path}:{example.line}: the edit cannot be made\n{refusal}" if refusal else None


def complaints(folder: Path) -> str:
    """Returns the last warnings and errors in the logs of a lab's mirrors."""
    quoted = ""
    for log in sorted(folder.glob(".lab/regions/*/logs/mm2-*.log")):
        lines = [line for line in log.read_text(errors="replace").splitlines() if _COMPLAINT.search(line)]
        quoted += "".join(f"\n{log.stem}: {line[:300]}" for line in lines[-_COMPLAINTS:])
    return quoted


def edit(folder: Path, difference: str) -> str | None:
    """Applies an edit, a unified diff; returns why it cannot be applied, if so."""
    # Beyond its folder there may be another repository, which would make git pass over these paths in silence.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    command = ["git", "apply", "--recount", "--verbose"]
    done = subprocess.run(
        command, cwd=folder, env=environment, input=difference, capture_output=True, text=True, check=False
    )
    return done.stderr if done.returncode or "Skipped patch" in done.stderr else None
