"""The mapping of names in a configuration: from what the user writes to a mirror's policy, and back as a suggestion."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, model_validator

from loosehanger.lab.manifests.validation import FieldError
from loosehanger.lab.mirrors.renaming import Renaming
from loosehanger.mirrorproof.entries import CheckedEntry

_GROUP = re.compile(r"\$(?:(\d+)|\{([A-Za-z_]\w*)\})")
"""A group in Java's notation, which many know from Connect's RegexRouter."""
_SEPARATORS = ".-_"
_MOST_TRIED = 200
"""Topics without a copy from which a suggestion is made."""


@dataclass(frozen=True)
class Policy:
    """How copies get their names: the fields of ``Mirror``."""

    policy: str
    separator: str = "."
    alias: str = ""
    """The source's alias; empty for the source's name."""
    renaming: Renaming | None = None


class NamesEntry(CheckedEntry):
    """How the copies of topics are named. Pairs take precedence over everything else."""

    policy: Annotated[
        Literal["identity", "default"] | None,
        Field(description="MM2's policies: the same name, or the source's alias and a separator before it"),
    ] = None
    alias: Annotated[
        str | None, Field(description="the source's alias, for policy default; by default its name here")
    ] = None
    separator: Annotated[
        str | None, Field(description="between alias and name, for policy default; by default '.'")
    ] = None
    prefix: Annotated[str, Field(description="a text before each name")] = ""
    suffix: Annotated[str, Field(description="a text after each name")] = ""
    pairs: dict[str, str] = Field(
        default_factory=dict, description="names of copies by the names of topics at the source"
    )
    pattern: Annotated[str, Field(description="a regular expression of whole names; needs replacement")] = ""
    replacement: Annotated[str, Field(description="the name of the copy, with the groups $1 or ${name}")] = ""

    @model_validator(mode="after")
    def _consistent(self) -> NamesEntry:
        ways = [
            name
            for name, given in (
                ("policy", self.policy),
                ("prefix or suffix", self.prefix or self.suffix),
                ("pattern", self.pattern or self.replacement),
            )
            if given
        ]
        if len(ways) > 1:
            raise ValueError(f"{' and '.join(ways)} exclude each other; give one of them")
        if self.policy != "default" and (self.alias is not None or self.separator is not None):
            raise ValueError("alias and separator need 'policy: default'")
        if bool(self.pattern) != bool(self.replacement):
            raise ValueError("pattern and replacement go together")
        if self.pattern:
            _check_pattern(self.pattern, java_groups(self.replacement))
        copies = Counter(self.pairs.values())
        if twice := [name for name, count in copies.items() if count > 1]:
            raise FieldError([(("pairs",), f"two topics have the copy '{twice[0]}'; each needs a copy of its own")])
        return self

    def as_policy(self, source: str) -> Policy:
        """Returns the fields of a mirror.

        Args:
            source: the name of the source, the alias where none is given.
        """
        alias, separator = self.alias or source, "." if self.separator is None else self.separator
        prefix = f"{alias}{separator}" if self.policy == "default" else self.prefix
        if self.policy == "default" and not self.pairs:
            return Policy("default", separator, alias)
        if not (self.pairs or self.pattern or prefix or self.suffix):
            return Policy("identity")
        return Policy(
            "renamed",
            renaming=Renaming(self.pairs, self.pattern, java_groups(self.replacement), prefix, self.suffix),
        )


def java_groups(replacement: str) -> str:
    """Rewrites Java's ``$1`` and ``${name}`` as Python's groups."""
    return _GROUP.sub(lambda found: f"\\g<{found[1] or found[2]}>", replacement)


def _check_pattern(pattern: str, replacement: str) -> None:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise FieldError([(("pattern",), f"'{pattern}' is not a regular expression: {error}")]) from error
    try:
        # Expands against an empty match of an alternative, which has every group of the pattern.
        re.compile(f"(?:{pattern})|").sub(replacement, "")
    except (re.error, IndexError) as error:
        text = f"has a group that the pattern does not have ({error}); it has {compiled.groups}"
        raise FieldError([(("replacement",), text)]) from error


@dataclass(frozen=True)
class Suggestion:
    """A mapping that would give topics their copies."""

    names: Mapping[str, str]
    """What to write as ``names``."""
    topics: int
    """The number of topics that it gives a copy."""

    def as_yaml(self) -> str:
        """What to write, in one line."""
        return "names: {" + ", ".join(f"{key}: '{value}'" for key, value in self.names.items()) + "}"


def suggest(absent: Collection[str], there: Collection[str]) -> Suggestion | None:
    """Suggests a mapping from the names at the target.

    Args:
        absent: topics of the source without a copy.
        there: the topics at the target that are not copies of others.

    Returns:
        The mapping that gives most of them a copy; None where no name has another one in it.
    """
    tried = sorted(absent)[:_MOST_TRIED]
    found: Counter[tuple[str, str]] = Counter()
    for topic in tried:
        for name in there:
            if topic in name:
                prefix, _, suffix = name.partition(topic)
                found[prefix, suffix] += 1
    if not found:
        return None
    (prefix, suffix), _ = min(found.items(), key=lambda item: (-item[1], len(item[0][0]) + len(item[0][1]), item[0]))
    names = set(there)
    covered = sum(1 for topic in absent if f"{prefix}{topic}{suffix}" in names)
    return Suggestion(_names(prefix, suffix), covered)


def _names(prefix: str, suffix: str) -> dict[str, str]:
    if not prefix and not suffix:
        return {"policy": "identity"}
    if not suffix and len(prefix) > 1 and prefix[-1] in _SEPARATORS:
        alias, separator = prefix[:-1], prefix[-1]
        return {"policy": "default", "alias": alias} | ({"separator": separator} if separator != "." else {})
    return {key: value for key, value in (("prefix", prefix), ("suffix", suffix)) if value}
