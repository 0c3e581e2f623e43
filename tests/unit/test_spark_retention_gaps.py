"""What offsets show of records that were deleted before they were mirrored, and for which flow it is reported."""

from __future__ import annotations

import struct
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from kafka import TopicPartition
from pyspark.sql import SparkSession

from loosehanger.lab.claims.claims import claims_of
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import source_topic
from loosehanger.proof.compare import retention_gaps
from loosehanger.proof.compare.comparison import Beginning, Counts
from loosehanger.proof.compare.configurations import config_differences
from loosehanger.proof.compare.retention_gaps import History, RetentionGap, Sync, Trail, explain, position_gap
from loosehanger.proof.evidence.evidence import Evidence
from loosehanger.proof.flows import Flow
from loosehanger.proof.read import records
from loosehanger.proof.read.mirrors import MirrorProgress
from loosehanger.proof.session import small_frame
from loosehanger.proof.snapshot import Cut, OffsetSnapshot
from loosehanger.proof.verdict import judge

MIRROR = Mirror("mm2-na", "europe", "na", "europe", "north-america", "identity", ".", "LH.*", "", "c", {"url": "x"})
CUT_AT = datetime(2026, 1, 1, tzinfo=UTC)
# Of 2,000 records the target has the first 500 and what comes after 1,900; the source has only the latter.
LOST = Beginning(
    partition=0,
    source_start=1900,
    source_end=2000,
    source_first=1900,
    source_left=100,
    target_start=0,
    target_end=600,
    first_copy=500,
    held=500,
    never_mirrored=0,
)
ALL = Trail(first=Sync(0, 0), last=Sync(450, 450))


@pytest.mark.parametrize(
    ("held", "transactional", "trail", "expected"),
    [
        (500, False, None, RetentionGap(at_most=1400)),
        (500, False, ALL, RetentionGap([(500, 1900)])),
        # The last sync may be where the mirror went on, and what it had skipped lies before.
        (
            500,
            False,
            Trail(Sync(0, 0), Sync(1800, 400), [(Sync(300, 300), Sync(1800, 400))]),
            RetentionGap([(400, 1800)]),
        ),
        # What was skipped before looks like a marker, so that the rest may have been aborted.
        (
            499,
            False,
            Trail(Sync(0, 0), Sync(300, 299), [(Sync(200, 200), Sync(300, 299))]),
            RetentionGap(at_most=1401),
        ),
        # Set up when the source had lost 1,400, which no mirror has promised.
        (500, False, Trail(Sync(1400, 0), Sync(1850, 450)), RetentionGap()),
        # The syncs before the hundredth copy were compacted away: 1,300 may have been lost, or never promised.
        (500, False, Trail(Sync(1400, 100), Sync(1700, 400)), RetentionGap([(1800, 1900)], at_most=1300)),
        (1900, False, None, RetentionGap()),
        (2500, False, ALL, RetentionGap()),
        # A marker for each record at most.
        (500, True, None, RetentionGap(at_most=1400)),
        (500, True, ALL, RetentionGap(at_most=1400)),
        (950, True, None, RetentionGap()),
    ],
)
def test_offsets_that_nobody_has(held: int, transactional: bool, trail: Trail | None, expected: RetentionGap) -> None:
    assert explain(LOST, held, transactional, trail, {}) == expected


def test_what_sequence_numbers_have_told_is_not_told_again() -> None:
    reported = replace(LOST, never_mirrored=1400)
    assert explain(reported, 500, False, None, {}) == RetentionGap()
    assert History({0: RetentionGap([(500, 1900)])}).never_mirrored([reported]) == 0
    assert History({0: RetentionGap([(500, 1900)])}).never_mirrored([LOST]) == 1400


def test_the_markers_of_a_target_are_no_copies() -> None:
    # Of 50 offsets after the last sync, 30 are records.
    assert explain(LOST, 500, False, ALL, {(450, 500): 30}) == RetentionGap([(480, 1900)])


def test_a_position_before_the_beginning() -> None:
    assert position_gap(499, 1900) == (500, 1900)
    assert position_gap(1899, 1900) is None
    assert position_gap(None, 1900) is None


def sync(number: int, topic: str, partition: int, upstream: int, downstream: int) -> tuple[Any, ...]:
    """A record of offset syncs, as MM2 writes it."""
    name = topic.encode()
    key = struct.pack(f">h{len(name)}si", len(name), name, partition)
    value = struct.pack(">qq", upstream, downstream)
    return key, value, "mm2-offset-syncs.europe.internal", 0, number, datetime(2026, 1, 1, tzinfo=UTC), None


