"""Checks that a scenario's claims are possible, before anything is created."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loosehanger.errors import WrongUseError
from loosehanger.lab.claims.claims import (
    OF_MIRRORS,
    Claim,
    DeclaredAbsent,
    DeclaredContains,
    DeclaredGroups,
    DeclaredKept,
    DeclaredThrough,
    DeclaredWhole,
    kind_of,
)
from loosehanger.lab.mirrors.chain import begins_with, chain_of, stations
from loosehanger.lab.mirrors.lineage import Place, copies
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import selected_topics, target_topic
from loosehanger.lab.programs import ledgers
from loosehanger.lab.scenario import Scenario
from loosehanger.lab.topology import Topology


def check_claims(scenario: Scenario, topology: Topology) -> None:
    """Checks that a scenario's claims name stages, mirrors, topics and regions that exist.

    Raises:
        WrongUseError: a claim does not; the message has file and line.
    """
    spoken: dict[tuple[str, str], int] = {}
    keepers = {name for _, name in ledgers(topology)}
    for number, entry in enumerate(scenario.claims):
        where = scenario.document.where
        for stage in entry.at:
            if stage not in scenario.stages:
                raise WrongUseError(f"{where('claims', number, 'at')}: there is no stage '{stage}'")
        if isinstance(entry, OF_MIRRORS):
            here = where("claims", number, kind_of(entry))
            if entry.mirror not in scenario.mirror_names:
                raise WrongUseError(
                    f"{here}: manifests/ has no mirror '{entry.mirror}'; it has: "
                    f"{', '.join(sorted(scenario.mirror_names)) or 'none'}"
                )
            for stage in entry.at or scenario.stages:
                if isinstance(entry, DeclaredContains) and entry.until and not scenario.stages[stage].mark:
                    raise WrongUseError(f"{where('claims', number, 'until')}: the stage '{stage}' has no 'mark: true'")
                other = spoken.setdefault((entry.mirror, stage), number)
                if other != number:
                    raise WrongUseError(
                        f"{here}: claims[{other}] names '{entry.mirror}' in stage '{stage}' as well; "
                        "keep one of the two claims"
                    )
        if isinstance(entry, DeclaredGroups) and entry.mirror and entry.mirror not in scenario.mirror_names:
            raise WrongUseError(
                f"{where('claims', number, 'by')}: manifests/ has no mirror '{entry.mirror}'; it has: "
                f"{', '.join(sorted(scenario.mirror_names)) or 'none'}"
            )
        if isinstance(entry, DeclaredGroups) and entry.since and not _marks(scenario, entry.since):
            raise WrongUseError(f"{where('claims', number, 'since')}: '{entry.since}' is not a stage with 'mark: true'")
        if isinstance(entry, DeclaredKept) and entry.producer not in keepers:
            raise WrongUseError(
                f"{where('claims', number, 'kept')}: '{entry.producer}' is not a program with a ledger; "
                f"the programs with one are: {', '.join(sorted(keepers)) or 'none'}"
            )
        if isinstance(entry, DeclaredThrough):
            _check_chain(entry, where("claims", number, "through"), scenario, topology)
        if isinstance(entry, DeclaredAbsent):
            declared = sorted({topic for _, topic in topology.declared_topics})
            for topic in entry.forbidden.topics:
                if topic not in declared:
                    raise WrongUseError(
                        f"{where('claims', number, 'absent', 'topics')}: no manifest declares a topic '{topic}'; "
                        f"the declared topics are: {', '.join(declared) or 'none'}"
                    )
            _check_cluster(entry.region, where("claims", number, "in"), topology)
        if isinstance(entry, DeclaredKept) and (
            unknown := [name for name in entry.not_in if name not in topology.regions]
        ):
            raise WrongUseError(f"{where('claims', number, 'not-in')}: there is no region '{unknown[0]}'")
        if isinstance(entry, DeclaredWhole):
            for region in entry.regions:
                _check_cluster(region, where("claims", number, "in"), topology)


def _check_cluster(region: str, where: str, topology: Topology) -> None:
    if not topology.clusters(region):
        raise WrongUseError(
            f"{where}: '{region}' is not a region with a Kafka cluster; the regions with one are: "
            f"{', '.join(name for name in topology.regions if topology.clusters(name))}"
        )


def _check_chain(entry: DeclaredThrough, where: str, scenario: Scenario, topology: Topology) -> None:
    if unknown := [name for name in entry.mirrors if name not in scenario.mirror_names]:
        raise WrongUseError(
            f"{where}: manifests/ has no mirror '{unknown[0]}'; it has: "
            f"{', '.join(sorted(scenario.mirror_names)) or 'none'}"
        )
    mirrors = topology.mirrors
    if not {mirror.name for mirror in mirrors} >= set(entry.mirrors):
        return
    hops = chain_of(mirrors, entry.mirrors)
    if not hops:
        raise WrongUseError(
            f"{where}: {' -> '.join(entry.mirrors)} is not a chain: each mirror must read the region that the "
            "previous one writes"
        )
    topics = [topic for region, topic in topology.declared_topics if region == hops[0].source]
    for topic in begins_with(mirrors, hops, topics):
        places = list(stations(hops, topic))
        if len(places) <= len(hops):
            stops = hops[len(places) - 1]
            raise WrongUseError(
                f"{topology.where(stops)}: topicsPattern {stops.topics} does not match {places[-1].topic}, the name of "
                f"{hops[0].source}'s {topic} in {places[-1].region}, and {where} claims that it goes through"
            )


def _marks(scenario: Scenario, stage: str) -> bool:
    return stage in scenario.stages and scenario.stages[stage].mark


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
