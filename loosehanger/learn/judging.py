"""Judges an exercise: its conditions are evaluated by Ansible's own templating, over documents of ``./lab``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loosehanger.errors import LabError
from loosehanger.learn.exercise import BEFORE, SLOW, ExerciseCondition, LabExercise, Mistake

Documents = dict[str, Any]
"""The JSON document of each name."""
Ask = Callable[[Sequence[str]], Documents]
"""Asks for the documents of these names, all at once."""
NOT_STARTED = "this exercise compares with its beginning, which is not recorded; ./lab learn start records it"


@dataclass(frozen=True)
class ConditionResult:
    """A condition, and whether it holds."""

    condition: ExerciseCondition
    holds: bool
    message: str = ""
    """Why not: a usual mistake that was made, or the condition's own message; empty if it was not judged yet."""
    kept: bool = False
    """Whether an earlier check has found it."""


class Templates:
    """Ansible's templating with a fixed set of variables.

    Args:
        documents: by name.
        variables: the lab's, which are templates themselves.
    """

    def __init__(self, documents: Mapping[str, Any], variables: Mapping[str, str]) -> None:
        from ansible.parsing.dataloader import DataLoader  # slow to import
        from ansible.template import Templar, trust_as_template

        trusted = {name: trust_as_template(text) for name, text in variables.items()}
        self._templar = Templar(loader=DataLoader(), variables={**trusted, **documents})

    def hold(self, expressions: Sequence[str]) -> bool:
        """Whether all expressions are true; one that names something that does not exist is not.

        Raises:
            LabError: an expression is malformed.
        """
        from ansible.errors import AnsibleError, AnsibleUndefinedVariable
        from ansible.template import trust_as_template

        try:
            return all(bool(self._templar.evaluate_conditional(trust_as_template(text))) for text in expressions)
        except AnsibleUndefinedVariable:
            return False
        except AnsibleError as error:
            raise LabError(f"a condition cannot be evaluated: {'; '.join(expressions)}: {error}") from error

    def text(self, template: str) -> str:
        """Fills a message in; a value that does not exist is shown as such."""
        from ansible.errors import AnsibleError
        from ansible.template import trust_as_template

        try:
            return " ".join(str(self._templar.template(trust_as_template(template))).split())
        except AnsibleError:
            return " ".join(template.split())


def judge(
    exercise: LabExercise,
    ask: Ask,
    *,
    usual: Sequence[Mistake] = (),
    before: Mapping[str, Any] | None = None,
    met: Collection[str] = (),
) -> tuple[list[ConditionResult], Documents]:
    """Judges every condition of an exercise in its order.

    Args:
        exercise: the exercise.
        ask: fetches documents.
        usual: mistakes of any lab.
        before: the documents at the start of the exercise; None if it was not started.
        met: the descriptions of conditions that an earlier check has found.

    Returns:
        A finding for each condition, and the documents that they were judged by.

    Raises:
        LabError: a document cannot be fetched, or a condition is malformed.
    """
    names = {name: command.split()[0] for name, command in exercise.content.documents.items()}
    documents = ask([name for name, command in names.items() if command not in SLOW])
    start = {} if before is None else {BEFORE: dict(before)}
    findings: list[ConditionResult] = []
    for condition in exercise.content.conditions:
        if condition.once and condition.description in met:
            findings.append(ConditionResult(condition, holds=True, kept=True))
            continue
        missing = [name for name in exercise.commands(condition.that) if name not in documents]
        if missing:
            if any(not finding.holds for finding in findings):
                findings.append(ConditionResult(condition, holds=False))
                continue
            documents |= ask(missing)
        templates = Templates({**documents, **start}, exercise.variables)
        if templates.hold(condition.that):
            findings.append(ConditionResult(condition, holds=True))
        elif before is None and exercise.uses(condition.that, [BEFORE]):
            findings.append(ConditionResult(condition, holds=False, message=NOT_STARTED))
        else:
            mistakes = _made(exercise, (*exercise.content.mistakes, *usual), templates, documents)
            findings.append(ConditionResult(condition, False, mistakes or templates.text(condition.failure_message)))
    return findings, documents


def _made(exercise: LabExercise, mistakes: Sequence[Mistake], templates: Templates, documents: Collection[str]) -> str:
    """The message of the first mistake that was made; empty for none."""
    for mistake in mistakes:
        if set(exercise.commands(mistake.that)) <= set(documents) and templates.hold(mistake.that):
            return templates.text(mistake.message)
    return ""


def begun(exercise: LabExercise, documents: Mapping[str, Any]) -> bool:
    """Whether the lab is at the beginning of an exercise."""
    return bool(exercise.content.begins_when) and Templates(documents, exercise.variables).hold(
        exercise.content.begins_when
    )
