"""Checks a YAML document against a model, with errors that name file, line, resource and field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from loosehanger.errors import WrongUseError
from loosehanger.lab.manifests.documents import Document

Checked = TypeVar("Checked", bound=BaseModel)


_SCALARS = ("str", "bool", "int", "float")
"""The members of a setting's type, which pydantic puts into an error's path."""


class FieldError(ValueError):
    """Errors in a part of a document: for each the path of the field, relative to that part, and the message."""

    def __init__(self, problems: Sequence[tuple[tuple[str | int, ...], str]]) -> None:
        super().__init__("; ".join(text for _, text in problems))
        self.problems = problems


class Entry(BaseModel):
    """A part of ``scenario.yaml``; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def validated(model: type[Checked], document: Document, *, unknown: str = "unknown field") -> Checked:
    """Returns a document as an instance of a model.

    Args:
        model: the model.
        document: the document.
        unknown: the message for a field that the model does not have.

    Raises:
        WrongUseError: the document does not match the model; the message has every problem.
    """
    try:
        return model.model_validate(document.content)
    except ValidationError as error:
        problems = sorted({text for problem in error.errors() for text in _problems(document, problem, unknown)})
        raise WrongUseError("; ".join(problems)) from error


def _problems(document: Document, problem: Any, unknown: str) -> list[str]:
    path, error = problem["loc"], (problem.get("ctx") or {}).get("error")
    if isinstance(error, FieldError):
        return [f"{document.where(*path, *way)}: {text}" for way, text in error.problems]
    if path and path[-1] in _SCALARS and problem["type"].endswith(("_type", "_parsing")):
        return [f"{document.where(*path[:-1])}: expected a text, a number, or true or false"]
    return [_problem(document, problem, unknown)]


def _problem(document: Document, problem: Any, unknown: str) -> str:
    match problem["type"]:
        case "extra_forbidden":
            text = unknown
        case "missing":
            text = "is missing"
        case "literal_error":
            text = f"'{problem['input']}' is not possible here; expected {problem['ctx']['expected']}"
        case "value_error":
            text = str(problem["ctx"]["error"])
        case _:
            text = f"{problem['msg'][0].lower()}{problem['msg'][1:]}"
            if isinstance(problem["input"], str | int | float):
                text += f" (it is '{problem['input']}')"
    # Pydantic's path also has the names of union members, which are not part of the document and are left out.
    return f"{document.where(*problem['loc'])}: {text}"
