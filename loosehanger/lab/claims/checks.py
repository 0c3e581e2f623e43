"""Checks that a scenario's claims are possible, before anything is created."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from loosehanger.errors import WrongUseError
from loosehanger.lab.claims.claims import Claim, Names, OfMirror, kind_of
from loosehanger.lab.mirrors.lineage import Place, copies
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import selected_topics, target_topic
from loosehanger.lab.scenario import Scenario
from loosehanger.lab.topology import Topology


def check_claims(scenario: Scenario, topology: Topology) -> None:
    """Checks that a scenario's claims name stages, mirrors, topics and regions that exist.

    Raises:
        WrongUseError: a claim does not; the message has file and line.
    """
    names = Names(scenario.stages, scenario.mirror_names, topology)
    covering: dict[tuple[str, str], int] = {}
    for number, entry in enumerate(scenario.claims):
        where = partial(scenario.document.where, "claims", number)
        for stage in entry.at:
            if stage not in scenario.stages:
                raise WrongUseError(f"{where('at')}: there is no stage '{stage}'")
        entry.check(names, where)
        if not isinstance(entry, OfMirror):
            continue
        for stage in entry.at or scenario.stages:
            other = covering.setdefault((entry.mirror, stage), number)
            if other != number:
                raise WrongUseError(
                    f"{where(kind_of(entry))}: claims[{other}] names '{entry.mirror}' in stage '{stage}' as well; "
                    "keep one of the two claims"
                )


def check_writers(topology: Topology, claims: Sequence[Claim]) -> None:
    """Checks that no two mirrors copy declared topics into one topic.

    The proof checks topics that no manifest declares, because two patterns cannot be compared without topic names.

    Raises:
        WrongUseError: two mirrors would write one topic that a claim calls an exact copy.
    """
    exact = {mirror for claim in claims if claim.kind == "copy" for mirror in claim.mirrors}
    writers: dict[tuple[str, str], tuple[Mirror, str]] = {}
    for mirror, topic in _copied(topology):
        place = mirror.target, target_topic(mirror, topic)
        other, its_topic = writers.setdefault(place, (mirror, topic))
        if other.id != mirror.id and exact & {other.id, mirror.id}:
            raise WrongUseError(
                f"{topology.where(mirror)}: would copy {mirror.source}'s {topic} into {place[1]} in {mirror.target}, "
                f"where {topology.where(other)} copies {other.source}'s {its_topic}, so neither is an exact copy; "
                "narrow topicsPattern, or give them different names by DefaultReplicationPolicy and other aliases"
            )


def _copied(topology: Topology) -> Iterator[tuple[Mirror, str]]:
    """Yields each running mirror with every topic that it copies at its source, declared topics and their copies."""
    mirrors = [mirror for mirror in topology.mirrors if mirror.state == "running"]
    declared = [Place(*place) for place in topology.declared_topics]
    places = dict.fromkeys(place for first in declared for place in (first, *copies(mirrors, first)))
    for place in places:
        for mirror in mirrors:
            if mirror.source == place.region and selected_topics(mirror, [place.topic]):
                yield mirror, place.topic
