"""Names and record formats of the internal topics of MirrorMaker 2 and Kafka Connect.

The formats are those of Kafka 4.3.1: ``OffsetSync``, ``Checkpoint`` and ``Heartbeat`` of
``org.apache.kafka.connect.mirror``, which are big-endian, and ``KafkaOffsetBackingStore``, ``KafkaStatusBackingStore``
and ``KafkaConfigBackingStore`` of ``org.apache.kafka.connect.storage``, which are JSON.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

OFFSET_SYNCS: Final = "mm2-offset-syncs"
"""How the name of every offset-syncs topic begins, before the first separator."""
CHECKPOINTS: Final = "checkpoints.internal"
"""How the name of every checkpoints topic ends, after the last separator."""
HEARTBEATS: Final = "heartbeats"
"""The heartbeats topic; a mirror copies it with a prefix, whatever its policy."""
VERSION: Final = 0
"""The only version of checkpoints and heartbeats. Offset syncs have none."""

OFFSET_SYNC, CHECKPOINT, HEARTBEAT = "offset-sync", "checkpoint", "heartbeat"
CONNECT_OFFSET, CONNECT_STATUS, CONNECT_CONFIG = "connect-offset", "connect-status", "connect-config"
_CONNECT = re.compile(r"mm2-(offsets|status|configs)\W.+internal|(?:.*[._-])?(offsets|status|statuses|configs?)")
_CONNECT_KINDS = {"o": CONNECT_OFFSET, "s": CONNECT_STATUS, "c": CONNECT_CONFIG}
_HEARTBEATS = re.compile(rf"(?:.*[^A-Za-z0-9])?{HEARTBEATS}")
_STATUS_KEY = re.compile(r"status-(?:connector-(?P<connector>.+)|task-(?P<of>.+)-(?P<task>\d+)|"
                         r"topic-(?P<topic>[^:]+):connector-(?P<reader>.+))")  # fmt: skip
_CONFIG_KEY = re.compile(
    r"(?P<record>session-key)|(?P<prefix>connector|tasks-fencing|commit|target-state|restart-connector|logger-cluster)"
    r"-(?P<name>.+)|task-(?P<of>.+)-(?P<task>\d+)"
)


class _NotDecodedError(ValueError):
    """Why a record has not the format of its topic."""


@dataclass(frozen=True)
class Decoded:
    """A record of an internal topic."""

    kind: str
    """``offset-sync``, ``checkpoint``, ``heartbeat``, ``connect-offset``, ``connect-status`` or ``connect-config``."""
    subject: str = ""
    """What its key names, such as ``LH.ORDERS/2``."""
    text: str = ""
    """What it says, in a sentence."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """The same as JSON's types."""
    error: str = ""
    """Why it could not be decoded; empty if it could."""
    certain: bool = True
    """Whether only MM2 names a topic so. Applications may call theirs heartbeats or status as well."""

    @property
    def document(self) -> dict[str, Any]:
        """It for programs: ``kind`` and the fields, or ``kind`` and ``error``."""
        return {"kind": self.kind, **({"error": self.error} if self.error else self.fields)}


def kind_of(topic: str) -> str:
    """The kind of record that a topic of this name has; empty for a topic of applications.

    Connect's three topics may have any names. Recognised are those that end in offsets, status or configs, as in
    Kafka's and Strimzi's examples, and those of MM2's dedicated mode.
    """
    if topic.startswith(OFFSET_SYNCS) and topic.endswith("internal"):
        return OFFSET_SYNC
    if topic.endswith(CHECKPOINTS):
        return CHECKPOINT
    if _HEARTBEATS.fullmatch(topic):
        return HEARTBEAT
    found = _CONNECT.fullmatch(topic)
    return _CONNECT_KINDS[(found[1] or found[2])[0]] if found else ""


def decode(topic: str, key: bytes | None, value: bytes | None, size: int = 0) -> Decoded | None:
    """Decodes a record of an internal topic.

    Args:
        topic: its name, which decides on the format.
        key: the key's bytes.
        value: the value's bytes, or their beginning.
        size: the size of the value in bytes, if it was cut.

    Returns:
        The record, with the reason where it does not have the format; None for a topic of applications.
    """
    kind = kind_of(topic)
    if not kind:
        return None
    certain = kind in (OFFSET_SYNC, CHECKPOINT) or topic.endswith("internal")
    try:
        subject, text, fields = _DECODERS[kind](_whole(key, value, size), value)
        json.dumps([[[fields]]], ensure_ascii=False).encode()  # Python reads more than it can write.
    except _NotDecodedError as error:
        return Decoded(kind, error=str(error), certain=certain)
    except (RecursionError, UnicodeEncodeError):
        return Decoded(kind, error="its JSON is nested too deep, or has half a character", certain=certain)
    return Decoded(kind, subject, text, fields, certain=certain)


