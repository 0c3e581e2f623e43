"""Each mirror's lag, retention risk and stalls, for ``./lab status``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from loosehanger.acls import missing
from loosehanger.errors import LabError
from loosehanger.kafka.clients import HURRIED
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.connect import ConnectClient
from loosehanger.kafka.connection import connection_for
from loosehanger.kafka.offsets import mirror_positions
from loosehanger.kafka.retention_risk import RetentionReader, TopicRisk, by_topic
from loosehanger.kafka.stalled import FLUSH_S, SILENT_S, Stands, bound_s, cause, cut_off, drops, found_s, runs
from loosehanger.kafka.transactions import WARN_S as OPEN_S
from loosehanger.lab.kit_users import ADMINISTRATOR, PROVER
from loosehanger.lab.manifests.resources import as_text
from loosehanger.lab.mirrors.access import at_source, at_target, judged_topics, missing_rights, of_workers
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import selected_topics
from loosehanger.lab.record import Lab
from loosehanger.lab.scenario import MIRROR
from loosehanger.paths import lab_home

_AGAIN_S = 20.0
"""How long a measurement that fails is repeated."""
_PAUSE_S = 1.0
_ANSWER_S = 5.0
_POSITIONS_S = 10.0
"""How long Connect may take to answer with the mirror's positions."""
WAITS_S = 10.0
"""A record that waits this long makes the rights of a running mirror's users worth a look."""
_NAMED = 3
"""Most partitions that a message names."""
_LONGEST_S = SILENT_S + FLUSH_S
"""A mirror that writes its position less often than this is not judged: status must not take longer."""


@dataclass(frozen=True)
class MirrorRisk:
    """The state of a mirror at one source."""

    mirror: Mirror
    topics: dict[str, TopicRisk] = field(default_factory=dict)
    problem: str = ""
    """Why its lag, or that of some partitions, is unknown."""
    stalled: str = ""
    """The cause where it runs and delivers nothing; empty where it delivers, or has nothing to deliver."""

    @property
    def warnings(self) -> Iterator[str]:
        """Warnings for the user."""
        for danger in self.topics.values():
            yield from danger.warnings()
        if self.stalled:
            yield self.stalled
        if self.problem:
            yield f"lag not measured: {self.problem}"

    @property
    def state(self) -> str:
        """The state of a mirror that is not healthy; empty for a healthy one."""
        blocked = any(danger.held_by for danger in self.topics.values())
        return (
            "Stalled" if self.stalled
            else "Losing" if self.losing
            else "Blocked" if blocked
            else "Unknown" if self.problem
            else ""
        )  # fmt: skip

    @property
    def waiting(self) -> dict[str, float]:
        """The topics of which a record waits long to be copied, and when it was written, in epoch seconds."""
        now = time.time()
        waits = {name: one.age_s or 0.0 for name, one in self.topics.items() if one.behind}
        return {name: now - age for name, age in waits.items() if age >= WAITS_S}

    @property
    def losing(self) -> bool:
        """Whether it loses records or may soon. A past loss of a mirror that has caught up is only a warning."""
        return any(danger.endangered or (danger.gone and danger.behind) for danger in self.topics.values())


def standings(
    lab: Lab,
    resting: Callable[[], Collection[tuple[str, str]]] = tuple,
    silent: Collection[tuple[str, str, str]] = (),
) -> list[MirrorRisk]:
    """The state of every mirror that has workers and two living clusters.

    Args:
        lab: what is set up.
        resting: returns region and name of the mirrors that are paused or stopped as intended: their workers may be
            gone, and a failed measurement is not a problem. It is called after a failed measurement, and may wait.
        silent: region, kind and name of the clusters and mirrors that cannot answer: they are not asked.
    """
    alive = [
        mirror for mirror in lab.mirrors if mirror.connect and {mirror.source, mirror.target} <= lab.clusters.keys()
    ]
    with ThreadPoolExecutor(max_workers=max(len(alive), 1)) as threads:
        return list(
            threads.map(
                lambda one: _standing(
                    lab, one, lambda: (one.region, one.name) in resting(), cannot_answer(one, silent)
                ),
                alive,
            )
        )


