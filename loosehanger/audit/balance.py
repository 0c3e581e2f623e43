"""The audit's balance: what each bucket of a target's partition should hold, less what it holds.

Pure arithmetic, without Spark, Kafka or a clock. The readers add what they have read; the balance reports which
buckets are even, and which can be judged although they are not.

**The key** is a target's topic and partition, and ten seconds of record time: MM2 keeps partition and timestamp, so no
map of offsets is needed. **The value** is a difference: all sources less the target, as a count and as four sums
of halves of two 64-bit hashes (``fingerprints``). Several sources add into one key. In a chain a topic counts for one
flow and against another.

**When a bucket that does not balance may be judged.** Each mirror's position has passed the last source offset of the
bucket. *After* that the audit fetched the target's high watermark, and then those of the sources. Both readings have
passed these, and no record has changed the bucket since. A record that is in neither reading does not exist then. No
clock is involved. The high watermark counts, not the last stable offset: the transaction of the mirror's position may
end before that of the data. Until then the bucket is *late*, however long it takes: a mirror that is behind has lost
nothing.

**A bucket that is even is dropped**, and a late record opens it again at zero, which is exact at any age. So the state
covers the open buckets only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from kafka import TopicPartition

from loosehanger.proof.difference import Difference, keys
from loosehanger.proof.flows import Flow, FlowId, MirrorId
from loosehanger.proof.read.buckets import BUCKET_MS

HALVES = 4
EQUAL, LATE, MISSING, NEVER_MIRRORED, DIFFERENT = "equal", "late", "missing", "never mirrored", "different"
"""Verdicts. A bucket that is still being read has none."""
KINDS = keys(
    Difference.MISSING,
    Difference.NEVER_MIRRORED,
    Difference.ALTERED,
    Difference.MOVED,
    Difference.DUPLICATES,
    Difference.UNEXPECTED,
)
"""The kinds of difference in a bucket that is not even, named as the proof names them."""


class RegionPartition(NamedTuple):
    """A partition of a region's topic."""

    region: str
    topic: str
    partition: int


class Bucket(NamedTuple):
    """A bucket of a target's partition."""

    region: str
    topic: str
    partition: int
    bucket: int

    @property
    def place(self) -> RegionPartition:
        """The target's partition."""
        return RegionPartition(self.region, self.topic, self.partition)


class Tally(NamedTuple):
    """The sums over the records that were read of a place and a bucket."""

    records: int
    content: tuple[int, ...]
    """``HALVES`` sums."""
    first: int
    """The first offset."""
    last: int


@dataclass
class OpenBucket:
    """An open bucket."""

    opened_ms: int
    """When the watch first read a record of it, for display."""
    records: int = 0
    """At the sources."""
    copies: int = 0
    """At the target."""
    content: list[int] = field(default_factory=lambda: [0] * HALVES)
    sources: dict[str, list[int]] = field(default_factory=dict)
    """First and last offset of each source, by its region and topic."""
    target: list[int] = field(default_factory=list)
    """First and last offset at the target."""
    touched: int = 0
    """The number of the round that changed it last."""
    touched_ms: int = 0
    """When that was."""
    verdict: str = ""
    """``MISSING``, ``NEVER_MIRRORED`` or ``DIFFERENT`` while it stands."""
    kinds: dict[str, int] = field(default_factory=dict)
    """The number of records of each kind of difference."""
    examples: list[dict[str, Any]] = field(default_factory=list)
    by_time: bool = False
    """Whether they cover all records of its time, not only those since it was opened."""

    @property
    def balanced(self) -> bool:
        """Whether both sides hold the same records."""
        return self.records == self.copies and not any(self.content)


@dataclass(frozen=True)
class View:
    """What clusters and mirrors answered in a round, asked in this order: positions, targets, sources."""

    positions: Mapping[MirrorId, Mapping[TopicPartition, int]]
    """The last source offset that each mirror had copied; without the mirrors that do not answer."""
    target_ends: Mapping[RegionPartition, int]
    """High watermarks, asked after the positions."""
    source_ends: Mapping[RegionPartition, int]
    """High watermarks, asked after those of the targets."""
    source_starts: Mapping[RegionPartition, int]
    """Where the sources' logs begin, asked after the positions."""
    read: Mapping[RegionPartition, int]
    """The offset up to which each place has been read, including everything that the balance has added."""
    settled_ms: int | None = None
    """Buckets that have changed since then are not judged yet; None to judge them at once."""


@dataclass(frozen=True)
class Judged:
    """A bucket that was judged."""

    key: Bucket
    verdict: str
    account: OpenBucket


