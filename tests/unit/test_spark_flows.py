"""Several flows of one topic into one region, under the names that the default policy gives: each by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from kafka import TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.lab.claims.claims import DeclaredContains, claims_of
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import selected_topics, target_topic
from loosehanger.proof.compare.comparison import Comparison
from loosehanger.proof.evidence.evidence import Evidence
from loosehanger.proof.flows import Flow
from loosehanger.proof.judge import FAULT_KEYS
from loosehanger.proof.read.batches import Ranges
from loosehanger.proof.read.mirrors import MirrorProgress
from loosehanger.proof.snapshot import Cut, OffsetSnapshot
from loosehanger.proof.verdict import judge

from .test_spark_comparison import CUT_AT, EVENTS, FOREIGN, Record, _row, frame_of
from .test_spark_targets import PARTITIONS, log

pytestmark = [
    pytest.mark.spark,
    # PySpark leaves it to the garbage collector to close the sockets that results come through.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

Topics = Mapping[str, Sequence[Record]]
HERE, THERE = "north-america", "south-america"
"""Two sources; the target is Europe."""


def to_europe(source: str, name: str = "mm2", **changes: Any) -> Mirror:
    """A mirror, with the default policy and of everything where nothing else is said."""
    alias = source.replace("-", "")
    found = Mirror(name, alias, "europe", source, "europe", "default", ".", ".*", "", "c", {}, region="europe")
    return replace(found, **changes)


# Held once two records had been copied; others have written since.
HELD = to_europe(HERE, "held", policy="identity", topics="contained", state="stopped")
CLAIMS = [DeclaredContains.model_validate({"contains": "held", "until": "snapshot"})]
SNAPSHOTS = {HELD.id: {"contained": {0: 2}}}


@dataclass(frozen=True)
class World:
    """What there is: mirrors, and each region's topics."""

    mirrors: Sequence[Mirror]
    regions: Mapping[str, Topics]


def compare(spark: SparkSession, world: World, behind: Mapping[str, int] | None = None) -> dict[str, Any]:
    """The proof's document of everything that the world's mirrors copy; of those in ``behind`` up to an offset."""
    ranges: dict[str, dict[TopicPartition, tuple[int, int]]] = {}
    frames: dict[str, DataFrame] = {}
    for region, topics in world.regions.items():
        rows: list[tuple[Any, ...]] = []
        for name, written in topics.items():
            for partition in range(PARTITIONS):
                own = [(offset, record) for offset, record in log(written) if record.partition == partition]
                ranges.setdefault(region, {})[TopicPartition(name, partition)] = (0, len(own))
                rows += [_row(name, offset, record) for offset, record in own]
        frames[region] = frame_of(spark, rows)

    def read(region: str, wanted: Ranges) -> DataFrame:
        bounds = spark.createDataFrame(
            [(*partition, *offsets) for partition, offsets in wanted.items()],
            "topic string, partition int, from long, to long",
        )
        known = frames[region].join(F.broadcast(bounds), ["topic", "partition"])
        return known.where("offset >= from AND offset < to").drop("from", "to")

    sources = {mirror.source for mirror in world.mirrors}
    flows = [
        Flow(mirror, topic, target_topic(mirror, topic))
        for mirror in world.mirrors
        for topic in selected_topics(mirror, world.regions[mirror.source])
    ]
    cuts = {
        region: Cut(CUT_AT, ranges[region], {place: end - 1 for place, (_, end) in ranges[region].items() if end}, {})
        for region in sources
    }
    positions = {
        mirror.id: {
            place: (behind or {}).get(mirror.name, last + 1) - 1
            for place, last in cuts[mirror.source].last_records.items()
        }
        for mirror in world.mirrors
    }
    claims = claims_of(world.mirrors, CLAIMS, snapshots=SNAPSHOTS)
    windows = {mirror: claim.window for claim in claims for mirror in claim.mirrors if claim.window is not None}
    found = Comparison(
        spark,
        flows,
        cuts,
        {mirror: MirrorProgress("RUNNING", known) for mirror, known in positions.items()},
        OffsetSnapshot(
            {},
            {"europe": ranges["europe"]},
            {region: ranges[region] for region in sources},
            {"europe": {}},
            CUT_AT,
        ),
        read,
        {flow.id: windows[flow.mirror.id][flow.topic] for flow in flows if flow.mirror.id in windows},
    ).run(5)
    evidence = Evidence(
        claims=claims,
        flows=flows,
        topics={region: set(topics) for region, topics in world.regions.items()},
        counts=found,
    )
    return judge(evidence, "test", 1.0)


def faults(document: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, int]]:
    """What was found in each flow that is not proved: by its mirror's name and source, and its topic."""
    return {
        (f"{flow['mirror']} {flow['source']}", flow["topic"]): {name: flow[name] for name in FAULT_KEYS if flow[name]}
        for flow in document["flows"]
        if flow["verdict"] != "proved"
    }


