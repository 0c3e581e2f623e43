"""Controls of the search: undeclared damage, each of which one of its oracles must find."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from loosehanger.errors import LabError
from loosehanger.faults.fault import Fault
from loosehanger.kafka.clients import PATIENT, connect_consumer, connect_producer
from loosehanger.kafka.cluster import Cluster, partitions_of
from loosehanger.kafka.connection import connection_for
from loosehanger.lab.kit_users import ADMINISTRATOR
from loosehanger.lab.mirrors.replication import selected_topics, target_topic
from loosehanger.lab.record import Lab
from loosehanger.ledger import number_of
from loosehanger.waiting import wait_for
from scripts.sandbox import Kit
from scripts.search.accounts import Acknowledged
from scripts.search.effects import depth
from scripts.search.prediction import DISPROVED, INCONCLUSIVE, PROVED, accuses
from scripts.search.running import Sabotage
from scripts.search.schedules import Placed, Schedule, candidates

READ_S = 60.0
ORACLES = ("proof", "cause", "recovery", "records")
"""The oracles that have a control, in the order of the controls."""


class Control(NamedTuple):
    """A schedule with damage, and the oracle that must find it."""

    oracle: str
    schedule: Schedule
    sabotage: Sabotage


def controls(lab: Lab, faults: Mapping[str, Fault]) -> Iterator[Control]:
    """Yields a control for each oracle, of faults that the scenario can have.

    Raises:
        LabError: the catalogue has no fault that a control needs.
    """

    def pick(verdict: str, *, named: bool) -> Placed:
        for fault, mirror in candidates(lab, list(faults.values())):
            proof = fault.noticed.proof
            # No fault that takes away a broker or a worker: other commands would wait for it.
            fits = depth(fault) <= 1 and (accuses(fault) if named else not fault.noticed.status)
            if proof and proof.verdict == verdict and fits and not fault.heals_itself:
                return Placed(
                    fault=fault.name, region=mirror.region, mirror=mirror.name, source=mirror.source,
                    target=mirror.target,
                )  # fmt: skip
        also = " and that status names" if named else ""
        raise LabError(f"{lab.scenario} fits no fault whose proof is {verdict}{also}; choose another by --scenarios")

    schedule = Schedule(seed=0, number=0, scenario=lab.scenario, faults=(pick(PROVED, named=False),))
    yield Control("proof", schedule, Sabotage(hidden=pick(DISPROVED, named=False)))
    yield Control("cause", schedule, Sabotage(hidden=pick(INCONCLUSIVE, named=True)))
    yield Control("recovery", schedule, Sabotage(hidden=pick(INCONCLUSIVE, named=True), stays=True))
    # Last: what it leaves can only be cleaned up.
    yield Control("records", schedule, Sabotage(spoil=double))


def double(kit: Kit, wanted: Acknowledged) -> None:
    """Writes a record of a copy a second time.

    Args:
        kit: a kit whose lab is set up.
        wanted: the records that are counted; it is one of these.

    Raises:
        LabError: no copy has one.
    """
    counted = {(topic, *key): numbers for (_, topic, *key), numbers in wanted.items()}
    lab = kit.lab
    mirror = next(one for one in lab.mirrors if one.state == "running")
    with Cluster.of(lab.region(mirror.source), ADMINISTRATOR) as source:
        originals = {target_topic(mirror, topic): topic for topic in selected_topics(mirror, source.topics())}
    with Cluster.of(lab.region(mirror.target), ADMINISTRATOR) as target:
        there = target.topics()
    connection = connection_for(lab.region(mirror.target), ADMINISTRATOR)
    consumer = connect_consumer(connection, PATIENT)
    producer = connect_producer(connection)
    try:
        consumer.assign(partitions_of({topic: there[topic] for topic in originals if topic in there}))

        def doubled() -> str | None:
            for place, records in consumer.poll(timeout_ms=500).items():
                topic = originals[place.topic]
                for record in records:
                    run, number = number_of(record.headers) or ("", -1)
                    ranges = counted.get((topic, run, place.partition), ())
                    if any(first <= number <= last for first, last in ranges):
                        producer.send(
                            place.topic, record.value, key=record.key, partition=place.partition,
                            timestamp_ms=record.timestamp, headers=list(record.headers),
                        ).get(timeout=30)  # fmt: skip
                        return None
            return "no counted record read yet"

        wait_for(doubled, READ_S, f"a copy in {mirror.target}")
    finally:
        consumer.close()
        producer.close()
