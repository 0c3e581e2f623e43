"""Renders a record as one line for people or one JSON document for programs.

Only printable characters reach the terminal, whatever a record holds: an escape sequence in a value could rewrite what
the reader sees.
"""

from __future__ import annotations

import base64
import codecs
import json
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO

from loosehanger.internal_topics import decode

if TYPE_CHECKING:
    # A web console that only shows records need not load the client.
    from kafka.consumer.fetcher import ConsumerRecord

LONGEST = 1000
"""Most characters of a readable value; a longer one is cut and marked."""

NO_TIME = "0000-00-00 00:00:00.000"
_LINE = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}| *-?\d+) "
    r"(?P<partition>[\w.-]+/\d+) +@(?P<offset>\d+) +\[(?P<key>.*?)\] (?P<text>.*)"
)
_DIM, _BOLD, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"
_TOPIC_COLOURS = {
    "ORDERS": "\x1b[32m",
    "CANCELLATIONS": "\x1b[31m",
    "DOORS": "\x1b[34m",
    "STOCK": "\x1b[33m",
    "CUSTOMERS": "\x1b[35m",
    "SENSORS": "\x1b[36m",
}


@dataclass(frozen=True)
class Line:
    """A record in columns, for people."""

    time: str
    partition: str
    """Topic and partition, ``LH.ORDERS/0``."""
    offset: str
    key: str
    text: str

    @classmethod
    def of(cls, record: ConsumerRecord, *, with_headers: bool = False, decoded: bool = False) -> Line:
        """Returns the line of any record, with its time in the local zone.

        Args:
            record: the record.
            with_headers: whether its headers follow its value.
            decoded: whether records of internal topics are decoded.
        """
        headers = _headers(record.headers) if with_headers else ""
        key, text = described_internal(record) if decoded else ("", "")
        return cls(
            time=_time(record.timestamp),
            partition=f"{record.topic}/{record.partition}",
            offset=str(record.offset),
            key=key or _readable_bytes(record.key, record.serialized_key_size),
            text=(text or describe(record.topic, record.value, record.serialized_value_size)) + headers,
        )

    @classmethod
    def parse(cls, text: str) -> Line | None:
        """Parses a plain line; ``None`` if it is something else."""
        match = _LINE.fullmatch(text)
        return cls(**match.groupdict()) if match else None

    def plain(self) -> str:
        """Returns the line without colours."""
        return f"{self.time} {self.partition:<18} @{self.offset:<6} [{self.key}] {self.text}"

    def coloured(self) -> str:
        """Returns the same characters, with colours."""
        topic = self.partition.rpartition("/")[0].rpartition(".")[2]
        colour = _TOPIC_COLOURS.get(topic, _BOLD)
        return (
            f"{_DIM}{self.time}{_PLAIN} {colour}{self.partition:<18}{_PLAIN} "
            f"{_DIM}@{self.offset:<6} [{self.key}]{_PLAIN} {self.text}"
        )


def colours_wanted(stream: TextIO) -> bool:
    """Whether to colour the output: on a terminal, unless NO_COLOR is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def safe(text: str) -> str:
    """Returns the text with unprintable characters escaped: control characters, escape sequences, bidi controls."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def describe(topic: str, value: bytes | None, size: int = 0) -> str:
    """Describes an event in words, and any other value as safely as possible.

    Args:
        topic: the topic, whose name ends in the kind of event.
        value: the value, or its beginning.
        size: the size of the value in bytes, if it was cut.
    """
    if value is None:
        return "(no value)"
    describing = _DESCRIPTIONS.get(topic.rpartition(".")[2])
    if describing is not None and size <= len(value):
        with suppress(Exception):  # A value may hold anything, and must not stop the reader.
            return _cut(safe(describing(json.loads(value))))
    return _readable_bytes(value, size)


def described_internal(record: ConsumerRecord, *, only_certain: bool = False) -> tuple[str, str]:
    """Describes the key and the value of a record of an internal topic in words.

    Args:
        record: the record.
        only_certain: whether a record that cannot be decoded is described only where its topic's name is MM2's own.

    Returns:
        Empty texts for a record of another topic, and an empty key for one that cannot be decoded.
    """
    found = decode(record.topic, record.key, record.value, record.serialized_value_size)
    if found is None or (found.error and only_certain and not found.certain):
        return "", ""
    if found.error:
        value = _as_hex(record.value, record.serialized_value_size)
        return "", _cut(safe(f"no valid {found.kind}: {found.error}; value: {value}"))
    return _cut(safe(found.subject)), _cut(safe(f"{found.kind}: {found.text}"))