def _whole(key: bytes | None, value: bytes | None, size: int) -> bytes:
    """The key of a record that was read in full."""
    if value is not None and size > len(value):
        raise _NotDecodedError(f"only {len(value):,} of its {size:,} bytes were read")
    if key is None:
        raise _NotDecodedError("it has no key")
    return key


class _Fields:
    """Reads Kafka's primitive types one after the other.

    Args:
        data: the bytes.
        part: key or value, for messages.
    """

    def __init__(self, data: bytes, part: str) -> None:
        self._data = data
        self._part = part
        self._at = 0

    def number(self, form: str, name: str) -> int:
        """An integer: ``h`` of 2, ``i`` of 4 or ``q`` of 8 bytes."""
        (found,) = struct.unpack(f">{form}", self._take(struct.calcsize(f">{form}"), name))
        return int(found)

    def text(self, name: str) -> str:
        """A string, after its length in two bytes."""
        length = self.number("h", f"the length of {name}")
        if length < 0:
            raise _NotDecodedError(f"the {self._part}'s {name} has a negative length, {length}")
        try:
            return self._take(length, name).decode()
        except UnicodeDecodeError as error:
            raise _NotDecodedError(f"the {self._part}'s {name} is not UTF-8") from error

    def version(self) -> None:
        """The version at the beginning, which must be known."""
        if (version := self.number("h", "version")) != VERSION:
            raise _NotDecodedError(f"version {version} is unknown; version {VERSION} is known")

    def end(self) -> None:
        """Checks that nothing is left."""
        if left := len(self._data) - self._at:
            raise _NotDecodedError(f"the {self._part} has {left} bytes after its last field")

    def _take(self, count: int, name: str) -> bytes:
        found = self._data[self._at : self._at + count]
        if len(found) < count:
            raise _NotDecodedError(f"the {self._part} ends after {len(self._data)} bytes, within {name}")
        self._at += count
        return found


_Found = tuple[str, str, dict[str, Any]]
_DELETED = "deleted: compaction removes earlier records of this key"


def _offset_sync(key: bytes, value: bytes | None) -> _Found:
    named = _Fields(key, "key")
    fields: dict[str, Any] = {"topic": named.text("topic"), "partition": named.number("i", "partition")}
    named.end()
    subject = f"{fields['topic']}/{fields['partition']}"
    if value is None:
        return subject, _DELETED, fields | {"deleted": True}
    offsets = _Fields(value, "value")
    at = {name: offsets.number("q", f"{name} offset") for name in ("upstream", "downstream")}
    offsets.end()
    text = f"offset {at['upstream']} at the source is offset {at['downstream']} at the target"
    return subject, text, fields | {f"{name}Offset": offset for name, offset in at.items()}


def _checkpoint(key: bytes, value: bytes | None) -> _Found:
    named = _Fields(key, "key")
    fields: dict[str, Any] = {"group": named.text("group"), "topic": named.text("topic")}
    fields["partition"] = named.number("i", "partition")
    named.end()
    subject = f"{fields['group']} {fields['topic']}/{fields['partition']}"
    if value is None:
        return subject, _DELETED, fields | {"deleted": True}
    offsets = _Fields(value, "value")
    offsets.version()
    at = {name: offsets.number("q", f"{name} offset") for name in ("upstream", "downstream")}
    metadata = offsets.text("metadata")
    offsets.end()
    text = f"group at offset {at['upstream']} at the source continues at offset {at['downstream']} at the target"
    fields |= {f"{name}Offset": offset for name, offset in at.items()} | {"metadata": metadata}
    return subject, text, fields


def _heartbeat(key: bytes, value: bytes | None) -> _Found:
    named = _Fields(key, "key")
    fields: dict[str, Any] = {name: named.text(name) for name in ("sourceClusterAlias", "targetClusterAlias")}
    named.end()
    subject = f"{fields['sourceClusterAlias']}->{fields['targetClusterAlias']}"
    if value is None:
        return subject, _DELETED, fields | {"deleted": True}
    beat = _Fields(value, "value")
    beat.version()
    at = beat.number("q", "timestamp")
    beat.end()
    text = f"{at} ms"
    with suppress(ValueError, OverflowError, OSError):
        text = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
    return subject, f"heartbeat at {text}", fields | {"timestamp": at}


