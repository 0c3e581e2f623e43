"""From what was found to verdict, exit code, document and the text for people."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition
from rich.console import Console

from loosehanger.errors import WrongUseError
from loosehanger.kafka.cluster import Config
from loosehanger.lab.claims.claims import claims_of
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.proof import submit
from loosehanger.proof.compare.comparison import Counts
from loosehanger.proof.compare.configurations import ConfigDifference
from loosehanger.proof.evidence.evidence import Evidence
from loosehanger.proof.evidence.group_offsets import GroupOffsets, GroupPosition
from loosehanger.proof.flows import Flow
from loosehanger.proof.read.mirrors import MirrorProgress, standing
from loosehanger.proof.report.tables import show_proof
from loosehanger.proof.snapshot import Cut
from loosehanger.proof.verdict import EXIT_CODES, judge

MIRROR = Mirror("mm2-na", "europe", "na", "europe", "north-america", "identity", ".", "LH.*", "", "c", {})
FLOW = Flow(MIRROR, "LH.ORDERS", "LH.ORDERS")


def evidence(policy: str = "delete", **counts: Any) -> Evidence:
    """Of one flow."""
    ranges = {TopicPartition("LH.ORDERS", partition): (0, 50) for partition in range(2)}
    configs = {"LH.ORDERS": {"cleanup.policy": Config(policy, override=False, mirrored=False)}}
    return Evidence(
        claims=claims_of([MIRROR]),
        flows=[FLOW],
        cuts={"europe": Cut(datetime(2026, 1, 1, tzinfo=UTC), ranges, {}, configs)},
        counts={FLOW.id: Counts(**{"source_records": 100, "target_records": 100} | counts)},
    )


def behind(found: Evidence) -> Evidence:
    """The same, with a mirror that has stopped."""
    last = {TopicPartition("LH.ORDERS", 0): 4}
    found.add("mirror_behind", MIRROR, standing(MIRROR, MirrorProgress("STOPPED"), last))
    return found


def test_a_proof() -> None:
    document = judge(evidence(after_cut=20, source_gaps=3, expired=2), "03-broadcast", 10.0)
    assert document["verdict"] == "proved"
    assert document["reasons"] == []
    assert document["records_per_second"] == 22
    assert document["cut"]["europe"] == {
        "at": "2026-01-01T00:00:00.000+00:00",
        "offsets": {"LH.ORDERS": {"0": 50, "1": 50}},
    }
    (flow,) = document["flows"]
    assert flow["partitions"] == 2
    assert flow["latency_ms"] == {
        "p50": None,
        "p95": None,
        "p99": None,
        "max": None,
        "samples": 0,
        "histogram": [],
    }
    assert json.loads(json.dumps(document)) == document


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        *((name, name) for name in ("missing", "duplicates", "reordered", "unexpected", "altered")),
        ("moved", "moved to another partition"),
        ("never_mirrored", "deleted at the source before they were mirrored"),
    ],
)
def test_every_fault_disproves(fault: str, said: str) -> None:
    found = evidence()
    setattr(found.counts[FLOW.id], fault, 2)
    document = judge(found, "s", 1.0)
    assert document["verdict"] == "disproved"
    assert document["reasons"] == [f"LH.ORDERS, europe → north-america: 2 {said}"]


def test_a_difference_disproves_although_something_else_is_undecided() -> None:
    assert judge(behind(evidence(missing=1)), "s", 1.0)["verdict"] == "disproved"


def test_a_changed_configuration_disproves() -> None:
    found = evidence()
    found.configs[FLOW.id] = [ConfigDifference("retention.ms", "1", None)]
    document = judge(found, "s", 1.0)
    assert document["verdict"] == "disproved"
    assert document["reasons"] == ["LH.ORDERS, europe → north-america: retention.ms differs: source 1, target not set"]
    assert document["flows"][0]["config_differences"] == [{"name": "retention.ms", "source": "1", "target": None}]
    assert document["totals"]["config_differences"] == 1


def test_settings_that_are_only_reported_disprove_nothing() -> None:
    found = evidence()
    others = [replace(FLOW, topic=f"LH.{number}", target_topic=f"LH.{number}") for number in range(6)]
    found.flows += others
    found.handling = "report"
    for flow in (FLOW, *others):
        found.configs[flow.id] = [ConfigDifference("retention.ms", "1", "2")]
    found.configs[FLOW.id] = [*found.configs[FLOW.id], ConfigDifference("segment.bytes", "5", None)]
    document = judge(found, "s", 1.0)
    assert (document["verdict"], document["reasons"]) == ("proved", [])
    assert document["notes"] == [
        "retention.ms differs: source 1, target 2, of 7 topics (LH.ORDERS, LH.0, LH.1, LH.2, LH.3, …); not judged",
        "segment.bytes differs: source 5, target not set, of topic LH.ORDERS; not judged",
    ]
    assert document["totals"]["config_differences"] == 8
    # These are no settings of a provider's.
    found.configs[FLOW.id] = [ConfigDifference("partitions", "3", "6"), ConfigDifference("topic", "LH.ORDERS", None)]
    document = judge(found, "s", 1.0)
    assert (document["verdict"], len(document["reasons"])) == ("disproved", 2)
    assert "LH.ORDERS, europe → north-america: the target has no copy of topic LH.ORDERS" in document["reasons"]


def test_records_deleted_at_the_target_are_named() -> None:
    document = judge(evidence(missing=1, truncated={0: 7}), "s", 1.0)
    assert document["reasons"][1] == (
        "LH.ORDERS, europe → north-america: the target's partition 0 begins at offset 7, records before it were deleted"
    )


def test_undecided_is_inconclusive() -> None:
    document = judge(behind(evidence()), "s", 1.0)
    assert document["verdict"] == "inconclusive"
    assert document["reasons"] == ["mirror mm2-na is STOPPED, 5 records behind"]


def test_nothing_at_the_source_is_no_proof() -> None:
    document = judge(evidence(source_records=0, target_records=0), "s", 1.0)
    assert document["verdict"] == "inconclusive"
    assert document["reasons"] == ["nothing to prove: the mirrored topics have no records at the source"]


def test_nothing_since_a_moment_is_not_nothing_at_all() -> None:
    found = evidence(source_records=0, target_records=0)
    found.since = datetime(2026, 1, 2, tzinfo=UTC)
    assert judge(found, "s", 1.0)["reasons"] == ["nothing to prove: the mirrored topics have no records at the source"]
    ((region, cut),) = found.cuts.items()
    found.cuts[region] = replace(cut, last_records={TopicPartition("LH.ORDERS", 0): 49})
    document = judge(found, "s", 1.0)
    assert document["verdict"] == "inconclusive"
    assert document["reasons"] == [
        "nothing to prove: every record of the mirrored topics is older than 2026-01-02T00:00:00.000+00:00 (--since)"
    ]


def test_exit_codes() -> None:
    assert {verdict: int(code) for verdict, code in EXIT_CODES.items()} == {
        "proved": 0,
        "disproved": 1,
        "inconclusive": 4,
    }


def _shown(document: dict[str, Any], width: int) -> str:
    output = io.StringIO()
    show_proof(document, Console(file=output, width=width, highlight=False))
    return output.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_the_text_fits_and_ends_in_the_verdict(width: int) -> None:
    example = {
        "kind": "missing",
        "partition": 1,
        "source_offset": 7,
        "target_offset": None,
        "key": "a[b]",
        "timestamp": "2026-01-01T00:00:00.000+00:00",
    }
    text = _shown(judge(evidence(missing=1, examples=[example]), "s", 2.0), width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "\x1b" not in text
    flat = " ".join(text.split())
    assert "missing: LH.ORDERS-1, source offset 7, key a[b], 2026-01-01T00:00:00.000+00:00" in flat
    assert flat.rpartition("disproved:")[2].strip() == (
        "100 records of 1 topic compared with north-america: 1 missing, 0 duplicates, 0 altered, 0 unexpected, "
        "0 reordered, 0 configuration differences (2.0 s)"
    )


def test_a_proof_in_one_sentence() -> None:
    flat = " ".join(_shown(judge(evidence(source_records=12345), "s", 2.0), 200).split())
    assert "proved: 12,345 records of 1 topic are in north-america: 0 missing, 0 duplicates" in flat


class TestSubmit:
    """The launcher."""

    @pytest.fixture
    def home(self, tmp_path: Path) -> Path:
        """An installed kit, as far as the launcher looks."""
        for name in ("java-spark/bin/java", "jars/spark/a.jar"):
            path = tmp_path / name
            path.parent.mkdir(parents=True)
            path.touch()
        return tmp_path

    def test_an_environment_for_this_machine(self, home: Path) -> None:
        found = submit.environment(home, "local[*]", "1g", ["spark.x=y z"])
        assert found["JAVA_HOME"] == str(home / "java-spark")
        assert found["SPARK_LOCAL_IP"] == "127.0.0.1"
        assert "--conf 'spark.x=y z'" in found["PYSPARK_SUBMIT_ARGS"]
        assert found["PYSPARK_SUBMIT_ARGS"].endswith("pyspark-shell")

    def test_an_environment_for_a_cluster(self, home: Path) -> None:
        found = submit.environment(home, "spark://host:7077", "2g", [])
        assert f"--jars {home}/jars/spark/a.jar" in found["PYSPARK_SUBMIT_ARGS"]
        assert "bindAddress" not in found["PYSPARK_SUBMIT_ARGS"]

    def test_what_is_missing_is_said(self, tmp_path: Path, home: Path) -> None:
        with pytest.raises(WrongUseError, match="run the set-up"):
            submit.environment(tmp_path / "nowhere", "local[*]", "1g", [])
        with pytest.raises(WrongUseError, match="NAME=VALUE"):
            submit.environment(home, "local[*]", "1g", ["spark.x"])

    @pytest.mark.parametrize(
        ("arguments", "code"), [(["prove", "--timeout", "-1"], 2), (["prove", "--bogus"], 2), (["x"], 2)]
    )
    def test_wrong_use(self, home: Path, arguments: list[str], code: int) -> None:
        ended = subprocess.run(
            [sys.executable, "-m", "loosehanger.proof.submit", *arguments],
            env={"LAB_HOME": str(home), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == code
        assert ended.stdout == ""
        assert "Traceback" not in ended.stderr

    def test_nothing_set_up(self, home: Path) -> None:
        ended = subprocess.run(
            [sys.executable, "-m", "loosehanger.proof.submit", "prove", "--json"],
            env={"LAB_HOME": str(home), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 3
        assert ended.stdout == ""
        assert ended.stderr.startswith("error: nothing is set up")


def test_a_group_that_would_skip_records_disproves_and_one_that_reads_again_does_not() -> None:
    found = evidence()
    positions = (GroupPosition(0, 30, 40, 20, 10), GroupPosition(1, 30, 10, 20, 40))
    found.groups = {FLOW.id: [GroupOffsets("shop", positions)]}
    document = judge(found, "x", 1.0)
    where = "LH.ORDERS, europe → north-america: "
    assert document["verdict"] == "disproved"
    assert document["reasons"] == [
        f"{where}group shop would skip 10 records after a switch, as its offsets at the target are ahead: "
        "10 of partition 0"
    ]
    assert document["notes"] == [f"{where}group shop would read 20 records again after a switch"]
    assert document["flows"][0]["groups"] == [
        {"group": "shop", "skipped": 10, "read_again": 20, "without_offset": []},
    ]
    found.group_handling = "report"
    assert judge(found, "x", 1.0)["verdict"] == "proved"


@pytest.mark.parametrize(("copies", "verdict"), [(5, "disproved"), (0, "proved")])
def test_a_group_without_an_offset_begins_somewhere_unless_there_is_nothing(copies: int, verdict: str) -> None:
    found = evidence()
    found.groups = {FLOW.id: [GroupOffsets("shop", (GroupPosition(1, 0, None, 5, copies),))]}
    document = judge(found, "x", 1.0)
    assert document["verdict"] == verdict
    if copies:
        assert "group shop has no offset at the target in partition 1: " in document["reasons"][0]


@pytest.mark.parametrize(
    ("policy", "counts", "verdict", "reason"),
    [
        ("delete", {"missing": 1}, "disproved", "the copy is disproved"),
        ("delete", {"reordered": 1}, "inconclusive", "the copy is in another order"),
        ("compact", {}, "inconclusive", "the topic is compacted"),
    ],
)
def test_groups_are_judged_where_the_copy_is_in_step(
    policy: str, counts: dict[str, int], verdict: str, reason: str
) -> None:
    found = evidence(policy, **counts)
    found.order = "ignore"
    found.groups = {FLOW.id: [GroupOffsets("shop", (GroupPosition(0, 30, 40, 20, 10),))]}
    document = judge(found, "x", 1.0)
    assert document["verdict"] == verdict
    assert document["reasons"][-1].endswith(f"the offsets of group shop are not judged: {reason}")