def cannot_answer(mirror: Mirror, silent: Collection[tuple[str, str, str]]) -> str:
    """Returns what a mirror needs that is down or frozen, in a sentence; empty for nothing.

    Connect keeps positions in its target's cluster, so that it cannot read them without it.

    Args:
        mirror: the mirror.
        silent: region, kind and name of the clusters and mirrors that cannot answer.
    """
    if (mirror.region, MIRROR, mirror.name) in silent:
        return f"none of its workers in {mirror.region} runs"
    clusters = {region for region, kind, _ in silent if kind == "Kafka"}
    down = [region for region in (mirror.source, mirror.target) if region in clusters]
    return f"the cluster of {' and that of '.join(down)} {'are' if down[1:] else 'is'} down" if down else ""


def _standing(lab: Lab, mirror: Mirror, rests: Callable[[], bool], lacks: str) -> MirrorRisk:
    if lacks:
        return MirrorRisk(mirror, problem="" if rests() else lacks)
    look = _Looks(lab, mirror, rests)
    try:
        while look.wants_more():
            time.sleep(_PAUSE_S if look.number > 1 else 0)  # the second measurement gives the mirror's pace
        return look.standing
    finally:
        look.close()


def lacking_rights(lab: Lab, mirror: Mirror, waiting: Collection[str] | None = None) -> list[str]:
    """The ACLs that the users of a mirror lack; empty where the clusters do not answer.

    Args:
        lab: what is set up.
        mirror: the mirror.
        waiting: judges only these topics, as far as the mirror has copied them: for a mirror that runs. None for all
            that a mirror needs, for one that fails.
    """
    spec = next(
        document.content["spec"]
        for document in lab.topology.of_kind(MIRROR, mirror.region)
        if document.name == mirror.name
    )
    entry = next(found for found in spec["mirrors"] if found["source"]["alias"] == mirror.source_alias)
    config = {name: as_text(value) for name, value in (entry["sourceConnector"].get("config") or {}).items()}
    copied: set[str] = set()
    with contextlib.suppress(LabError, OSError):  # Its workers may be down because of a missing ACL.
        rest = ConnectClient.of(mirror.connect, rebalance_s=0, timeout_s=_ANSWER_S)
        copied = {place.topic for place in mirror_positions(rest, mirror.connector, mirror.source_alias)}
    try:
        with Cluster(mirror.source, connection_for(lab.region(mirror.source), ADMINISTRATOR), HURRIED) as looker:
            selected = selected_topics(mirror, looker.topics())
            topics = (
                judged_topics(selected, copied) if waiting is None
                else sorted(copied.intersection(selected, waiting))
            )  # fmt: skip
            rules = {"source": looker.rules()}
        with Cluster(mirror.target, connection_for(lab.region(mirror.target), ADMINISTRATOR), HURRIED) as looker:
            rules["target"] = looker.rules()
    except (LabError, OSError):
        return []
    connectors = [mirror.connector, *filter(None, [mirror.checkpoint_connector])]
    needed = {
        "source": at_source(mirror, topics, config),
        "target": [
            *(of_workers(spec["target"], connectors) if waiting is None else ()),
            *at_target(mirror, topics, config),
        ],
    }
    if waiting is not None:
        operations = {"source": "READ", "target": "WRITE"}
        needed = {
            end: [right for right in rights if (right.kind, right.operation) == ("TOPIC", operations[end])]
            for end, rights in needed.items()
        }
    ends = {"source": (mirror.source, entry["source"]), "target": (mirror.target, spec["target"])}
    users = {end: (spec_.get("authentication") or {}).get("username", "") for end, (_, spec_) in ends.items()}
    found = [
        missing_rights(ends[end][0], user, missing(rules[end], user, needed[end]))
        for end, user in users.items()
        if user
    ]
    return list(filter(None, found))


