"""How a record looks: one line for people, one JSON document for programs.

Whatever a record holds, only printable characters reach the terminal: a value may come from anybody, and an escape
sequence in it could rewrite what the reader sees.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

if TYPE_CHECKING:
    # Whoever only shows what somebody else has read, such as a web console that waits, need not load the client.
    from kafka.consumer.fetcher import ConsumerRecord

LONGEST = 1000
"""Characters of a readable value; what is longer is cut, and says so."""

_LINE = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) "
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
    """A record as people read it, in columns."""

    time: str
    partition: str
    """Topic and partition, ``LH.ORDERS/0``."""
    offset: str
    key: str
    text: str

    @classmethod
    def of(cls, record: ConsumerRecord) -> Line:
        """The line of a record; its time is shown in the local zone."""
        moment = datetime.fromtimestamp(record.timestamp / 1000).astimezone() if record.timestamp >= 0 else None
        return cls(
            time=f"{moment:%Y-%m-%d %H:%M:%S}.{record.timestamp % 1000:03d}" if moment else "0000-00-00 00:00:00.000",
            partition=f"{record.topic}/{record.partition}",
            offset=str(record.offset),
            key=_readable_bytes(record.key),
            text=describe(record.topic, record.value),
        )

    @classmethod
    def parse(cls, text: str) -> Line | None:
        """Reads a plain line back; ``None`` if it is something else."""
        match = _LINE.fullmatch(text)
        return cls(**match.groupdict()) if match else None

    def plain(self) -> str:
        """The line without colours."""
        return f"{self.time} {self.partition:<18} @{self.offset:<6} [{self.key}] {self.text}"

    def coloured(self) -> str:
        """The same characters, with colours."""
        topic = self.partition.rpartition("/")[0].rpartition(".")[2]
        colour = _TOPIC_COLOURS.get(topic, _BOLD)
        return (
            f"{_DIM}{self.time}{_PLAIN} {colour}{self.partition:<18}{_PLAIN} "
            f"{_DIM}@{self.offset:<6} [{self.key}]{_PLAIN} {self.text}"
        )


def colours_wanted(stream: TextIO) -> bool:
    """Whether to colour what goes to this stream: on a terminal, unless NO_COLOR is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def safe(text: str) -> str:
    """The text with everything unprintable escaped: control characters, escape sequences, reversed writing."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def describe(topic: str, value: bytes | None) -> str:
    """An event in a reader's words, and anything else as safely as it can be shown."""
    if value is None:
        return "(no value)"
    try:
        event = json.loads(value)
        text = _DESCRIPTIONS[topic.rpartition(".")[2]](event)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return _readable_bytes(value)
    return _cut(safe(text))


def _readable_bytes(data: bytes | None) -> str:
    if data is None:
        return ""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _cut(f"{len(data)} bytes 0x{data[:LONGEST].hex()}")
    return _cut(safe(text))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)"


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


def to_json(record: ConsumerRecord) -> str:
    """The record as one line of JSON, in ASCII.

    ``value`` is the parsed value if that is JSON; what is not text stands as ``{"base64": …}``.
    """
    document = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text_or_base64(record.key),
        "value": _parsed_or_base64(record.value),
        "headers": [[name, _text_or_base64(value)] for name, value in record.headers],
    }
    return json.dumps(document, separators=(",", ":"))


def _text_or_base64(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _parsed_or_base64(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return json.loads(data.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return {"base64": base64.b64encode(data).decode()}


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
