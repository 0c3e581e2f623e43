"""The exercises of a lab: ``playbooks/NN-name/exercises/MM-slug/exercise.yaml``, and the front matter of its README."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, RootModel, StringConstraints, model_validator

from loosehanger.errors import WrongUseError
from loosehanger.lab.manifests.documents import Document, read_documents, read_file
from loosehanger.lab.manifests.validation import Entry, validated
from loosehanger.lab.scenario_index import PLAYBOOKS, scenario_file, scenario_names
from loosehanger.suggestions import instead

FOLDER, FILE, VARIABLES = "exercises", "exercise.yaml", "vars.yaml"
MISTAKES = Path(__file__).parent / "mistakes.yaml"
"""Mistakes that can be made in any lab."""
READ_ONLY = ("status", "diff", "topic show", "link", "fault status", "prove")
"""The commands whose documents a condition may use: they change nothing, and print JSON."""
SLOW = ("prove",)
"""The slow ones of these commands: they run last, and only if all conditions before them hold."""
BEFORE = "before"
"""The variable with the documents as they were at the start of the exercise."""
_FRONT_MATTER = re.compile(r"\A---\n(.*?\n)---\n", re.DOTALL)
_EXERCISE = re.compile(r"(\d\d)-([a-z0-9-]+)")

Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


That = Annotated[tuple[Text, ...], BeforeValidator(_listed), Field(min_length=1)]
"""Jinja expressions, as in Ansible's ``that``: all must hold."""


class ExerciseCondition(Entry):
    """One thing that must be true when the exercise is done."""

    description: Text
    that: That
    failure_message: Text
    """What is missing and where to look; a Jinja template."""
    once: bool = False
    """Whether it stays met once a check has found it met: for a state on the way."""


class Mistake(Entry):
    """A common mistake: where it was made, its message replaces that of the condition which does not hold."""

    that: That
    message: Text
    """Names the mistake; a Jinja template."""


def _command(text: str) -> str:
    words = text.split()
    found = next((name for name in READ_ONLY if words[: len(name.split())] == name.split()), None)
    if found is None:
        raise ValueError(f"'{text}' is not one of the commands that only read: {', '.join(READ_ONLY)}")
    if options := [word for word in words if word.startswith("-")]:
        raise ValueError(f"'{text}': leave out {options[0]}; the command gets --json and nothing else")
    return text


class ExerciseFile(Entry):
    """The content of ``exercise.yaml``."""

    title: Text
    teaser: Text
    """What the learner will see, in one sentence."""
    documents: dict[str, Annotated[str, AfterValidator(_command)]]
    """The command of ``./lab`` behind each name that conditions use."""
    begins_when: Annotated[tuple[Text, ...], BeforeValidator(_listed)] = ()
    """Where these hold, the lab is at the beginning of the exercise, and ``setup.yaml`` need not run."""
    conditions: Annotated[tuple[ExerciseCondition, ...], Field(min_length=1)]
    mistakes: tuple[Mistake, ...] = ()
    hints: Annotated[tuple[Text, ...], Field(min_length=1)]
    watch: dict[Annotated[str, StringConstraints(pattern=r"^/[A-Za-z0-9._/?=&-]*$")], Text] = Field(
        default_factory=dict
    )
    """What can be watched in the control room, by the path of its page; by default what the documents suggest."""

    @model_validator(mode="after")
    def _names_are_free(self) -> ExerciseFile:
        if BEFORE in self.documents:
            raise ValueError(f"documents: '{BEFORE}' is the name of the documents at the start; choose another")
        return self


class FrontMatter(Entry):
    """The front matter of a lab's README, with Instruqt's keys."""

    slug: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+$")]
    title: Text
    teaser: Text
    type: Literal["challenge", "quiz"]
    difficulty: Literal["basic", "intermediate", "advanced", "expert"]
    timelimit: Annotated[int, Field(gt=0)]
    """In seconds."""