class _Looks:
    """Measures a mirror until its state is known."""

    def __init__(self, lab: Lab, mirror: Mirror, rests: Callable[[], bool]) -> None:
        self.standing = MirrorRisk(mirror)
        self._rests = rests
        self.number = 0
        self._mirror = mirror
        # One connection for all, and one to read, at the same time: behind an ocean each takes a second.
        self._cluster = Cluster(mirror.source, connection_for(lab.region(mirror.source), PROVER), HURRIED)
        self._source = RetentionReader(self._cluster)
        self._stands = Stands()
        self._rest = ConnectClient.of(mirror.connect, rebalance_s=0, timeout_s=_POSITIONS_S)
        self._home = lab_home()
        self._bound = bound_s(self._home, mirror.region, mirror.name)
        self._begin = self._measured = time.monotonic()
        self._source.connect_ahead()

    def wants_more(self) -> bool:
        """Measures once; returns whether another measurement is needed."""
        self.number += 1
        try:
            return self._look()
        except (LabError, OSError) as error:
            reason = str(error)
        except KeyError as error:
            # Kafka omits topics that were deleted in the meantime.
            reason = f"{error.args[0]} no longer exists"
        if self._rests():
            return False
        self.standing = replace(self.standing, problem=reason)
        return self._may_try_again

    def close(self) -> None:
        """Closes its connections."""
        self._source.close()

    def _look(self) -> bool:
        from kafka import TopicPartition  # slow to import

        mirror = self._mirror
        connector = self._rest.connectors().get(mirror.connector)
        running = connector is not None and runs(connector["status"])
        try:
            there = self._cluster.topics()
            topics = selected_topics(mirror, there)
            wanted = [TopicPartition(topic, number) for topic in topics for number in range(there[topic])]
            # End offsets before positions, so that records written in between do not count as lag.
            ends, at = self._source.ends(wanted), time.time()
            positions = mirror_positions(self._rest, mirror.connector, mirror.source_alias)
            found = self._source.look({place: positions.get(place) for place in wanted}, now=at, ends=ends)
        except (LabError, OSError, KeyError):
            if running:
                raise
            return False
        now = time.monotonic()
        self._stands.read(mirror.id, found, now)
        unread = [f"{one.topic}-{one.partition}" for one in found if running and one.unread and one.oldest is None]
        more = f" and {len(unread) - _NAMED} more" if len(unread) > _NAMED else ""
        problem = f"{', '.join(unread[:_NAMED])}{more} could not be read in time" if unread else ""
        self.standing = MirrorRisk(mirror, by_topic(found), problem)
        if unread:
            return self._may_try_again
        self._measured = now
        config = connector["info"]["config"] if connector else {}
        if running and self._judged(config):
            longer = found_s(config)
            if stall := self._stands.stalled(mirror.id, self._bound, longer):
                message = stall.describe(cause(self._home, mirror.region, mirror.name))
                self.standing = replace(self.standing, stalled=message)
                return False
            # A single measurement does not show how long nothing was delivered.
            new = self._bound + longer <= _LONGEST_S
            bound = self._bound + (longer if new else 0)
            if self._stands.suspects(mirror.id, bound, new=new) and self._passed < bound + _AGAIN_S:
                return True
        if any(one.held and one.held.age_s is None and not one.overdue for one in found) and self._passed < OPEN_S + 5:
            # Only further measurements show how long the transaction is open.
            return self.number <= 2 or any(one.held_s for one in found)
        return self.number == 1 and any(one.behind for one in found)

    def _judged(self, config: Mapping[str, str]) -> bool:
        mirror = self._mirror
        return (
            self._bound <= _LONGEST_S
            and not drops(config)
            and not cut_off(self._home, mirror.region, mirror.source, mirror.target)
        )

    @property
    def _may_try_again(self) -> bool:
        """Whether a failed measurement may be repeated."""
        return time.monotonic() - self._measured < _AGAIN_S and self._passed < _LONGEST_S + _AGAIN_S

    @property
    def _passed(self) -> float:
        return time.monotonic() - self._begin
