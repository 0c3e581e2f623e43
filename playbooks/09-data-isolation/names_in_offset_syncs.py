"""Lists the names of topics and consumer groups in the mirror's internal topics in North America.

Run it from the root of the kit while the scenario is set up; README.md says how.
"""

from __future__ import annotations

import argparse
import sys
import time

from kafka import KafkaConsumer, TopicPartition

from loosehanger.errors import ExitCode, LabError, run_command
from loosehanger.kafka.connection import connection_for
from loosehanger.kafka.patches import prepare
from loosehanger.lab.record import load_lab
from loosehanger.waiting import wait_for

REGION, USER = "north-america", "prover"
INTERNAL_TOPICS = {"mm2-offset-syncs.europe.internal": ("topic",), "europe.checkpoints.internal": ("group", "topic")}
"""The mirror's internal topics, and what the keys of their records name, before the number of a partition."""
BOUND_S = 60.0


def main() -> int:
    """Reads them to their ends, and lists each name once.

    Raises:
        LabError: the name that ``--until`` waits for does not appear.
    """
    parser = argparse.ArgumentParser(
        prog="names_in_offset_syncs", description="Lists the names in the mirror's internal topics."
    )
    parser.add_argument("--until", default="", metavar="NAME", help="wait until this one is among them")
    wanted = parser.parse_args().until
    prepare(lambda line: print(line, file=sys.stderr))
    settings = connection_for(load_lab().region(REGION), USER).kafka_python()
    consumer = KafkaConsumer(
        **settings,
        group_id=None,
        enable_auto_commit=False,
        isolation_level="read_committed",
        allow_auto_create_topics=False,
        metadata_max_age_ms=1000,
    )
    named: dict[str, set[tuple[str, str]]] = {}

    def missing() -> str | None:
        named.update({topic: _named(consumer, topic, kinds) for topic, kinds in INTERNAL_TOPICS.items()})
        names = {name for pairs in named.values() for _, name in pairs}
        return f"{wanted} is in none of the mirror's internal topics" if wanted and wanted not in names else None

    wait_for(missing, BOUND_S, REGION)
    for topic, pairs in named.items():
        print(f"{topic}: {', '.join(' '.join(pair) for pair in sorted(pairs)) or 'nothing'}")
    consumer.close(autocommit=False)
    return ExitCode.DONE


def _named(consumer: KafkaConsumer, topic: str, kinds: tuple[str, ...]) -> set[tuple[str, str]]:
    """Returns kind and name of what the keys of a topic name; nothing where the topic is missing."""
    if topic not in consumer.topics():
        return set()
    places = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
    consumer.assign(places)
    consumer.seek_to_beginning()
    ends = consumer.end_offsets(places)
    return {
        pair
        for place in places
        for key in _keys(consumer, place, ends[place])
        for pair in zip(kinds, _names(key), strict=False)
    }


def _keys(consumer: KafkaConsumer, place: TopicPartition, end: int) -> list[bytes]:
    keys = []
    deadline = time.monotonic() + BOUND_S
    while consumer.position(place) < end:
        if time.monotonic() >= deadline:
            raise LabError(f"{place.topic} was not read to its end within {BOUND_S:.0f} s; see ./lab status")
        for records in consumer.poll(timeout_ms=200).values():
            keys += [record.key for record in records if record.key]
    return keys


def _names(key: bytes) -> list[str]:
    """Returns a key's texts, each after two bytes with its length; the last four bytes are a partition's number."""
    names = []
    while len(key) > 4:
        length = int.from_bytes(key[:2], "big")
        names.append(key[2 : 2 + length].decode())
        key = key[2 + length :]
    return names


if __name__ == "__main__":
    sys.exit(run_command(main))
