"""Salvages the records that only a dead cluster has: lists, exports and, on request, writes them to the target.

Before its machines are wiped, the dead cluster is started once more: no producer writes to it, and no mirror reads it.
The records after the source offset of the held mirror are those that the mirror never copied.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loosehanger.errors import LabError
from loosehanger.files import write_file
from loosehanger.kafka.clients import HURRIED, connect_producer
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.connection import Connection, connection_for
from loosehanger.lab.kit_users import ADMINISTRATOR
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import target_topic
from loosehanger.lab.record import Lab
from loosehanger.lab.snapshots import MirrorSnapshot, SalvageSnapshot, snapshot_id
from loosehanger.ledger import number_of
from loosehanger.stages.fence import fence_ends
from loosehanger.stages.offsets import beyond

HEADER = "lh-rescued"
"""Header of a copy: the source region, partition and offset of the record. Two copies with one value are duplicates."""
_ANSWER_S = 30

Identity = tuple[str, int, str, int]
"""Topic, partition, run and number."""


def rescue(lab: Lab, home: Path, mirror: Mirror, fence: MirrorSnapshot, *, write: bool) -> SalvageSnapshot:
    """Lists and exports the records that only the source of a held mirror has.

    Args:
        lab: what is set up.
        home: the lab's home; the file goes into its folder ``rescued``.
        mirror: which.
        fence: the offsets when it was held.
        write: whether to write copies to the target. A copy is the record with one more header, and is not written
            twice. Copies come after the records written since, so the order within a key changes.

    Raises:
        LabError: a cluster or Connect does not answer.
    """
    connection = connection_for(lab.region(mirror.target), ADMINISTRATOR)
    copied, sent_again = _there(connection, mirror, fence)
    found = [
        _described(record)
        for record in beyond(lab, mirror)
        if _identity(target_topic(mirror, record.topic), record) not in sent_again
    ]
    # After a later disaster, the file of an earlier one may be the only copy of its records.
    held = datetime.fromtimestamp(fence.held_ms / 1000, UTC)
    path = home / "rescued" / f"{mirror.source}-{held:%Y%m%dT%H%M%SZ}.jsonl"
    write_file(path, "".join(json.dumps(record) + "\n" for record in found))
    missing = [
        record for record in found if (target_topic(mirror, record["topic"]), _origin(mirror, record)) not in copied
    ]
    if write:
        _write(connection, mirror, missing)
        missing = []
    return SalvageSnapshot(
        snapshot_id(mirror), mirror.source, mirror.target, str(path), len(found), len(found) - len(missing)
    )


def _there(
    connection: Connection, mirror: Mirror, fence: MirrorSnapshot
) -> tuple[set[tuple[str, bytes]], set[Identity]]:
    """Reads what was written to the target since: the copies of earlier runs, and the identities of other events.

    A producer that got no acknowledgement from the dead cluster has sent the same event to the target.
    """
    copied, numbered = set(), set()
    with Cluster(mirror.target, connection, HURRIED) as target:
        starts = fence_ends(fence)
        for record in target.records(starts, target.ends({part.topic for part in starts})):
            if origin := dict(record.headers).get(HEADER):
                copied.add((record.topic, origin))
            elif identity := _identity(record.topic, record):
                numbered.add(identity)
    return copied, numbered


def _identity(topic: str, record: Any) -> Identity | None:
    """The identity of an event in a topic of the target; None if its producer did not number it."""
    number = number_of(record.headers)
    return (topic, record.partition, *number) if number else None


def _origin(mirror: Mirror, record: Mapping[str, Any]) -> bytes:
    return f"{mirror.source}/{record['partition']}/{record['offset']}".encode()


def _write(connection: Connection, mirror: Mirror, missing: Iterable[dict[str, Any]]) -> None:
    answers, producer = [], None
    try:
        producer = connect_producer(connection, delivery_timeout_ms=_ANSWER_S * 1000)
        for record in missing:
            headers = [(name, _bytes(value)) for name, value in record["headers"]]
            answers.append(
                producer.send(
                    target_topic(mirror, record["topic"]),
                    _bytes(record["value"]),
                    _bytes(record["key"]),
                    [*headers, (HEADER, _origin(mirror, record))],
                    record["partition"],
                    record["timestamp"],
                )
            )
        producer.flush(_ANSWER_S)
        for answer in answers:
            answer.get(_ANSWER_S)
    except Exception as error:  # kafka-python raises many kinds, all for the same reason
        raise LabError(
            f"{mirror.target}: rescued records could not be written: {error}; run the stage again"
        ) from error
    finally:
        if producer:
            producer.close(5)


def _described(record: Any) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def _text(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes as text, or as base64 where they are not UTF-8."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _bytes(said: str | dict[str, str] | None) -> bytes | None:
    if said is None:
        return None
    return said.encode() if isinstance(said, str) else base64.b64decode(said["base64"])
