"""A record's key or value in full: as text, as a tree where it is JSON, and in hexadecimal."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from markupsafe import Markup, escape

from loosehanger.console.models import RecordPart
from loosehanger.console.records import shown_text

Form = Literal["tree", "text", "hex"]
MOST_CHARACTERS = 64 * 1024
"""Of the text on a page; a download has all of it."""
MOST_NODES = 2000
"""Of a tree on a page."""
MOST_DEPTH = 30
OPEN_DEPTH = 2
"""Levels of a tree that are open at first."""
MOST_HEX_BYTES = 4096
_ROW = 8
"""Bytes of a row, which then fits on a phone."""


class _Number(str):
    """A number as it is written: none of its digits is rounded."""

    __slots__ = ()


class _Pairs(list[tuple[str, Any]]):
    """An object's members as they are written: in their order, and twice where a name is there twice."""


@dataclass(frozen=True)
class Part:
    """A key or a value.

    Args:
        data: its bytes; None for a null.
    """

    data: bytes | None

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self.data or b"")

    @cached_property
    def valid_text(self) -> str | None:
        """The text, if it is valid UTF-8."""
        try:
            return None if self.data is None else self.data.decode()
        except UnicodeDecodeError:
            return None

    @cached_property
    def parsed(self) -> Any:
        """The members of a JSON object or array; None for anything else."""
        text = self.valid_text
        if text is None or text.lstrip()[:1] not in ("{", "["):
            return None
        try:
            return json.loads(
                text, object_pairs_hook=_Pairs, parse_int=_Number, parse_float=_Number, parse_constant=_Number
            )
        except (ValueError, RecursionError):
            return None

    @property
    def forms(self) -> list[Form]:
        """The forms that it has; the first is the best one to read."""
        if not self.data:
            return []
        if self.valid_text is None:
            return ["hex", "text"]
        return ["text", "hex"] if self.parsed is None else ["tree", "text", "hex"]

    @property
    def text(self) -> str:
        """The text that is safe to show, cut where it is very long."""
        text = shown_text((self.data or b"")[: 4 * MOST_CHARACTERS])
        return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"

    @property
    def tree(self) -> Markup:
        """The JSON as nested lists that fold."""
        return _Tree().lines(self.parsed)

    @property
    def hex(self) -> str:
        """Its first bytes, in rows with their offsets and their ASCII characters."""
        data = (self.data or b"")[:MOST_HEX_BYTES]
        rows = []
        for start in range(0, len(data), _ROW):
            row = data[start : start + _ROW]
            letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
            rows.append(f"{start:06x}  {row.hex(' '):<{3 * _ROW - 1}}  {letters}")
        return "\n".join(rows)

    @property
    def cut(self) -> bool:
        """Whether a page does not show all of it in every form."""
        return self.size > MOST_HEX_BYTES

    @property
    def document(self) -> RecordPart:
        """It for the API."""
        encoded = None if self.data is None or self.valid_text is not None else base64.b64encode(self.data).decode()
        return RecordPart(text=self.valid_text, base64=encoded, bytes=self.size, null=self.data is None)


class _Tree:
    """Renders one tree, and counts its nodes."""

    def __init__(self) -> None:
        self._nodes = 0

    def lines(self, value: Any, depth: int = 0) -> Markup:
        """The members of an object or an array, as a list."""
        entries = value if isinstance(value, _Pairs) else enumerate(value)
        items = []
        for name, inner in entries:
            if self._nodes >= MOST_NODES:
                items.append(Markup("<li>…</li>"))
                break
            self._nodes += 1
            items.append(self._item(str(name), inner, depth))
        return Markup('<ul class="tree">{}</ul>').format(Markup().join(items))

    def _item(self, name: str, value: Any, depth: int) -> Markup:
        label = Markup('<span class="name">{}</span>').format(_visible(name))
        if not isinstance(value, list):
            return Markup("<li>{}: {}</li>").format(label, _leaf(value))
        brackets = "{}" if isinstance(value, _Pairs) else "[]"
        if not value:
            return Markup("<li>{}: {}</li>").format(label, brackets)
        count = f"{brackets[0]}{len(value):,}{brackets[1]}"
        if depth + 1 >= MOST_DEPTH:
            return Markup("<li>{}: {} …</li>").format(label, count)
        opened = Markup(" open") if depth + 1 < OPEN_DEPTH else ""
        return Markup('<li><details{}><summary>{} <span class="muted">{}</span></summary>{}</details></li>').format(
            opened, label, count, self.lines(value, depth + 1)
        )


def _leaf(value: Any) -> Markup:
    if isinstance(value, _Number):
        return Markup('<span class="literal">{}</span>').format(value)
    if isinstance(value, str):
        return Markup('<span class="string">"{}"</span>').format(_visible(value))
    return Markup('<span class="literal">{}</span>').format(json.dumps(value))


def _visible(text: str) -> Markup:
    # JSON's escapes may name halves of characters, which no page can have.
    return escape(shown_text(text.encode("utf-8", "replace"))[:MOST_CHARACTERS])
