"""Marked records, sent at intervals into every source, so that a stalled mirror shows even without producers.

The canary's topic is mirrored and audited like any other: the watch reports a canary that is late or missing in the
same way, also after a restart.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable
from typing import Any

from kafka.errors import KafkaError

from loosehanger.audit.topic_writer import BLOCK_MS, open_topic
from loosehanger.kafka.connection import connection_for
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import selected_topics, target_topic
from loosehanger.lab.record import ADMINISTRATOR, Lab
from loosehanger.proof.flows import Flow
from loosehanger.proof.report.record_times import iso

TOPIC = "LH.CANARY"
HEADER = "lab-canary"
_SETTINGS = {"cleanup.policy": "delete", "retention.ms": str(24 * 3600 * 1000)}


class Canary:
    """Sends the records.

    Args:
        lab: what is set up.
        every_s: seconds from one to the next.
    """

    def __init__(self, lab: Lab, every_s: float) -> None:
        self._lab = lab
        self._every_s = every_s
        self._due = 0.0
        self._sent = 0
        self._producers: dict[str, Any] = {}

    def open(self) -> None:
        """Creates the topic in every source.

        Raises:
            LabError: a cluster does not answer, or refuses.
        """
        for region in sources(self._lab.mirrors):
            if region in self._lab.clusters:
                connection = connection_for(self._lab.region(region), ADMINISTRATOR)
                self._producers[region] = open_topic(connection, TOPIC, _SETTINGS)

    def send(self) -> None:
        """Sends one record into every source, if the interval has passed."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + self._every_s
        self._sent += 1
        for region, producer in self._producers.items():
            value = {"canary": self._sent, "region": region, "at": iso(round(time.time() * 1000))}
            # The round that reads a source reports it when it does not answer.
            with contextlib.suppress(KafkaError):
                producer.send(
                    TOPIC, json.dumps(value).encode(), region.encode(), headers=[(HEADER, str(self._sent).encode())]
                )

    def close(self) -> None:
        """Waits briefly for records in flight, and closes the producers."""
        for producer in self._producers.values():
            producer.close(timeout=BLOCK_MS / 1000)


def sources(mirrors: Iterable[Mirror]) -> list[str]:
    """The regions that get canaries: not those where a canary would be a second writer of a mirror's copy."""
    taking = [mirror for mirror in mirrors if selected_topics(mirror, [TOPIC])]
    copied_into = {mirror.target for mirror in taking if target_topic(mirror, TOPIC) == TOPIC}
    return sorted({mirror.source for mirror in taking} - copied_into)


def standing(flow: Flow, numbers: dict[str, int], records: int) -> dict[str, Any]:
    """The state of a mirror's canaries, from the audit's numbers for their topic.

    Args:
        flow: of the canary's topic.
        numbers: the audit's counts for the flow.
        records: the number of canaries at the source.
    """
    lost = sum(numbers[kind] for kind in ("missing", "never_mirrored"))
    if lost:
        verdict = "missing"
    elif numbers["late"]:
        verdict = "late"
    else:
        verdict = "arriving" if records else "none yet"
    return {
        "source": flow.source,
        "target": flow.target,
        "topic": flow.target_topic,
        "sent": records,
        "late": numbers["late"],
        "missing": lost,
        "verdict": verdict,
    }