def test_what_offset_syncs_say(spark: SparkSession) -> None:
    written = [
        *(("LH.Ä", 0, 7, 0), ("LH.Ä", 0, 107, 100), ("LH.B", 1, 5, 5)),
        *(("LH.Ä", 0, 150, 140), ("LH.Ä", 0, 600, 150), ("LH.Ä", 0, 700, 250)),
        *(("LH.B", 0, 2**40, 2**40), ("LH.B", 1, 900, 900), ("LH.B", 1, 0, 950), ("LH.B", 1, 50, 1000)),
        # The target was made anew.
        *(("LH.E", 0, 0, 0), ("LH.E", 0, 450, 450), ("LH.E", 0, 1900, 500)),
        *(("LH.C", 0, 0, 0), ("LH.C", 0, 300, 300), ("LH.C", 0, 301, 0), ("LH.C", 0, 401, 100)),
    ]
    frame = spark.createDataFrame([sync(number, *entry) for number, entry in enumerate(written)], records.RECORD_SCHEMA)
    bounds = [
        ("LH.Ä", 0, 650, 200),
        ("LH.B", 1, 0, 950),
        ("LH.C", 0, 350, 100),
        ("LH.D", 0, 1, 1),
        ("LH.E", 0, 1900, 500),
    ]
    found = retention_gaps.trails(
        retention_gaps.offset_syncs(frame),
        small_frame(spark, bounds, "topic string, partition int, source_start long, first_copy long"),
    )
    assert found == {
        TopicPartition("LH.Ä", 0): Trail(
            Sync(7, 0),
            Sync(600, 150),
            ((Sync(107, 100), Sync(150, 140)), (Sync(150, 140), Sync(600, 150))),
            highest=700,
        ),
        TopicPartition("LH.B", 1): Trail(Sync(5, 5), None, back=0, highest=900),
        TopicPartition("LH.C", 0): Trail(Sync(301, 0), Sync(301, 0), highest=401),
        # The mirror went on with the first record that the source has left.
        TopicPartition("LH.E", 0): Trail(Sync(0, 0), Sync(450, 450), highest=1900),
    }


class Source:
    """A source's cluster, as far as it is asked."""

    def __init__(self, written: int = 0, transactional: bool = False) -> None:
        self.written = written
        self.writes_transactions = transactional

    def written_offsets(self, partitions: Any) -> dict[TopicPartition, int]:
        """Where they end."""
        return dict.fromkeys(partitions, self.written)

    def transactional(self, partitions: Any) -> set[TopicPartition]:
        """Those with such a producer."""
        return set(partitions) if self.writes_transactions else set()

    def topics(self) -> dict[str, int]:
        """No offset syncs."""
        return {}


def test_an_archive_holds_nothing_of_what_this_source_has_let_go() -> None:
    again = replace(LOST, archive=4000, target_start=4000, target_end=4600, first_copy=4500)
    trail = Trail(first=Sync(0, 4000), last=Sync(450, 4450))
    assert explain(again, 500, False, trail, {}) == RetentionGap([(500, 1900)])
    # The syncs before the hundredth copy were compacted away.
    late = Trail(Sync(1400, 4100), Sync(1700, 4400))
    assert explain(again, 500, False, late, {}) == RetentionGap([(1800, 1900)], at_most=1300)
    found = look(Source(2000), "RUNNING", 1999, 1900, 2000, archive=4000, beginnings=[again])
    assert found == History({0: RetentionGap(at_most=1400)})


def look(
    source: Source, state: str, position: int | None, start: int, end: int, archive: int = 0, **counts: Any
) -> History | None:
    """What is found in one partition of one flow."""
    place = TopicPartition("LH.A", 0)
    flow = Flow(MIRROR, "LH.A", "LH.A")
    positions = {} if position is None else {place: position}
    clusters: Any = {"europe": source, "north-america": Source()}
    frozen = OffsetSnapshot(
        clusters,
        {"north-america": {place: (archive, archive + 600)}},
        {"europe": {place: (start, end)}},
        {},
        CUT_AT,
        archives={"north-america": {place: archive}},
    )
    found = retention_gaps.retention_gaps(
        None,  # type: ignore[arg-type]
        [flow],
        {flow.id: Counts(**counts)},
        {"europe": Cut(CUT_AT, {place: (start, end)}, {}, {})},
        {flow.mirror.id: MirrorProgress(state, positions)},
        frozen,
    )
    return found.get(flow.id)


def test_a_mirror_at_rest_before_what_was_deleted_gives_the_range() -> None:
    found = look(Source(2000), "STOPPED", 499, 1900, 2000)
    assert found == History({0: RetentionGap([(500, 1900)])})
    # One that runs may have copied it a moment ago; and in transactions, markers and aborted records have no copies.
    assert look(Source(2000), "RUNNING", 499, 1900, 2000) == History({0: RetentionGap(at_most=1400)})
    assert look(Source(2000, transactional=True), "STOPPED", 499, 1900, 2000) == History(
        {0: RetentionGap(at_most=1400)}
    )
    assert look(Source(2000, transactional=True), "STOPPED", 1897, 1900, 2000) is None
    assert look(Source(2000), "STOPPED", 1899, 1900, 2000) is None
    assert look(Source(2000), "STOPPED", None, 1900, 2000) is None


