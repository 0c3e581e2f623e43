"""The text of a lab: its sections, and the commands of its console blocks."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from loosehanger.errors import LabError
from loosehanger.lab.manifests.documents import read_file
from loosehanger.lab.scenario_index import PLAYBOOKS
from loosehanger.learn.exercise import without_front_matter

SECTION = re.compile(r"^## (?:Exercise )?(\d+)[.:] .*\n(?:(?!## ).*\n?)*", re.MULTILINE)
"""A numbered section, which is an exercise: its number, and all of it."""
_ANY_SECTION = re.compile(r"^## (?:(?:Exercise )?(\d+)[.:] )?(.+)\n((?:(?!## ).*\n?)*)", re.MULTILINE)
_TITLE = re.compile(r"^# .+\n", re.MULTILINE)
_NOTE = re.compile(r"^<!--.*-->\n", re.MULTILINE)
"""Notes for the tests."""
_FENCE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OF_TERMINALS = re.compile(r"\./lab +(setup|stage|cleanup|exercise|open|learn)\b|^setup-|^exit\b")
"""Commands that may restart or end a console, or that act on a terminal."""
_FUNCTION = re.compile(r"^\w+\(\) \{")


class BlockError(LabError):
    """A block has the wrong form."""


@dataclass
class BlockCommand:
    """A command of a console block."""

    line: int
    """Where it stands in its document."""
    text: str
    output: list[tuple[int, str]]
    """The lines of its expected output, each with its line in the document. Empty: any output."""

    @property
    def digest(self) -> str:
        """Identifies the command by its text."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @property
    def for_terminals(self) -> bool:
        """Whether it needs a terminal, because a console may not survive it."""
        return bool(_OF_TERMINALS.search(self.text))


def read_commands(source: str, first_line: int) -> list[BlockCommand]:
    """Reads a block: ``$ command``, continued by ``> ``, then its output.

    Args:
        source: what is between the fences.
        first_line: the document's line where that begins.

    Raises:
        BlockError: it does not begin with a command.
    """
    commands: list[BlockCommand] = []
    for number, line in enumerate(source.splitlines(), first_line):
        if line.startswith("$ "):
            commands.append(BlockCommand(number, line[2:], []))
        elif not commands:
            raise BlockError(f"line {number}: a console block begins with '$ ' and a command")
        elif line.startswith("> ") and not commands[-1].output:
            commands[-1].text += f"\n{line[2:]}"
        elif line.strip():
            commands[-1].output.append((number, line))
    if not commands:
        raise BlockError(f"line {first_line}: there is no command in this console block")
    return commands


@dataclass(frozen=True)
class Section:
    """A section of a lab's text."""

    number: int
    """The number of its exercise; 0 for a section without one."""
    title: str
    markdown: str
    """Without its heading."""

    @property
    def commands(self) -> list[BlockCommand]:
        """The commands of its console blocks."""
        return [command for block in _FENCE.findall(self.markdown) for command in read_commands(block, 1)]


def shell_functions(sections: Iterable[Section]) -> list[str]:
    """The definitions of shell functions in a text: later sections use those of earlier ones."""
    return [command.text for section in sections for command in section.commands if _FUNCTION.match(command.text)]


def read_sections(lab: str, playbooks: Path = PLAYBOOKS) -> list[Section]:
    """Reads the sections of a lab's text in their order; the first is the introduction.

    Raises:
        WrongUseError: the text cannot be read.
    """
    text = _NOTE.sub("", without_front_matter(read_file(playbooks / lab / "README.md")))
    introduction = _TITLE.sub("", text.partition("\n## ")[0], count=1).strip()
    found = [
        Section(int(number or 0), title.strip(), body.strip()) for number, title, body in _ANY_SECTION.findall(text)
    ]
    return [Section(0, "Introduction", introduction), *found]