class AuditBalance:
    """All open buckets.

    Args:

        flows: the flows to judge.
    """

    def __init__(self, flows: Iterable[Flow] = ()) -> None:
        self.accounts: dict[Bucket, OpenBucket] = {}
        self.since: dict[RegionPartition, int] = {}
        """The first bucket to judge of each target's partition."""
        self.records: dict[tuple[str, str], int] = {}
        """Records read of each region's topic, in buckets that are judged."""
        self.older: dict[tuple[str, str], int] = {}
        """Records read that are older than every judged bucket."""
        self.equal: dict[tuple[str, str], int] = {}
        """Buckets of each target's topic that were equal."""
        self.round = 0
        self._from: dict[tuple[str, str], list[Flow]] = {}
        self._into: dict[tuple[str, str], list[Flow]] = {}
        self._served: dict[FlowId, tuple[str, str]] = {}
        """The target's topic of each flow."""
        self.serve(flows)

    def serve(self, flows: Iterable[Flow], followed: Collection[tuple[str, str]] = ()) -> set[tuple[str, str]]:
        """Replaces the list of flows, and drops the buckets of those that are gone.

        Args:
            flows: the flows to judge.
            followed: the topics of which records have been read, each with its region.

        Returns:
            The targets' topics for which some of these records were not counted, or will not be.
        """
        before, self._served = self._served, {}
        judged_before = set(before.values())
        self._from, self._into = {}, {}
        changed = set()
        for flow in flows:
            source, target = (flow.source, flow.topic), (flow.target, flow.target_topic)
            self._from.setdefault(source, []).append(flow)
            self._into.setdefault(target, []).append(flow)
            self._served[flow.id] = target
            if flow.id not in before and (source in followed or (target in followed and target not in judged_before)):
                changed.add(target)
        self.accounts = {key: found for key, found in self.accounts.items() if (key.region, key.topic) in self._into}
        left_out = {target for flow, target in before.items() if flow not in self._served and target in self._into}
        return changed | left_out

    def sources(self, topic: tuple[str, str]) -> Sequence[Flow]:
        """The flows into a target's topic."""
        return self._into.get(topic, ())

    def targets(self, place: RegionPartition) -> list[RegionPartition]:
        """The partitions in whose balance a place counts: its copies, and the place itself if it is a copy."""
        found = [
            RegionPartition(flow.target, flow.target_topic, place.partition) for flow in self._from.get(place[:2], ())
        ]
        return [*found, place] if place[:2] in self._into else found

    def begin_round(self) -> None:
        """Begins a new round: records that are added from now on were not part of the last judgement."""
        self.round += 1

    def begin(self, place: RegionPartition, bucket: int) -> None:
        """Judges a target's partition from this bucket on, if the partition is new."""
        self.since.setdefault(place, bucket)

    def restart(self, place: RegionPartition, bucket: int) -> list[Bucket]:
        """Judges a target's partition only from this bucket on: some records of older buckets were not read.

        Returns:
            The open buckets that are dropped.
        """
        self.since[place] = max(bucket, self.since.get(place, bucket))
        dropped = [key for key in self.accounts if key.place == place and key.bucket < self.since[place]]
        for key in dropped:
            del self.accounts[key]
        return dropped

    def take(self, place: RegionPartition, bucket: int, tally: Tally, now_ms: int) -> None:
        """Adds the sums of a place and a bucket."""
        judged = False
        for flow in self._from.get(place[:2], ()):
            account = self._account(Bucket(flow.target, flow.target_topic, place.partition, bucket), now_ms)
            if account:
                account.records += tally.records
                _widen(account.sources.setdefault(f"{flow.source} {flow.topic}", []), tally)
                self._add(account, tally, 1, now_ms)
                judged = True
        if place[:2] in self._into and (account := self._account(Bucket(*place, bucket), now_ms)):
            account.copies += tally.records
            _widen(account.target, tally)
            self._add(account, tally, -1, now_ms)
            judged = True
        counts = self.records if judged else self.older
        counts[place[:2]] = counts.get(place[:2], 0) + tally.records

    def judge(self, view: View) -> list[Judged]:
        """Judges the buckets that can be judged; drops those that are equal.

        Returns:
            The buckets whose verdict is new, or that have changed since their last one.
        """
        found = []
        for key, account in list(self.accounts.items()):
            if account.touched == self.round:
                continue
            if account.balanced:
                del self.accounts[key]
                self.equal[key[:2]] = self.equal.get(key[:2], 0) + 1
                found.append(Judged(key, EQUAL, account))
            elif not account.verdict and self._decided(key, account, view):
                account.verdict = self._name(key, account, view)
                found.append(Judged(key, account.verdict, account))
        return found

    def behind(
        self, key: Bucket, account: OpenBucket, positions: Mapping[MirrorId, Mapping[TopicPartition, int]]
    ) -> bool:
        """Whether a mirror has not passed the last known offset of the bucket, or its position is unknown."""
        for flow in self._into[key[:2]]:
            offsets = account.sources.get(f"{flow.source} {flow.topic}")
            if offsets:
                position = positions.get(flow.mirror.id, {}).get(TopicPartition(flow.topic, key.partition))
                if position is None or position < offsets[1]:
                    return True
        return False

    def waits_for_positions(self) -> bool:
        """Whether only the mirrors' positions can decide some bucket."""
        return any(
            not account.balanced and not account.verdict and account.touched < self.round
            for account in self.accounts.values()
        )

    def dump(self) -> dict[str, Any]:
        """The whole state, as JSON types."""
        return {
            "round": self.round,
            "served": [[flow, *target] for flow, target in self._served.items()],
            "since": [[*place, bucket] for place, bucket in self.since.items()],
            "accounts": [[*key, asdict(account)] for key, account in self.accounts.items()],
            **{
                name: [[*topic, count] for topic, count in getattr(self, name).items()]
                for name in ("records", "older", "equal")
            },
        }

    def load(self, stored: Mapping[str, Any]) -> None:
        """Restores what ``dump`` returned."""
        self.round = stored["round"]
        self._served = {flow: (region, topic) for flow, region, topic in stored["served"]}
        self.since = {RegionPartition(*place): bucket for *place, bucket in stored["since"]}
        self.accounts = {Bucket(*key): OpenBucket(**account) for *key, account in stored["accounts"]}
        for name in ("records", "older", "equal"):
            setattr(self, name, {(region, topic): count for region, topic, count in stored[name]})

    def _account(self, key: Bucket, now_ms: int) -> OpenBucket | None:
        """The bucket's account; None if the bucket is older than every judged one."""
        if key.bucket < self.since.get(key.place, key.bucket + 1):
            return None
        return self.accounts.setdefault(key, OpenBucket(now_ms))

    def _add(self, account: OpenBucket, tally: Tally, sign: int, now_ms: int) -> None:
        for number, half in enumerate(tally.content):
            account.content[number] += sign * half
        account.touched, account.touched_ms = self.round, now_ms
        # The last verdict on it no longer applies.
        account.verdict, account.kinds, account.examples, account.by_time = "", {}, [], False

    def _decided(self, key: Bucket, account: OpenBucket, view: View) -> bool:
        if view.settled_ms is not None and account.touched_ms > view.settled_ms:
            return False
        if self.behind(key, account, view.positions):
            return False
        sources = [RegionPartition(flow.source, flow.topic, key.partition) for flow in self._into[key[:2]]]
        if any(source not in view.source_starts for source, _, _ in self._spans(key, account)):
            # Whether its records were deleted before they were copied is not known.
            return False
        return _passed(key.place, view.target_ends, view.read) and all(
            # A source that has no such partition has no record there either.
            _passed(source, view.source_ends, view.read)
            for source in sources
        )

    def _name(self, key: Bucket, account: OpenBucket, view: View) -> str:
        lacking = account.records - account.copies
        if lacking <= 0:
            account.kinds = {"unexpected": -lacking} if lacking else {"altered": 1}
            return DIFFERENT
        # Buckets share offsets with others, so this is the most that the sources can have deleted of this one.
        deleted = sum(
            max(min(view.source_starts[source], last + 1) - first, 0)
            for source, first, last in self._spans(key, account)
        )
        counts = {"never_mirrored": min(lacking, deleted), "missing": max(lacking - deleted, 0)}
        account.kinds = {kind: count for kind, count in counts.items() if count}
        return NEVER_MIRRORED if deleted else MISSING

    def _spans(self, key: Bucket, account: OpenBucket) -> Iterator[tuple[RegionPartition, int, int]]:
        """The sources of a bucket's records, each with the first and the last offset."""
        for flow in self._into[key[:2]]:
            if offsets := account.sources.get(f"{flow.source} {flow.topic}"):
                yield RegionPartition(flow.source, flow.topic, key.partition), offsets[0], offsets[1]


def bucket_of(time_ms: int) -> int:
    """The bucket that a time lies in."""
    return time_ms // BUCKET_MS


def findings(accounts: Mapping[Bucket, OpenBucket]) -> Iterator[tuple[Bucket, OpenBucket]]:
    """The buckets that were judged and are not even, the newest first."""
    for key in sorted((key for key, account in accounts.items() if account.verdict), key=lambda key: -key.bucket):
        yield key, accounts[key]


def _passed(place: RegionPartition, ends: Mapping[RegionPartition, int], read: Mapping[RegionPartition, int]) -> bool:
    return place in ends and read.get(place, 0) >= ends[place]


def _widen(offsets: list[int], tally: Tally) -> None:
    offsets[:] = [min(offsets[0], tally.first), max(offsets[1], tally.last)] if offsets else [tally.first, tally.last]
