"""What a watch judges: flows between clusters, and the topics that it reads for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import selected_topics, target_topic
from loosehanger.proof.flows import Flow, MirrorId

Inventory = Mapping[str, tuple[str, int]]
"""The topics of a cluster: id and number of partitions of each."""
Unfit = Mapping[tuple[str, str], str]
"""By region and topic, why a topic's records cannot be judged; empty for those that can."""


@dataclass(frozen=True)
class Scope:
    """The clusters, flows and topics to watch."""

    clusters: Mapping[str, str]
    """The id of each region's cluster."""
    flows: tuple[Flow, ...]
    """The flows that can be judged."""
    excused: Mapping[str, tuple[Flow, str]]
    """By id, the flows that cannot be judged, and why."""
    topics: Mapping[str, Inventory]
    """The topics to read in each region."""
    events: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """In each region, the kind of event of each topic whose events count."""


def scope_between(
    mirrors: Iterable[Mirror],
    only_writers: Collection[MirrorId],
    clusters: Mapping[str, str],
    inventories: Mapping[str, Inventory],
    unfit: Unfit | None = None,
) -> Scope:
    """Finds the flows of some mirrors, and the topics at both of their ends.

    Args:
        mirrors: what copies from where to where.
        only_writers: the mirrors whose copies have no other writer.
        clusters: the id of each region's cluster.
        inventories: the topics of the regions that have answered.
        unfit: why topics cannot be judged.
    """
    flows: list[Flow] = []
    excused: dict[str, tuple[Flow, str]] = {}
    for mirror in mirrors:
        if not {mirror.source, mirror.target} <= inventories.keys():
            continue
        for topic in selected_topics(mirror, inventories[mirror.source]):
            flow = Flow(mirror, topic, target_topic(mirror, topic))
            ends = ((flow.source, flow.topic), (flow.target, flow.target_topic))
            reason = next((found for end in ends if (found := (unfit or {}).get(end))), "")
            if mirror.id not in only_writers:
                reason = "no claim says that the mirror is the only writer there"
            elif mirror.transforms:
                reason = "the mirror transforms records"
            if reason:
                excused[flow.id] = flow, reason
            else:
                flows.append(flow)
    # In a topic of several flows, a record cannot be attributed to one of them.
    mixed = {(flow.target, flow.target_topic): flow.source for flow, _ in excused.values()}
    for flow in flows:
        if other := mixed.get((flow.target, flow.target_topic)):
            excused[flow.id] = flow, f"it also has records from {other}, which cannot be judged"
    flows = [flow for flow in flows if flow.id not in excused]
    sides = {end for flow in flows for end in ((flow.source, flow.topic), (flow.target, flow.target_topic))}
    topics = {
        name: {topic: known for topic, known in inventory.items() if (name, topic) in sides}
        for name, inventory in inventories.items()
    }
    return Scope(clusters, tuple(flows), excused, topics)
