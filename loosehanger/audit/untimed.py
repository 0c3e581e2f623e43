"""Records without a timestamp, which keep a watch from judging their topic.

A mirror gives their copies the time at which it copies them. The watch matches records by their times, so it would call
each of these copies unexpected. A topic of which it reads such a record at the source is not judged from that round
on. Earlier records are not read. Where a bucket has copies that no record explains, the beginning and the last records
of the source show whether its log has such records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka import TopicPartition

from loosehanger.audit.balance import AuditBalance, RegionPartition, findings
from loosehanger.audit.region_reader import Reading
from loosehanger.audit.regions import Regions
from loosehanger.audit.scope import Unfit
from loosehanger.proof.flows import Flow

_UNEXPLAINED = frozenset({"unexpected", "altered"})
"""The kinds of difference that the copy of a record without a timestamp makes."""


class UntimedRecords:
    """The topics at sources that have records without a timestamp, and how many are known.

    Args:
        regions: which they are in.
        balance: whose findings lead to those that were not read.
    """

    def __init__(self, regions: Regions, balance: AuditBalance) -> None:
        self._regions = regions
        self._balance = balance
        self._known: dict[tuple[str, str], tuple[str, int]] = {}
        """The id of each of these topics, and the number of such records."""
        self._timed: set[RegionPartition] = set()
        """Partitions in whose log no such records were found."""

    def take(self, region: str, reading: Reading, flows: Iterable[Flow]) -> bool:
        """Counts what was read of a region; returns whether a topic has such records that had none before."""
        before = len(self._known)
        topics = {topic for name, topic in self._known if name == region}
        topics |= {flow.topic for flow in flows if flow.source == region}
        for found in reading.totals:
            if found.untimed and found.topic in topics:
                self._add(region, found.topic, found.untimed)
        return len(self._known) > before

    def look(self) -> bool:
        """Looks at the sources of copies that no record explains; returns whether a topic has such records."""
        wanted: dict[str, set[TopicPartition]] = {}
        for key, account in findings(self._balance.accounts):
            if _UNEXPLAINED & account.kinds.keys():
                for flow in self._balance.sources(key[:2]):
                    if RegionPartition(flow.source, flow.topic, key.partition) not in self._timed:
                        wanted.setdefault(flow.source, set()).add(TopicPartition(flow.topic, key.partition))
        readers = self._regions.readers
        answers = self._regions.ask({name: (readers[name].untimed, places) for name, places in wanted.items()})
        found = False
        for name, of_region in answers.items():
            readers[name].untimed_found = {}
            for place, offsets in of_region.items():
                if offsets:
                    self._add(name, place.topic, offsets)
                    found = True
                else:
                    self._timed.add(RegionPartition(name, *place))
        return found

    def reasons(self, unfit: Unfit) -> Unfit:
        """Adds these topics, but for recreated ones, to those that cannot be judged, each with its reason."""
        found = dict(unfit)
        for (region, topic), (topic_id, count) in list(self._known.items()):
            if topic_id and self._id(region, topic) not in ("", topic_id):
                del self._known[region, topic]
            elif not found.get((region, topic)):
                found[region, topic] = (
                    f"{topic} in {region} has records without a timestamp (at least {count:,}), whose copies have the "
                    "time at which they were copied; the proof compares them"
                )
        return found

    def dump(self) -> list[list[Any]]:
        """The topics, as JSON types."""
        return [[*topic, *known] for topic, known in self._known.items()]

    def load(self, stored: Iterable[Any]) -> None:
        """Restores what ``dump`` returned."""
        self._known = {(region, topic): (topic_id, count) for region, topic, topic_id, count in stored}

    def _add(self, region: str, topic: str, count: int) -> None:
        topic_id, known = self._known.get((region, topic), (self._id(region, topic), 0))
        self._known[region, topic] = topic_id, known + count

    def _id(self, region: str, topic: str) -> str:
        return self._regions.inventories.get(region, {}).get(topic, ("", 0))[0]
