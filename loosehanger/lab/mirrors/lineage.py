"""The lineage of topics: which are copies, of which topic and over which hops, by the lab's mirrors."""

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
    """Returns the mirrors that write a topic, by its name and region, each with its source topic.

    A prefix identifies the mirror with certainty, whatever its pattern is now. Without a prefix the pattern decides,
    and the name alone cannot show whether applications write into the topic as well.
    """
    found = []
    for mirror in mirrors:
        name = source_topic(mirror, place.topic) if mirror.target == place.region else None
        if name is not None and (mirror.policy != "identity" or selected_topics(mirror, [name])):
            found.append((mirror, Place(mirror.source, name)))
    return sorted(found, key=lambda writer: writer[0].policy == "identity")


def way(mirrors: Iterable[Mirror], place: Place) -> list[Place]:
    """Returns a topic, the topic that it is a copy of, and so on, back to the one that applications write."""
    found = [place]
    mirrors = tuple(mirrors)
    # Mirrors that keep names may go both ways, as before and after a failover: one round is enough.
    while (before := writers(mirrors, found[-1])) and before[0][1] not in found:
        found.append(before[0][1])
    return found


def origin(mirrors: Iterable[Mirror], place: Place) -> Place:
    """Returns the topic that applications write and this one is a copy of; itself if it is not a copy."""
    return way(mirrors, place)[-1]


def event_topic(mirrors: Iterable[Mirror], topic: str) -> str:
    """Returns a topic's name where applications write it, without the prefixes that mirrors have added.

    Together with run, partition and sequence number it identifies an event in each of its copies.
    """
    renaming = [mirror for mirror in mirrors if mirror.policy != "identity"]
    while before := next((name for m in renaming if (name := source_topic(m, topic)) not in (None, topic)), None):
        topic = before
    return topic


def copies(mirrors: Iterable[Mirror], place: Place) -> list[Place]:
    """Returns the places that a topic is copied to, over one hop or several."""
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
    """Returns the topics of a region with one copy of each origin: the copy with the fewest hops.

    So a topic that returned by another region (``b.a.ORDERS`` beside ``a.ORDERS``) is not counted twice.
    """
    mirrors = tuple(mirrors)
    best: dict[Place, Sequence[Place]] = {}
    for topic in sorted(topics):
        found = way(mirrors, Place(region, topic))
        if found[-1] not in best or len(found) < len(best[found[-1]]):
            best[found[-1]] = found
    return sorted(found[0].topic for found in best.values())


def side_by_side(mirrors: Iterable[Mirror], places: Iterable[Place]) -> list[tuple[Place, dict[str, str]]]:
    """Returns each topic beside its copies.

    Args:
        mirrors: every source of every mirror.
        places: the topics that exist.

    Returns:
        The topic that applications write, and its name in each region that has it or must have a copy. A region with
        two copies of one topic gets a second line.
    """
    mirrors = tuple(mirrors)
    families: dict[Place, list[Place]] = {}
    for place in places:
        first = origin(mirrors, place)
        # Mirrors that keep names may go both ways, and each topic is then a copy of the other: they count as one topic.
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
