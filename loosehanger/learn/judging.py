"""Judges an exercise: Ansible's own templating evaluates its conditions over documents of ``./lab``."""

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
    """Why not: the message of a common mistake, or the condition's own; empty if it was not judged yet."""
    kept: bool = False
    """Whether it holds because an earlier check found it met."""


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
        """Whether all expressions are true; one that refers to a value that does not exist is not.

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
        """Fills in a message; where a value does not exist, returns the template itself."""
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
        usual: mistakes that can be made in any lab.
        before: the documents at the start of the exercise; None if it was not started.
        met: the descriptions of conditions that an earlier check found met.

    Returns:
        A result for each condition, and the documents that they were judged by.

    Raises:
        LabError: a document cannot be fetched, or a condition is malformed.
    """
    asking = _Asking(exercise, ask, {} if before is None else {BEFORE: dict(before)})
    open_ = [one for one in exercise.content.conditions if not (one.once and one.description in met)]
    asking.need(exercise.commands([text for one in open_ for text in one.that]), slow=False)
    findings: list[ConditionResult] = []
    for condition in exercise.content.conditions:
        if condition not in open_:
            findings.append(ConditionResult(condition, holds=True, kept=True))
        elif not asking.need(exercise.commands(condition.that), slow=all(one.holds for one in findings)):
            # A proof would only repeat what the conditions before it have named.
            findings.append(ConditionResult(condition, holds=False))
        elif asking.templates.hold(condition.that):
            findings.append(ConditionResult(condition, holds=True))
        elif before is None and exercise.uses(condition.that, [BEFORE]):
            findings.append(ConditionResult(condition, holds=False, message=NOT_STARTED))
        else:
            asking.need([*exercise.content.documents], slow=False)
            mistake = asking.mistake((*exercise.content.mistakes, *usual))
            message = mistake or asking.templates.text(condition.failure_message)
            findings.append(ConditionResult(condition, holds=False, message=message))
    return findings, asking.documents


class _Asking:
    """The documents that were fetched so far, and the templates that use them.

    Args:
        exercise: the exercise.
        ask: fetches documents.
        start: the documents at the start of the exercise, if there are any.
    """

    def __init__(self, exercise: LabExercise, ask: Ask, start: Mapping[str, Any]) -> None:
        self._exercise, self._ask, self._start = exercise, ask, start
        self.documents: Documents = {}
        self.templates = Templates({}, {})

    def need(self, names: Sequence[str], *, slow: bool) -> bool:
        """Fetches the documents that are missing, slow ones only if ``slow``; returns whether all are there."""
        missing = [name for name in names if name not in self.documents]
        wanted = [name for name in missing if slow or self._exercise.content.documents[name] not in SLOW]
        if wanted:
            self.documents |= self._ask(wanted)
            self.templates = Templates({**self.documents, **self._start}, self._exercise.variables)
        return len(wanted) == len(missing)

    def mistake(self, mistakes: Sequence[Mistake]) -> str:
        """Returns the message of the first mistake that was made; empty for none."""
        for one in mistakes:
            if set(self._exercise.commands(one.that)) <= set(self.documents) and self.templates.hold(one.that):
                return self.templates.text(one.message)
        return ""


def begun(exercise: LabExercise, documents: Mapping[str, Any]) -> bool:
    """Whether the lab is at the beginning of an exercise."""
    return bool(exercise.content.begins_when) and Templates(documents, exercise.variables).hold(
        exercise.content.begins_when
    )
