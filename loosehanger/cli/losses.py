"""How far every mirror is behind, and what its source may delete before it is copied: for ``./lab status``."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from loosehanger.clients.connect import Rest
from loosehanger.clients.loss import Danger, LossWatch, by_topic
from loosehanger.clients.positions import Looker, mirror_positions
from loosehanger.errors import LabError
from loosehanger.model.mirror import Mirror
from loosehanger.model.record import PROVER, Lab
from loosehanger.model.topic_rules import selected_topics


@dataclass(frozen=True)
class Standing:
    """One source of one mirror."""

    mirror: Mirror
    topics: dict[str, Danger] = field(default_factory=dict)
    problem: str = ""
    """Why nothing is known of it."""

    @property
    def told(self) -> Iterator[str]:
        """What somebody has to know."""
        for danger in self.topics.values():
            yield from danger.told()

    @property
    def losing(self) -> bool:
        """Whether it may lose records, or does: what it lost before it caught up is the past, and told all the same."""
        return any(danger.endangered or (danger.gone and danger.behind) for danger in self.topics.values())


def standings(lab: Lab) -> list[Standing]:
    """How every mirror stands that has workers, and whose both ends live."""
    alive = [
        mirror for mirror in lab.mirrors if mirror.connect and {mirror.source, mirror.target} <= lab.clusters.keys()
    ]
    with ThreadPoolExecutor(max_workers=max(len(alive), 1)) as threads:
        return list(threads.map(lambda mirror: _standing(lab, mirror), alive))


def _standing(lab: Lab, mirror: Mirror) -> Standing:
    from kafka import TopicPartition  # what it needs takes a while to load

    connection = lab.region(mirror.source).connection(PROVER)
    source = LossWatch(connection)
    try:
        with Looker(mirror.source, connection) as looker:
            there = looker.topics()
        wanted = [
            TopicPartition(topic, number) for topic in selected_topics(mirror, there) for number in range(there[topic])
        ]
        rest = Rest.of(mirror.connect, rebalance_s=0)
        found = []
        # The second look tells how quick the mirror is.
        for _ in range(2):
            positions = mirror_positions(rest, mirror.connector, mirror.source_alias)
            found = source.look({place: positions.get(place) for place in wanted})
            if not any(one.behind for one in found):
                break
        return Standing(mirror, by_topic(found))
    except (LabError, OSError) as error:
        return Standing(mirror, problem=str(error))
    except KeyError as error:
        # Kafka leaves out what was deleted in the meantime.
        return Standing(mirror, problem=f"{error.args[0]} is not there any more")
    finally:
        source.close()
