"""Chains: mirrors each of which reads what the previous one writes.

The proof treats a chain as one mirror from the first source to the last target, without connectors of its own. So it
compares the two ends of the chain directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from loosehanger.lab.mirrors.lineage import Place, writers
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import selected_topics, target_topic


def chain_of(mirrors: Iterable[Mirror], names: Sequence[str]) -> tuple[Mirror, ...]:
    """Returns the mirrors of these names, hop by hop; empty if they do not form a chain.

    Args:
        mirrors: every source of every mirror.
        names: the mirrors' names, in the order of the hops.
    """
    known = tuple(mirrors)
    for first in (mirror for mirror in known if mirror.name == names[0]):
        hops = [first]
        for name in names[1:]:
            hops += [m for m in known if m.name == name and m.source == hops[-1].target][:1]
        if len(hops) == len(names):
            return tuple(hops)
    return ()


def as_mirror(hops: Sequence[Mirror]) -> Mirror:
    """Returns the chain as one mirror, whose policy gives topics their names at its end."""
    first, last = hops[0], hops[-1]
    prefixes = [(hop.source_alias, hop.separator) for hop in reversed(hops) if hop.policy != "identity"]
    alias = "".join(alias + separator for alias, separator in prefixes)
    separator = prefixes[-1][1] if prefixes else "."
    return replace(
        first,
        name=" + ".join(hop.name for hop in hops),
        source_alias=alias.removesuffix(separator) or first.source_alias,
        target_alias=last.target_alias,
        target=last.target,
        policy="default" if prefixes else "identity",
        separator=separator,
        connector="",
        connect={},
        region="",
        groups="",
        checkpoint_connector="",
        state="running" if all(hop.state == "running" for hop in hops) else "stopped",
        hops=tuple(hop.id for hop in hops),
    )


def begins_with(mirrors: Iterable[Mirror], hops: Sequence[Mirror], topics: Iterable[str]) -> list[str]:
    """Returns the topics that a chain must carry: those of the first source that the first hop copies, without copies.

    Args:
        mirrors: every source of every mirror, to recognise copies.
        hops: the chain.
        topics: the topics of the first source.
    """
    every, first = tuple(mirrors), hops[0]
    return [topic for topic in selected_topics(first, topics) if not writers(every, Place(first.source, topic))]


def stations(hops: Sequence[Mirror], topic: str) -> Iterator[Place]:
    """Yields the places that a topic of the first source reaches, hop by hop, by the mirrors' patterns."""
    at = Place(hops[0].source, topic)
    yield at
    for hop in hops:
        if not selected_topics(hop, [at.topic]):
            return
        at = Place(hop.target, target_topic(hop, at.topic))
        yield at
