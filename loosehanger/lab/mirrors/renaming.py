"""The names that copies have at the target, where neither of MM2's own policies describes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Renaming:
    """A rule from a topic's name at the source to the name of its copy. The first part that applies decides."""

    pairs: Mapping[str, str] = field(default_factory=dict)
    """Names of copies by names at the source."""
    pattern: str = ""
    """A regular expression of whole names at the source; other names stay as they are."""
    replacement: str = ""
    """The name of the copy where the pattern matches: ``\\1`` or ``\\g<name>`` stand for its groups."""
    prefix: str = ""
    suffix: str = ""

    @property
    def changes_every_name(self) -> bool:
        """Whether no copy has the name of its source, so that both may be in one cluster."""
        return bool(self.prefix or self.suffix) and not self.pairs

    def target(self, topic: str) -> str:
        """Returns the name of a topic's copy."""
        if topic in self.pairs:
            return self.pairs[topic]
        if self.pattern:
            found = re.fullmatch(self.pattern, topic)
            return found.expand(self.replacement) if found else topic
        return f"{self.prefix}{topic}{self.suffix}"

    def source(self, topic: str) -> str | None:
        """Returns the source's name of a copy; None if it is not the name of a copy, or cannot be traced back."""
        for name, copy in self.pairs.items():
            if copy == topic:
                return name
        if self.pattern:
            return None
        fits = topic.startswith(self.prefix) and topic.endswith(self.suffix)
        name = topic[len(self.prefix) : len(topic) - len(self.suffix)] if fits else ""
        return name if name and name not in self.pairs else None