def readable(data: bytes, size: int = 0) -> str | None:
    """Returns the data as text, without a character that was cut in two; None if it is not UTF-8."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data, final=size <= len(data))
    except UnicodeDecodeError:
        return None


def _time(timestamp: int) -> str:
    """Formats milliseconds since the epoch as a local time, or as a number if it has no date; the width is the same."""
    if timestamp == -1:
        return NO_TIME  # Kafka's value for no time.
    if timestamp >= 0:
        with suppress(ValueError, OverflowError, OSError):
            return f"{datetime.fromtimestamp(timestamp // 1000):%Y-%m-%d %H:%M:%S}.{timestamp % 1000:03d}"
    return f"{timestamp:>{len(NO_TIME)}}"


def _headers(headers: Iterable[tuple[str, bytes | None]]) -> str:
    """Returns a record's headers behind its value: ``  {source: test, lh-seq: 5}``."""
    found = [f"{_cut(safe(name))}: {_readable_bytes(value)}" for name, value in headers]
    return f"  {{{', '.join(found)}}}" if found else ""


def _readable_bytes(data: bytes | None, size: int = 0) -> str:
    if data is None:
        return ""
    size = max(size, len(data))
    # UTF-8 has at most four bytes for a character.
    part = data[: 4 * (LONGEST + 1)]
    text = readable(part, size)
    if text is None:
        return _cut(f"{size} bytes 0x{part.hex()}", size)
    return _cut(safe(text), size)


def _as_hex(data: bytes | None, size: int) -> str:
    """Returns the first bytes in hexadecimal; text would hide what is wrong with them."""
    if data is None:
        return "none"
    return f"{max(size, len(data))} bytes 0x{data[: LONGEST // 4].hex()}{'…' if len(data) > LONGEST // 4 else ''}"


def _cut(text: str, size: int = 0) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}… ({size} bytes)" if size else f"{text[:LONGEST]}… ({len(text)} characters)"


def _order(event: dict[str, Any]) -> str:
    return (
        f"order {event['quantity']} × {event['description']} at {event['price']:.2f}"
        f" by {event['customer']} ({event['region']})"
    )


def _cancellation(event: dict[str, Any]) -> str:
    return f"cancelled: order {event['orderid']}, {event['reason']}"


def _door(event: dict[str, Any]) -> str:
    return f"badge of {event['employee']} at door {event['door']}, {_clock(event['badgetime'])}"


def _stock(event: dict[str, Any]) -> str:
    return f"stock {event['quantity']} × {event['product']} into {event['warehouse']}"


def _customer(event: dict[str, Any]) -> str:
    return f"new customer {event['customername']}"


def _sensor(event: dict[str, Any]) -> str:
    clock = event["sensortime"].split()[3]
    return f"sensor {event['sensorid']}: {event['temperature']:.1f} °C, {event['humidity']} % humidity, {clock} UTC"


def _clock(timestamp: str) -> str:
    return f"{timestamp[11:19]} UTC"


_DESCRIPTIONS: dict[str, Callable[[dict[str, Any]], str]] = {
    "ORDERS": _order,
    "CANCELLATIONS": _cancellation,
    "DOORS": _door,
    "STOCK": _stock,
    "CUSTOMERS": _customer,
    "SENSORS": _sensor,
}


def to_json(record: ConsumerRecord, *, decoded: bool = False) -> str:
    """Returns the record as one line of JSON, in ASCII.

    ``value`` is the parsed value if it is JSON; binary data becomes ``{"base64": …}``.

    Args:
        record: the record, with all bytes of its value.
        decoded: whether ``decoded`` has the content of a record of an internal topic, or why it could not be decoded;
            null for other topics.
    """
    document = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text_or_base64(record.key),
        "value": None,
        "headers": [[name, _text_or_base64(value)] for name, value in record.headers],
    }
    if decoded:
        found = decode(record.topic, record.key, record.value)
        document["decoded"] = found.document if found else None
    if record.value is not None:
        try:
            # Python parses NaN and 1e400, which JSON does not have, and deeper nesting than it can write.
            return _one_line({**document, "value": json.loads(record.value.decode())})
        except (ValueError, RecursionError):
            document["value"] = _base64(record.value)
    return _one_line(document)


def _one_line(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def _text_or_base64(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _base64(data)


def _base64(data: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(data).decode()}
