"""Rescuing what a dead cluster has acknowledged and nobody else has: listed, exported, and written where work goes on.

Before its machines are wiped, the dead cluster is started once more: nobody writes to it, and no mirror reads it.
What lies beyond the position of the mirror that was held is what the mirror has never copied.
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
from loosehanger.kafka.clients import connect_producer
from loosehanger.kafka.connection import Connection, connection_for
from loosehanger.kafka.offsets import ClusterReader
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import target_topic
from loosehanger.lab.record import ADMINISTRATOR, Lab
from loosehanger.lab.snapshots import MirrorSnapshot, SalvageSnapshot, snapshot_id
from loosehanger.ledger import number_of
from loosehanger.stages.switching import beyond, fence_ends

HEADER = "lh-rescued"
"""Marks a copy: the region, the partition and the offset that the record had. Of two of one name, one is too many."""
_ANSWER_S = 30

Identity = tuple[str, int, str, int]
"""Topic, partition, run and number."""


def rescue(lab: Lab, home: Path, mirror: Mirror, fence: MirrorSnapshot, *, write: bool) -> SalvageSnapshot:
    """Lists and exports what the source of a held mirror has beyond it, and nobody else has.

    Args:
        lab: what is set up.
        home: the lab's home; the file goes into its folder ``rescued``.
        mirror: which.
        fence: where everything was when it was held.
        write: whether to write copies to the target. Each is a record as it was, with a header more; those that are
            there already are not written again. They come behind what was written since, so that the order within a
            key is not what it was.

    Raises:
        LabError: a cluster or Connect does not answer.
    """
    connection = connection_for(lab.region(mirror.target), ADMINISTRATOR)
    marks, sent_again = _there(connection, mirror, fence)
    found = [
        _described(record)
        for record in beyond(lab, mirror)
        if _identity(target_topic(mirror, record.topic), record) not in sent_again
    ]
    # Of a later disaster, the earlier one's file may be all that there is of its records.
    held = datetime.fromtimestamp(fence.held_ms / 1000, UTC)
    path = home / "rescued" / f"{mirror.source}-{held:%Y%m%dT%H%M%SZ}.jsonl"
    write_file(path, "".join(json.dumps(record) + "\n" for record in found))
    missing = [
        record for record in found if (target_topic(mirror, record["topic"]), _mark(mirror, record)) not in marks
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
    """What the target has got since: topics and marks of what earlier runs have written, and everything else that is
    numbered. A producer that had no answer from the dead cluster has sent the same event there as well.
    """
    marks, numbered = set(), set()
    with ClusterReader(mirror.target, connection) as target:
        starts = fence_ends(fence)
        for record in target.records(starts, target.ends({part.topic for part in starts})):
            if mark := dict(record.headers).get(HEADER):
                marks.add((record.topic, mark))
            elif identity := _identity(record.topic, record):
                numbered.add(identity)
    return marks, numbered


def _identity(topic: str, record: Any) -> Identity | None:
    """What an event is known by at the target, in this topic there; None if nobody has numbered it."""
    number = number_of(record.headers)
    return (topic, record.partition, *number) if number else None


def _mark(mirror: Mirror, record: Mapping[str, Any]) -> bytes:
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
                    [*headers, (HEADER, _mark(mirror, record))],
                    record["partition"],
                    record["timestamp"],
                )
            )
        producer.flush(_ANSWER_S)
        for answer in answers:
            answer.get(_ANSWER_S)
    except Exception as error:  # of many kinds, and all of them mean the same
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
    """Bytes as they can be read; what is no text, as base64."""
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
