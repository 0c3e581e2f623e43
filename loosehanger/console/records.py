"""A record as the console shows it: decoded as far as possible, and always as text."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from loosehanger.console.models import Header, Message
from loosehanger.events.render import describe, described_internal, safe
from loosehanger.headers import TIME

if TYPE_CHECKING:
    from kafka.consumer.fetcher import ConsumerRecord

MOST_CHARACTERS = 4000
MOST_VALUE_BYTES = 16 * 1024
"""Bytes that are kept of a key and of a value: more than are shown, so that a truncated one is marked."""
MOST_HEADER_BYTES = 8 * 1024
MOST_RAW_BYTES = 1024
MOST_HEADERS = 50


class Arrived:
    """A record that was read a moment ago. Expensive properties are computed at most once, and on demand.

    Args:
        region: where it was read.
        record: kafka-python's record, truncated to the bounds above.
        at_ms: when, in milliseconds since the epoch.
    """

    def __init__(self, region: str, record: ConsumerRecord, at_ms: int) -> None:
        self.region = region
        self.record = record
        self.at_ms = at_ms

    @property
    def size(self) -> int:
        """Bytes of key, value and headers, before truncation."""
        record = self.record
        sizes = (record.serialized_key_size, record.serialized_value_size, record.serialized_header_size)
        return sum(size for size in sizes if size > 0)

    @cached_property
    def held(self) -> int:
        """Bytes of them that are kept."""
        record = self.record
        headers = sum(len(name) + len(value or b"") for name, value in record.headers)
        return len(record.key or b"") + len(record.value or b"") + headers

    @property
    def latency_ms(self) -> int | None:
        """From its production, by the producer's header if it has one, to here."""
        for name, value in self.record.headers:
            if name == TIME and value and len(value) <= 16 and value.isdigit():
                return self.at_ms - int(value)
        return self.at_ms - self.record.timestamp if self.record.timestamp >= 0 else None

    @property
    def key(self) -> str:
        """The key, as text."""
        return shown_text(self.record.key)

    @cached_property
    def words(self) -> bytes:
        """The text that a search for words compares, in small letters and in UTF-8, which takes less memory."""
        return folded(f"{self.key}\n{shown_text(self.record.value)}")

    @cached_property
    def header_lines(self) -> list[bytes]:
        """Each header as ``name: value``, in the form that a search compares."""
        return [folded(f"{safe(name)}: {shown_text(value)}") for name, value in self.record.headers[:MOST_HEADERS]]

    @cached_property
    def json(self) -> str:
        """The message for the API and the pages."""
        return self.message.model_dump_json()

    @property
    def message(self) -> Message:
        """The message."""
        record = self.record
        internal_key, internal = described_internal(record, only_certain=True)
        return Message(
            region=self.region,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp=record.timestamp,
            arrived=self.at_ms,
            latency_ms=self.latency_ms,
            key=_cut(internal_key or self.key, record.serialized_key_size),
            summary=internal or describe(record.topic, record.value, record.serialized_value_size),
            value=_cut(shown_text(record.value), record.serialized_value_size),
            headers=[
                Header(name=_cut(safe(name), len(name)), value=_cut(shown_text(value), len(value or b"")))
                for name, value in record.headers[:MOST_HEADERS]
            ],
            bytes=self.size,
            raw=(record.value or b"")[:MOST_RAW_BYTES].hex(" ", 1),
        )


def folded(text: str) -> bytes:
    """Text in the form that a search compares."""
    return text.casefold().encode("utf-8", "replace")


def shown_text(data: bytes | None) -> str:
    """The data as text: invalid bytes are replaced, and control characters are shown by their names."""
    if data is None:
        return ""
    return "\n".join(safe(line) for line in data.decode("utf-8", "replace").split("\n"))


def _cut(text: str, size: int) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}… ({size} bytes)"