def test_a_position_beyond_the_end_tells_of_a_topic_made_again() -> None:
    said = "the mirror has copied source offset 499, and the source ends at 20"
    assert look(Source(20), "RUNNING", 499, 0, 20) == History(made_again={0: said})
    # Of a transaction that is still open, the mirror may have read.
    assert look(Source(500), "RUNNING", 499, 0, 20) is None
    assert look(Source(500), "RUNNING", 499, 0, 500) is None


@pytest.mark.parametrize("policy", ["identity", "default"])
def test_a_name_at_the_target_leads_to_the_one_at_the_source(policy: str) -> None:
    mirror = replace(MIRROR, policy=policy)
    assert source_topic(mirror, "europe.LH.A") == ("europe.LH.A" if policy == "identity" else "LH.A")
    assert source_topic(mirror, "LH.A") == ("LH.A" if policy == "identity" else None)


def evidence(**finding: Any) -> Evidence:
    """Of two flows; something is found in the first."""
    flows = [Flow(MIRROR, topic, topic) for topic in ("LH.A", "LH.B")]
    cut = Cut(datetime(2026, 1, 1, tzinfo=UTC), {}, {}, {})
    return Evidence(
        claims=claims_of([MIRROR]),
        flows=flows,
        cuts={"europe": cut},
        counts={flow.id: Counts(source_records=10, target_records=10) for flow in flows},
        histories={flows[0].id: History(**finding)},
    )


def test_a_range_disproves_and_a_bound_leaves_it_open() -> None:
    document = judge(evidence(retention_gaps={2: RetentionGap([(500, 1900)])}), "s", 1.0)
    assert (document["verdict"], document["flows"][0]["never_mirrored"]) == ("disproved", 1400)
    assert document["reasons"] == [
        "LH.A, europe → north-america: 1,400 deleted at the source before they were mirrored",
        "LH.A, europe → north-america: partition 2: source offsets 500 to 1,899 were deleted before they were mirrored",
    ]
    document = judge(evidence(retention_gaps={2: RetentionGap(at_most=7)}), "s", 1.0)
    assert document["verdict"] == "inconclusive"
    assert document["reasons"] == [
        "LH.A, europe → north-america: partition 2: at most 7 records may have been deleted at the source before they "
        "were mirrored"
    ]
    assert [flow["verdict"] for flow in document["flows"]] == ["inconclusive", "proved"]


def test_a_topic_made_again_is_told_beside_what_it_explains() -> None:
    found = evidence(made_again={0: "why"})
    said = "LH.A, europe → north-america: partition 0: the topic seems to have been recreated at the source: why"
    assert judge(found, "s", 1.0)["verdict"] == "proved"
    counts = found.counts[found.flows[0].id]
    # Retention cannot be distinguished from the end of an earlier topic.
    counts.expired = 3
    document = judge(found, "s", 1.0)
    assert (document["verdict"], document["reasons"]) == ("inconclusive", [said])
    counts.unexpected = 3
    document = judge(found, "s", 1.0)
    assert (document["verdict"], document["reasons"][1:]) == ("disproved", [said])


def test_a_topic_that_is_only_at_the_target_is_no_doubt_of_the_others() -> None:
    found = evidence()
    gone = Flow(MIRROR, "LH.GONE", "LH.GONE")
    found.only_at_target.append(gone)
    found.add("only_at_target", gone, {"topic": "LH.GONE", "source": "europe", "certain": True, "lacks": ""})
    document = judge(found, "s", 1.0)
    assert document["verdict"] == "inconclusive"
    assert [flow["verdict"] for flow in document["flows"]] == ["proved", "proved"]


def test_settings_that_may_not_be_described_are_not_compared() -> None:
    class Cluster:
        """Of two topics, with a setting that differs, and a right that is missing on one."""

        def __init__(self, region: str, value: str) -> None:
            self.region, self.value = region, value

        def topics(self) -> dict[str, int]:
            return {"LH.A": 1, "LH.B": 1}

        def configs(self, _: Any) -> dict[str, dict[str, Any]]:
            from loosehanger.kafka.cluster import Config

            known = {"retention.ms": Config(self.value, override=True, mirrored=True)}
            return {"LH.A": known} if self.region == "there" else {"LH.A": known, "LH.B": known}

        def lacks(self, right: str, topic: str) -> str:
            return f"{right} on {topic} in {self.region}"

    here: Any = Cluster("here", "1")
    there: Any = Cluster("there", "2")
    different, unknown = config_differences(here, there, {"LH.A": "LH.A", "LH.B": "LH.B"}, 0)
    assert [difference.name for difference in different["LH.A"]] == ["retention.ms"]
    assert "LH.B" not in different
    assert unknown == {"LH.B": "DescribeConfigs on LH.B in there"}