class LabExercise:
    """One exercise of a lab.

    Args:
        lab: the name of its scenario.
        folder: ``playbooks/NN-name/exercises/MM-slug``.
        content: its ``exercise.yaml``.
        variables: the lab's names for what its conditions look at, as in a playbook: Jinja templates by name.
    """

    def __init__(self, lab: str, folder: Path, content: ExerciseFile, variables: Mapping[str, str]) -> None:
        self.lab, self.folder, self.content, self.variables = lab, folder, content, variables
        number, self.slug = folder.name.split("-", 1)
        self.number = int(number)
        """That of its section in the lab's README."""

    @property
    def id(self) -> str:
        """``LAB/2``: the lab, and the number of the exercise."""
        return f"{self.lab}/{self.number}"

    def commands(self, expressions: Sequence[str]) -> list[str]:
        """Returns the names of the documents that expressions use, directly or through a variable."""
        return self.uses(expressions, [*self.content.documents])

    def uses(self, expressions: Sequence[str], names: Sequence[str]) -> list[str]:
        """Returns which of the names expressions use, directly or through a variable."""
        used: list[str] = []
        left = list(expressions)
        while left:
            found = [name for name in _names_in(left, [*self.variables]) if name not in used]
            used += found
            left = [self.variables[name] for name in found]
        return _names_in([*expressions, *(self.variables[name] for name in used)], names)


def _names_in(expressions: Sequence[str], names: Sequence[str]) -> list[str]:
    """Returns which of the names occur in expressions as variables, in the order of the names."""
    return [name for name in names if any(re.search(rf"(?<![\w.'\"]){name}\b", text) for text in expressions)]


def lab_names(playbooks: Path = PLAYBOOKS) -> list[str]:
    """Returns the names of the scenarios that have exercises."""
    return [name for name in scenario_names(playbooks) if any((playbooks / name / FOLDER).glob(f"*/{FILE}"))]


def read_exercises(lab: str, playbooks: Path = PLAYBOOKS) -> list[LabExercise]:
    """Reads the exercises of a lab, in their order.

    Raises:
        WrongUseError: the lab does not exist or has none, or a file of it cannot be used.
    """
    scenario_file(lab, playbooks)
    folders = sorted(path.parent for path in (playbooks / lab / FOLDER).glob(f"*/{FILE}"))
    if not folders:
        raise WrongUseError(f"{lab} has no exercises to check; its text is playbooks/{lab}/README.md")
    for folder in folders:
        if not _EXERCISE.fullmatch(folder.name):
            raise WrongUseError(f"{folder}: is not named NN-slug, such as 02-change-a-topic; rename it")
    variables = _read_variables(playbooks / lab / FOLDER / VARIABLES)
    return [LabExercise(lab, folder, _read(folder / FILE), variables) for folder in folders]


def find_exercise(lab: str, name: str, playbooks: Path = PLAYBOOKS) -> LabExercise:
    """Returns an exercise of a lab by its number or its slug.

    Raises:
        WrongUseError: there is none.
    """
    found = read_exercises(lab, playbooks)
    for exercise in found:
        if name in (exercise.slug, exercise.folder.name, str(exercise.number), f"{exercise.number:02}"):
            return exercise
    names = [str(exercise.number) for exercise in found]
    raise WrongUseError(f"{lab} has no exercise '{name}'{instead(name, names, 'its exercises are')}")


def _read(path: Path) -> ExerciseFile:
    return validated(ExerciseFile, _only(path))


class _Variables(RootModel[dict[Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_]*$")], Text]]):
    """The content of ``vars.yaml``."""


def _read_variables(path: Path) -> dict[str, str]:
    return validated(_Variables, _only(path)).root if path.exists() else {}


def _only(path: Path) -> Document:
    documents = read_documents(str(path), read_file(path), "a mapping")
    if len(documents) != 1:
        raise WrongUseError(f"{path}:{documents[1].line}: expected one document")
    return documents[0]


class _Mistakes(Entry):
    mistakes: tuple[Mistake, ...]


def usual_mistakes() -> tuple[Mistake, ...]:
    """Reads the mistakes that can be made in any lab."""
    return validated(_Mistakes, _only(MISTAKES)).mistakes


def read_front_matter(readme: Path) -> FrontMatter:
    """Reads the front matter of a lab's README.

    Raises:
        WrongUseError: it has none, or one that cannot be used.
    """
    found = _FRONT_MATTER.match(read_file(readme))
    if not found:
        raise WrongUseError(f"{readme}: has no front matter (slug, title, teaser, type, difficulty, timelimit)")
    (document,) = read_documents(str(readme), found[1], "a mapping")
    return validated(FrontMatter, document)


def without_front_matter(text: str) -> str:
    """Returns a lab's text without its front matter."""
    return _FRONT_MATTER.sub("", text, count=1)
