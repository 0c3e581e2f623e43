"""The parts of a configuration file, whose unknown keys are refused with the nearest known one."""

from __future__ import annotations

from typing import Any

from pydantic import model_validator

from loosehanger.lab.manifests.validation import Entry, FieldError
from loosehanger.suggestions import instead


class CheckedEntry(Entry):
    """A part of a configuration file."""

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            # Never with the input: it may be a password.
            raise ValueError(f"expected keys and values: {', '.join(cls.model_fields)}")  # noqa: TRY004
        problems: list[tuple[tuple[str | int, ...], str]] = [
            ((str(key),), f"unknown key{instead(str(key), cls.model_fields, 'the keys are')}")
            for key in given
            if key not in cls.model_fields
        ]
        if problems:
            raise FieldError(problems)
        return given
