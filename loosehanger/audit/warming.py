"""Warms up Java's compiler with made-up records, so that no real record has to wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from kafka import TopicPartition
from pyspark.sql import SparkSession

from loosehanger.audit.round_totals import tally
from loosehanger.proof.read.fetching import Fetched, frame_of
from loosehanger.proof.session import fit

_RECORDS = 4_000
_SECONDS = 12.0
"""The longest warm-up, in seconds; on a slow machine Java continues to speed up with real records."""
_GAINS = 0.9
"""A pass that takes more than this share of the fastest one has gained little."""
_VALUE = (
    b'{"description": "Straight Jeans", "region": "EMEA", "price": 49.95, "quantity": 2, "warehouse": "London", '
    b'"product": "Straight Jeans", "temperature": 20.5, "humidity": 40.5}'
)


def warm_up(spark: SparkSession, events: Mapping[str, str], name: str, ended: threading.Event) -> None:
    """Lets Spark sum up made-up records until a pass is no longer faster than the ones before.

    Args:
        spark: the session, which takes files.
        events: the kind of event of each topic whose events count, as it will be with real records.
        name: of the file in which the records are handed over.
        ended: set once the watch is about to stop.
    """
    topics = [*events, ""]
    records = {
        TopicPartition(topic, 0): [
            Fetched(0, offset, 1_700_000_000_000 + offset, b"%d" % offset, _VALUE, (("source", b"made up"),))
            for offset in range(_RECORDS // len(topics))
        ]
        for topic in topics
    }
    fit(spark, _RECORDS, again=True)
    deadline, quickest, gained = time.monotonic() + _SECONDS, float("inf"), True
    while gained and not ended.is_set() and time.monotonic() < deadline:
        began = time.monotonic()
        tally(frame_of(spark, records, name).coalesce(1), events).collect()
        took = time.monotonic() - began
        gained, quickest = took < _GAINS * quickest, min(took, quickest)
