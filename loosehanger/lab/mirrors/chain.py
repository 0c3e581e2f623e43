"""Chains: mirrors of which each reads what the one before it has written.

For the proof a chain is a mirror as well, from the first one's source to the last one's target, which nobody can be
asked about: so what was written at one end is compared with what is at the other, whatever lies between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from loosehanger.lab.mirrors.lineage import Place, writers
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import selected_topics, target_topic


def chain_of(mirrors: Iterable[Mirror], names: Sequence[str]) -> tuple[Mirror, ...]:
    """The sources of mirrors that these names stand for, hop by hop; empty where they do not follow each other.

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
    """The chain as one mirror, whose policy gives topics the names that they have at its end."""
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
    """The topics of the first source that a chain has to carry: those that its first hop takes, and that are no copies.

    Args:
        mirrors: every source of every mirror, to tell copies.
        hops: the chain.
        topics: those of the first source.
    """
    every, first = tuple(mirrors), hops[0]
    return [topic for topic in selected_topics(first, topics) if not writers(every, Place(first.source, topic))]


def stations(hops: Sequence[Mirror], topic: str) -> Iterator[Place]:
    """Where a topic of the first source gets to, hop by hop, by the mirrors' patterns: as far as they take it."""
    at = Place(hops[0].source, topic)
    yield at
    for hop in hops:
        if not selected_topics(hop, [at.topic]):
            return
        at = Place(hop.target, target_topic(hop, at.topic))
        yield at
