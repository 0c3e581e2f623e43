"""The audit's verdicts as records of a topic, on which other systems can alert."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from kafka.errors import KafkaError

from loosehanger.audit.topic_writer import BLOCK_MS, open_topic
from loosehanger.kafka.connection import Connection
from loosehanger.proof.report.record_times import iso

TOPIC = "lab.audit"
_SETTINGS = {"cleanup.policy": "compact,delete", "retention.ms": str(7 * 24 * 3600 * 1000)}
"""The latest verdict on a bucket is kept, for a week."""
_TIMES = ("minute", "judged", "bucket")


class AuditTopic:
    """Writes verdicts, each at least once: unacknowledged ones are sent again, also by the next watch.

    Args:
        connection: of a user who may create the topic and write to it.
        topic: its name.
    """

    def __init__(self, connection: Connection, topic: str = TOPIC) -> None:
        self._connection = connection
        self._topic = topic
        self._waiting: dict[str, dict[str, Any]] = {}
        """Rows without an acknowledgement, by their keys."""
        self._sent: dict[str, dict[str, Any]] = {}
        self._producer: Any = None

    def open(self) -> None:
        """Creates the topic, if it does not exist.

        Raises:
            LabError: the cluster does not answer, or refuses.
        """
        self._producer = open_topic(self._connection, self._topic, _SETTINGS)

    def publish(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Sends these rows of the table, and those without an acknowledgement."""
        for row in rows:
            self._waiting[key_of(row)] = dict(row)
        for key, row in list(self._waiting.items()):
            if self._sent.get(key) is row:
                continue
            try:
                sent = self._producer.send(self._topic, value_of(row), key=key.encode())
            except KafkaError:
                return  # The next round tries again.
            self._sent[key] = row
            sent.add_callback(partial(self._acknowledged, key, row)).add_errback(partial(self._refused, key))

    def close(self) -> None:
        """Waits briefly for records in flight, and closes the producer."""
        if self._producer:
            self._producer.close(timeout=BLOCK_MS / 1000)

    def dump(self) -> list[dict[str, Any]]:
        """The rows without an acknowledgement, as JSON types."""
        return list(self._waiting.values())

    def load(self, stored: Iterable[Mapping[str, Any]]) -> None:
        """Restores what ``dump`` returned."""
        self._waiting = {key_of(row): dict(row) for row in stored}

    def _acknowledged(self, key: str, row: dict[str, Any], _: object) -> None:
        if self._waiting.get(key) is row:
            del self._waiting[key]
        self._sent.pop(key, None)

    def _refused(self, key: str, _: object) -> None:
        self._sent.pop(key, None)


def key_of(row: Mapping[str, Any]) -> str:
    """The unique key of a bucket."""
    return f"{row['target']}/{row['topic']}/{row['partition']}/{iso(row['bucket'])}"


def value_of(row: Mapping[str, Any]) -> bytes:
    """A verdict as JSON: times in ISO 8601."""
    return json.dumps({**row, **{name: iso(row[name]) for name in _TIMES}}, ensure_ascii=False).encode()