def _connect_offset(key: bytes, value: bytes | None) -> _Found:
    named = _json(key, "key")
    if not (isinstance(named, list) and len(named) == 2 and isinstance(named[0], str) and isinstance(named[1], dict)):
        raise _NotDecodedError("the key is not a list of a connector and a source partition")
    connector, place = named
    fields: dict[str, Any] = {"connector": connector, "sourcePartition": place}
    if place.keys() == {"cluster", "topic", "partition"}:
        subject = f"{connector} {place['cluster']} {place['topic']}/{place['partition']}"
    else:
        subject = f"{connector} {_compact(place)}"
    if value is None:
        return subject, "deleted: the connector starts from the beginning", fields | {"deleted": True}
    offset = _json(value, "value")
    number = offset.get("offset") if isinstance(offset, dict) and len(offset) == 1 else None
    text = f"read up to offset {number}" if isinstance(number, int) else f"read up to {_compact(offset)}"
    return subject, text, fields | {"sourceOffset": offset}


def _connect_status(key: bytes, value: bytes | None) -> _Found:
    found = _STATUS_KEY.fullmatch(_utf8(key, "key"))
    if not found:
        raise _NotDecodedError("the key does not begin with status-connector-, status-task- or status-topic-")
    fields: dict[str, Any] = {"connector": found["connector"] or found["of"] or found["reader"]}
    subject = fields["connector"]
    if found["task"]:
        fields["task"] = int(found["task"])
        subject += f" task {found['task']}"
    if found["topic"]:
        fields["topic"] = found["topic"]
        subject += f" {found['topic']}"
    if value is None:
        return subject, "deleted: it does not exist any more", fields | {"deleted": True}
    status = _object(value)
    if found["topic"]:
        return subject, "the connector uses this topic", fields
    trace = status.get("trace")
    fields |= {"state": status.get("state"), "worker": status.get("worker_id"),
               "generation": status.get("generation"), "trace": trace}  # fmt: skip
    text = f"{fields['state']} on {fields['worker']}, generation {fields['generation']}"
    return subject, f"{text}: {trace.splitlines()[0]}" if isinstance(trace, str) and trace else text, fields


def _connect_config(key: bytes, value: bytes | None) -> _Found:
    found = _CONFIG_KEY.fullmatch(_utf8(key, "key"))
    if not found:
        raise _NotDecodedError("the key is not one of a connector, a task, a commit, a target state or a session key")
    record = found["record"] or found["prefix"] or "task"
    fields: dict[str, Any] = {"record": record}
    subject = record
    if name := found["name"] or found["of"]:
        fields["logger" if record == "logger-cluster" else "connector"] = name
        subject += f" {name}"
    if found["task"]:
        fields["task"] = int(found["task"])
        subject += f" task {found['task']}"
    if value is None:
        return subject, "deleted", fields | {"deleted": True}
    content = _object(value)
    if record == "session-key":
        # The key itself signs requests between workers, and is not repeated here.
        content = {name: one for name, one in content.items() if name != "key"}
    properties = content.get("properties")
    if isinstance(properties, dict):
        fields["properties"] = properties
        kind = str(properties.get("connector.class", "")).rpartition(".")[2]
        return subject, f"{len(properties)} settings{f', {kind}' if kind else ''}", fields
    return subject, ", ".join(f"{name} {_compact(one)}" for name, one in content.items()), fields | content


def _utf8(data: bytes, part: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _NotDecodedError(f"the {part} is not UTF-8") from error


def _json(data: bytes, part: str) -> Any:
    text = _utf8(data, part)
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except ValueError as error:
        raise _NotDecodedError(f"the {part} is not JSON") from error


def _finite(text: str) -> float:
    """A number that JSON can have: Python reads NaN and 1e400 as well."""
    if not math.isfinite(number := float(text)):
        raise ValueError(text)
    return number


def _object(value: bytes) -> dict[str, Any]:
    found = _json(value, "value")
    if not isinstance(found, dict):
        raise _NotDecodedError("the value is not a JSON object")
    return found


def _compact(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), sort_keys=True)


_DECODERS: dict[str, Callable[[bytes, bytes | None], _Found]] = {
    OFFSET_SYNC: _offset_sync,
    CHECKPOINT: _checkpoint,
    HEARTBEAT: _heartbeat,
    CONNECT_OFFSET: _connect_offset,
    CONNECT_STATUS: _connect_status,
    CONNECT_CONFIG: _connect_config,
}
