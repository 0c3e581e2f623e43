"""Where topics come from: which are copies, of which topic, over which hops; by the mirrors that are set up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import selected_topics, source_topic, target_topic


class Place(NamedTuple):
    """A topic of a region."""

    region: str
    topic: str


def writers(mirrors: Iterable[Mirror], place: Place) -> list[tuple[Mirror, Place]]:
    """The mirrors that a topic's name and region make its writers, each with the topic that it copies there.

    A prefix says it for certain, whatever the mirror's pattern is today. Without one it takes the pattern, and where
    applications write into a topic of that name as well, the name alone cannot tell.
    """
    found = []
    for mirror in mirrors:
        name = source_topic(mirror, place.topic) if mirror.target == place.region else None
        if name is not None and (mirror.policy != "identity" or selected_topics(mirror, [name])):
            found.append((mirror, Place(mirror.source, name)))
    return sorted(found, key=lambda writer: writer[0].policy == "identity")


def way(mirrors: Iterable[Mirror], place: Place) -> list[Place]:
    """A topic, the one that it is a copy of, and so on, back to the one that applications write."""
    found = [place]
    mirrors = tuple(mirrors)
    # Where mirrors that keep names go both ways, as before and after a failover, one round is enough.
    while (before := writers(mirrors, found[-1])) and before[0][1] not in found:
        found.append(before[0][1])
    return found


def origin(mirrors: Iterable[Mirror], place: Place) -> Place:
    """The topic that applications write, of which this one is a copy; itself, if it is none."""
    return way(mirrors, place)[-1]


def event_topic(mirrors: Iterable[Mirror], topic: str) -> str:
    """A topic's name where applications write it: without what mirrors have put before it, wherever it is.

    With run, partition and sequence number it tells which event a record is, in each of its copies.
    """
    renaming = [mirror for mirror in mirrors if mirror.policy != "identity"]
    while before := next((name for m in renaming if (name := source_topic(m, topic)) not in (None, topic)), None):
        topic = before
    return topic


def copies(mirrors: Iterable[Mirror], place: Place) -> list[Place]:
    """Where a topic is copied to, over one hop or several."""
    mirrors = tuple(mirrors)
    found = [place]
    for at in found:
        for mirror in mirrors:
            if mirror.source == at.region and selected_topics(mirror, [at.topic]):
                copy = Place(mirror.target, target_topic(mirror, at.topic))
                if copy not in found:
                    found.append(copy)
    return found[1:]


def counted(mirrors: Iterable[Mirror], region: str, topics: Iterable[str]) -> list[str]:
    """The topics of a region with nothing in them twice: of two copies of one topic, that with the shorter way.

    So a topic that came back by another region (``b.a.ORDERS`` beside ``a.ORDERS``) does not count again.
    """
    mirrors = tuple(mirrors)
    best: dict[Place, Sequence[Place]] = {}
    for topic in sorted(topics):
        found = way(mirrors, Place(region, topic))
        if found[-1] not in best or len(found) < len(best[found[-1]]):
            best[found[-1]] = found
    return sorted(found[0].topic for found in best.values())


def side_by_side(mirrors: Iterable[Mirror], places: Iterable[Place]) -> list[tuple[Place, dict[str, str]]]:
    """Each topic beside its copies.

    Args:
        mirrors: what copies.
        places: the topics that there are.

    Returns:
        The topic that applications write, and for each region that has it, or shall have a copy, what it is called
        there. A region that has two copies of one topic gets a second line for it.
    """
    mirrors = tuple(mirrors)
    families: dict[Place, list[Place]] = {}
    for place in places:
        first = origin(mirrors, place)
        # Where mirrors that keep names go both ways, each is a copy of the other: they are one topic still.
        families.setdefault(min(way(mirrors, first)) if writers(mirrors, first) else first, []).append(place)
    lines = []
    for first in sorted(families, key=lambda place: (place.topic, place.region)):
        of_topic: list[dict[str, str]] = [{}]
        for place in dict.fromkeys([first, *copies(mirrors, first), *families[first]]):
            free = next((line for line in of_topic if place.region not in line), None)
            if free is None:
                of_topic.append(free := {})
            free[place.region] = place.topic
        lines += [(first, line) for line in of_topic]
    return lines