FIRST, SECOND, *REST = EVENTS
DAMAGE: dict[str, tuple[Sequence[Record], dict[str, int]]] = {
    "one lost": ([FIRST, *REST], {"missing": 1}),
    "one twice": ([*EVENTS, FIRST], {"duplicates": 1}),
    "one altered": ([replace(FIRST, value=b"w"), SECOND, *REST], {"altered": 1}),
    "headers lost": ([replace(FIRST, headers=None), SECOND, *REST], {"altered": 1}),
    "one moved": ([replace(FIRST, partition=1), SECOND, *REST], {"moved": 1}),
    "two swapped": ([SECOND, FIRST, *REST], {"reordered": 1}),
    "a local record": ([*EVENTS, FOREIGN], {"unexpected": 1}),
    "everything lost": ([], {"missing": len(EVENTS)}),
}


OTHERS = [Record(b"other", b"%d" % number) for number in range(3)]
MIRRORS = [
    to_europe(HERE, topics_exclude="merged,contained"),
    to_europe(THERE, topics_exclude="merged"),
    # Of one source's topic, a second copy under another name; and another one into the same topic.
    to_europe(HERE, "renaming", source_alias="other", topics="renamed"),
    to_europe(HERE, "again", topics="twice"),
    HELD,
    # Two sources in one topic.
    *(to_europe(source, "merging", policy="identity", topics="merged") for source in (HERE, THERE)),
]
REGIONS: Mapping[str, Topics] = {
    HERE: {**dict.fromkeys(DAMAGE, EVENTS), "renamed": EVENTS, "twice": EVENTS, "merged": EVENTS, "contained": EVENTS},
    THERE: {**dict.fromkeys(DAMAGE, EVENTS), "merged": OTHERS},
    "europe": {
        **{f"northamerica.{name}": EVENTS for name in DAMAGE},
        **{f"southamerica.{name}": damaged for name, (damaged, _) in DAMAGE.items()},
        "northamerica.renamed": EVENTS,
        "other.renamed": [FIRST, SECOND, REST[1]],
        "northamerica.twice": [*EVENTS, *EVENTS],
        "merged": [*EVENTS, *OTHERS],
        "contained": [FIRST, SECOND, *OTHERS, FIRST],
    },
}


@pytest.fixture(scope="module")
def document(spark: SparkSession) -> dict[str, Any]:
    """The proof of all of it, in one run; one mirror has copied three records so far."""
    return compare(spark, World(MIRRORS, REGIONS), behind={"renaming": 3})


def test_damage_under_a_prefixed_name_is_told_of_its_flow_only(document: dict[str, Any]) -> None:
    found = faults(document)
    assert {topic: found[f"mm2 {THERE}", topic] for topic in DAMAGE} == {
        name: reported for name, (_, reported) in DAMAGE.items()
    }
    assert [topic for mirror, topic in found if mirror == f"mm2 {HERE}"] == ["twice"]


def test_two_names_of_one_topic_are_judged_by_themselves_each_as_far_as_its_mirror_has_come(
    document: dict[str, Any],
) -> None:
    assert faults(document)[f"renaming {HERE}", "renamed"] == {"missing": 1}
    judged = {flow["mirror"]: flow["source_records"] for flow in document["flows"] if flow["topic"] == "renamed"}
    assert judged == {"mm2": len(EVENTS), "renaming": 3}


def test_an_order_that_two_mirrors_copy_is_told_of_both(document: dict[str, Any]) -> None:
    found = faults(document)
    assert found[f"mm2 {HERE}", "twice"] == found[f"again {HERE}", "twice"] == {"duplicates": len(EVENTS)}
    assert any("by mm2: mirror again writes into the same topic" in reason for reason in document["reasons"])


def test_two_sources_in_one_topic_are_told_of_both(document: dict[str, Any]) -> None:
    found = faults(document)
    assert found[f"merging {HERE}", "merged"] == {"unexpected": len(OTHERS)}
    assert found[f"merging {THERE}", "merged"] == {"unexpected": len(EVENTS)}


def test_up_to_its_mark_everything_is_there_whatever_others_write(document: dict[str, Any]) -> None:
    (flow,) = (flow for flow in document["flows"] if flow["mirror"] == "held")
    found = {name: flow[name] for name in ("source_records", "missing", "unexpected", "duplicates")}
    assert (flow["verdict"], found) == (
        "proved",
        {"source_records": 2, "missing": 0, "unexpected": len(OTHERS), "duplicates": 1},
    )
    (claim,) = (claim for claim in document["claims"] if claim["kind"] == "contains")
    assert claim["says"].endswith("takes from north-america, up to the fence of the mirror")


def test_each_mirror_has_a_claim_with_the_findings_of_its_own_flows(document: dict[str, Any]) -> None:
    for claim in document["claims"]:
        assert {finding["flow"] for finding in claim["findings"]} <= set(claim["flows"])
