"""Chooses where a fault is injected, and refuses what a lab cannot have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka import TopicPartition

from loosehanger.errors import WrongUseError
from loosehanger.faults.fault import Fault
from loosehanger.faults.site import FaultSite
from loosehanger.kafka.cluster import Cluster, partitions_of
from loosehanger.lab.kit_users import ADMINISTRATOR
from loosehanger.lab.manifests.views import MIRROR, MirrorMaker
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import selected_topics, target_topic
from loosehanger.lab.progress import LOCAL
from loosehanger.lab.record import Lab
from loosehanger.platforms.operations import FaultOperations
from loosehanger.suggestions import did_you_mean


@dataclass(frozen=True)
class WantedSite:
    """What the user has said of the place."""

    mirror: str = ""
    """``REGION/NAME``; empty for any, as the others."""
    source: str = ""
    target: str = ""
    topic: str = ""


def choose_site(lab: Lab, home: Path, platforms: FaultOperations, fault: Fault, wanted: WantedSite) -> FaultSite:
    """Returns the first running mirror that fits, and the first of its topics that has records and a copy.

    Raises:
        WrongUseError: the lab cannot have this fault, or what is wanted does not exist.
        UnreachableError: a cluster does not answer.
    """
    found = fitting_mirrors(lab, fault, wanted)
    for mirror in found:
        if topic := _topic(lab, mirror, wanted.topic):
            return FaultSite(lab, home, mirror, topic, platforms)
    if wanted.topic:
        where = " or ".join(dict.fromkeys(mirror.source for mirror in found))
        raise WrongUseError(f"no mirror copies the topic '{wanted.topic}' from {where}; ./lab topic show lists topics")
    raise WrongUseError(
        f"{fault.name}: no mirror that fits copies a topic with records yet; try again when ./lab status is healthy"
    )


def fitting_mirrors(lab: Lab, fault: Fault, wanted: WantedSite = WantedSite()) -> list[Mirror]:
    """Returns the running mirrors of a lab that a fault can be injected into; asks no cluster.

    Raises:
        WrongUseError: there is none; the message says why.
    """
    if not fault.changes_on(lab.platform):
        raise WrongUseError(f"{fault.name} cannot be injected on {lab.platform}; it needs the local platform")
    if len(lab.mirrors) < fault.needs.mirrors:
        raise WrongUseError(
            f"{fault.name} needs {fault.needs.mirrors} mirrors, and {lab.scenario} has {len(lab.mirrors)}"
        )
    named = _named(lab, wanted)
    running = [
        mirror
        for mirror in named
        if mirror.state == "running" and mirror.source in lab.clusters and mirror.target in lab.clusters
    ]
    if not running:
        raise WrongUseError(f"{fault.name} needs a running mirror; ./lab status shows the mirrors")
    needs = fault.needs
    if needs.exactly_once is not None:
        running = [mirror for mirror in running if is_exactly_once(lab, mirror) is needs.exactly_once]
        if not running:
            how = "with" if needs.exactly_once else "without"
            raise WrongUseError(f"{fault.name} needs a running mirror {how} exactly-once delivery")
    if needs.sources > 1:
        resources = Counter((mirror.region, mirror.name) for mirror in lab.mirrors)
        running = [mirror for mirror in running if resources[mirror.region, mirror.name] >= needs.sources]
        if not running:
            raise WrongUseError(f"{fault.name} needs a running mirror of {needs.sources} sources")
    if needs.checkpoints:
        running = [mirror for mirror in running if mirror.translates]
        if not running:
            raise WrongUseError(f"{fault.name} needs a running mirror that translates consumer groups")
    return running


def is_exactly_once(lab: Lab, mirror: Mirror) -> bool:
    """Whether a mirror's workers write in transactions."""
    for document in lab.topology.of_kind(MIRROR, mirror.region):
        if document.name == mirror.name:
            return MirrorMaker(document.content).exactly_once
    return False


def _named(lab: Lab, wanted: WantedSite) -> list[Mirror]:
    """Returns the mirrors that the user has named.

    Raises:
        WrongUseError: there is none.
    """
    for region in filter(None, (wanted.source, wanted.target)):
        lab.region(region)
    names = [f"{mirror.region}/{mirror.name}" for mirror in lab.mirrors]
    if wanted.mirror and wanted.mirror not in names:
        there = ", ".join(dict.fromkeys(names)) or "none"
        hint = did_you_mean(wanted.mirror, names) or f"; the mirrors are: {there}"
        raise WrongUseError(f"there is no mirror '{wanted.mirror}'{hint}")
    found = [
        mirror
        for mirror, name in zip(lab.mirrors, names, strict=True)
        if wanted.mirror in ("", name) and wanted.source in ("", mirror.source) and wanted.target in ("", mirror.target)
    ]
    if not found:
        ways = "; ".join(f"{name} from {m.source} to {m.target}" for m, name in zip(lab.mirrors, names, strict=True))
        raise WrongUseError(f"no mirror goes that way; the mirrors are: {ways or 'none'}")
    return found


def _topic(lab: Lab, mirror: Mirror, wanted: str) -> str | None:
    """Returns the wanted topic if the mirror copies it; without one, the first with records and a copy.

    On Kubernetes the clusters cannot be asked from here; the topics are those of the manifests.
    """
    if lab.platform != LOCAL:
        declared = sorted(topic for region, topic in lab.topology.declared_topics if region == mirror.source)
        return next((topic for topic in selected_topics(mirror, declared) if wanted in ("", topic)), None)
    with Cluster.of(lab.region(mirror.source), ADMINISTRATOR) as source:
        there = source.topics()
        selected = selected_topics(mirror, there)
        if wanted:
            return wanted if wanted in selected else None
        partitions = partitions_of({topic: there[topic] for topic in selected})
        filled = _filled(source, partitions)
    with Cluster.of(lab.region(mirror.target), ADMINISTRATOR) as target:
        copies = target.topics()
    return next((topic for topic in selected if topic in filled and target_topic(mirror, topic) in copies), None)


def _filled(cluster: Cluster, places: Sequence[TopicPartition]) -> set[str]:
    """Returns the topics with records."""
    starts, ends = cluster.start_offsets(places), cluster.end_offsets(places)
    return {place.topic for place, end in ends.items() if end > starts.get(place, 0)}
