"""One inconclusive flow leaves the others to be compared, and no failure is taken for a disproof."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from kafka import OffsetSpec, TopicPartition
from kafka.errors import TopicAuthorizationFailedError, UnsupportedForMessageFormatError
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from loosehanger.acls import AclRule
from loosehanger.errors import ExitCode, LabError, UnreachableError, WrongUseError, run_command
from loosehanger.jobs import prove
from loosehanger.kafka.cluster import Cluster, Config
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.transactions import Held, Holder
from loosehanger.lab import job_options
from loosehanger.lab.claims.claims import DeclaredAbsent, DeclaredRights, DeclaredThrough
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.record import Lab, Region
from loosehanger.lab.topology import Topology
from loosehanger.proof import cuts, flow_comparer, flow_finder, proof, session, settings_comparer, snapshot
from loosehanger.proof import run as proof_run
from loosehanger.proof.compare.comparison import Counts
from loosehanger.proof.compare.configurations import ConfigDifference, Handling
from loosehanger.proof.cuts import Cuts
from loosehanger.proof.flow_finder import FlowFinder
from loosehanger.proof.flows import Flow, FlowId
from loosehanger.proof.proof import Proof
from loosehanger.proof.read.external import two_clusters
from loosehanger.proof.read.mirrors import MirrorProgress
from loosehanger.proof.report import files
from loosehanger.proof.session import SparkEndedError, cause
from loosehanger.proof.snapshot import OffsetSnapshot
from loosehanger.proof.spark_log import SparkLog
from loosehanger.proof.verdict import judge

from ..topologies import documents, user

PLACES = {topic: TopicPartition(topic, 0) for topic in "abcd"}
MIRROR = Mirror("to-na", "europe", "na", "europe", "na", "identity", ".", "[a-d]", "", "c", {})
MIRRORS = (MIRROR, replace(MIRROR, name="to-sa", target="sa", target_alias="sa"))


class StubCluster:
    """A cluster with four topics of ten records, as far as the proof asks."""

    away: ClassVar[set[str]] = set()
    unread: ClassVar[dict[TopicPartition, str]] = {}
    ids: ClassVar[dict[str, str]] = {}
    more: ClassVar[tuple[str, ...]] = ()
    held: ClassVar[dict[str, list[Held]]] = {}
    """By region, what open transactions hold back for as long as the proof runs."""
    asked: ClassVar[list[str]] = []
    """The regions whose topics were asked for."""
    hurried: ClassVar[set[str]] = set()

    def __init__(self, region: str) -> None:
        self.region = region
        self.connection = Connection(("x:1",), username="prover")

    @classmethod
    def of(cls, region: Region, _: str) -> StubCluster:
        return cls(region.name)

    def close(self) -> None:
        """Nothing to close."""

    def __enter__(self) -> StubCluster:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def id(self) -> str:
        if self.region in self.away:
            raise UnreachableError(f"{self.region}: the cluster does not answer (gone)")
        return self.ids.get(self.region, self.region)

    def hurry(self) -> None:
        self.hurried.add(self.region)

    def topics(self) -> dict[str, int]:
        self.asked.append(self.region)
        if self.region in self.away:
            raise UnreachableError(f"{self.region}: the cluster does not answer (gone)")
        return dict.fromkeys([*PLACES, *self.more], 1)

    def start_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if self.region in self.away:
            raise UnreachableError(f"{self.region}: the cluster does not answer (gone)")
        return dict.fromkeys(partitions, 10)

    def hidden(self, _: Any) -> set[str]:
        return set()

    def transactional(self, _: Any) -> set[TopicPartition]:
        return set()

    def written_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return self.end_offsets(partitions)

    def held_back(self, ends: Mapping[TopicPartition, int]) -> list[Held]:
        held = self.held.get(self.region, ())
        return [one for one in held if TopicPartition(one.topic, one.partition) in ends]

    def configs(self, topics: Sequence[str]) -> dict[str, dict[str, Config]]:
        return {topic: {} for topic in topics}

    def rules(self) -> list[AclRule]:
        if self.region in self.away:
            raise UnreachableError(f"{self.region}: the cluster does not answer (gone)")
        return [AclRule("User:eve", "TOPIC", "a", prefix=False, operation="READ", allows=True)]

    def last_records(self, ranges: Mapping[TopicPartition, Any], _: float) -> Any:
        return {place: 9 for place in ranges if place not in self.unread}, self.unread


class Comparing:
    """Stands for the comparison: fails if one of these is among the flows, or on request."""

    def __init__(self, bad: Mapping[str, Exception]) -> None:
        self.bad = bad
        self.runs = 0

    def __call__(self, _: Any, flows: Sequence[Flow], *__: Any) -> dict[FlowId, Counts]:
        self.runs += 1
        for flow in flows:
            if flow.topic in self.bad:
                raise self.bad[flow.topic]
        return {flow.id: Counts(source_records=10, target_records=10) for flow in flows}


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Europe and two targets, with clusters that are none, and a comparison that finds nothing."""
    monkeypatch.setattr(proof_run, "Cluster", StubCluster)
    monkeypatch.setattr(proof, "LatencySampler", lambda *_: SimpleNamespace(start=lambda: None, finish=dict))
    monkeypatch.setattr(settings_comparer, "config_differences", lambda *_: ({}, {}))
    monkeypatch.setattr(
        cuts, "wait_for_mirror", lambda *_, **__: MirrorProgress("RUNNING", dict.fromkeys(PLACES.values(), 9))
    )
    monkeypatch.setattr(OffsetSnapshot, "fetch", lambda frozen: frozen)
    monkeypatch.setattr(flow_comparer, "is_alive", lambda _: True)
    monkeypatch.setattr(flow_comparer, "compare", Comparing({}))
    monkeypatch.setattr(StubCluster, "away", set())
    monkeypatch.setattr(StubCluster, "unread", {})
    monkeypatch.setattr(StubCluster, "ids", {})
    monkeypatch.setattr(StubCluster, "more", ())
    monkeypatch.setattr(StubCluster, "held", {})
    monkeypatch.setattr(StubCluster, "asked", [])
    monkeypatch.setattr(StubCluster, "hurried", set())
    monkeypatch.setattr(snapshot, "_GRACE_S", 0.0)
    mirrors = [replace(mirror, connect={"url": "x"}) for mirror in MIRRORS]
    regions = {
        name: Region(name, name, {}, {}, tuple(mirror for mirror in mirrors if mirror.target == name))
        for name in ("europe", "na", "sa")
    }
    return Lab("test", "local", "", regions)


SPARK: Any = SimpleNamespace(catalog=SimpleNamespace(clearCache=lambda: None))


def run(lab: Lab) -> tuple[dict[str, Any], dict[str, set[str]]]:
    """The document, and the topics of each verdict (of single flows)."""
    document = judge(Proof(lab, lambda _: SPARK, 1, 5, lambda _: None).run(), "test", 1.0)
    verdicts: dict[str, set[str]] = {}
    for flow in document["flows"]:
        verdicts.setdefault(flow["verdict"], set()).add(f"{flow['topic']} {flow['target']}")
    return document, verdicts


ALL = {f"{topic} {target}" for topic in PLACES for target in ("na", "sa")}


def test_everything_is_compared_at_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    comparing = Comparing({})
    monkeypatch.setattr(flow_comparer, "compare", comparing)
    document, verdicts = run(lab)
    assert (document["verdict"], verdicts, comparing.runs) == ("proved", {"proved": ALL}, 1)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            Py4JError("An error occurred while calling o1.x.\n: java.io.IOException: no\nCaused by: odd record"),
            "odd record",
        ),
        (ValueError("year 12000 is out of range"), "ValueError: year 12000 is out of range"),
    ],
)
def test_a_topic_that_cannot_be_read_hides_no_other(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    monkeypatch.setattr(flow_comparer, "compare", Comparing({"c": error}))
    document, verdicts = run(lab)
    assert document["verdict"] == "inconclusive"
    assert verdicts == {"inconclusive": {"c na", "c sa"}, "proved": ALL - {"c na", "c sa"}}
    assert [reason.partition(": ")[0] for reason in document["reasons"]] == ["c, europe → na", "c, europe → sa"]
    assert all(reason.endswith(said) for reason in document["reasons"])


def test_a_partition_whose_last_record_cannot_be_read_hides_no_other(lab: Lab) -> None:
    StubCluster.unread = {PLACES["b"]: "not within 60 s"}
    document, verdicts = run(lab)
    assert verdicts == {"inconclusive": {"b na", "b sa"}, "proved": ALL - {"b na", "b sa"}}
    assert "partition 0 at the source could not be read: not within 60 s" in document["reasons"][0]


HOLDER = Holder(5, "till-7", 75.0, 900.0)


def test_records_behind_an_open_transaction_leave_their_flows_undecided(lab: Lab) -> None:
    StubCluster.held = {"europe": [Held("b", 0, 1, 1006, HOLDER)]}
    document, verdicts = run(lab)
    assert verdicts == {"inconclusive": {"b na", "b sa"}, "proved": ALL - {"b na", "b sa"}}
    assert document["reasons"][0] == (
        "b, europe → na: in europe, up to 1,005 records of partition 0 are behind the last stable offset 1, where no "
        "consumer of committed records sees them: held by transaction 'till-7' of producer 5, open for 1.2 min "
        "(timeout 15.0 min)"
    )
    (finding,) = [
        one
        for claim in document["claims"]
        for one in claim["findings"]
        if one["kind"] == "held_back" and "na" in one["flow"]
    ]
    assert (finding["count"], finding["details"]["partitions"][0]["transactional_id"]) == (1005, "till-7")
    assert document["cut"]["europe"]["offsets"]["b"] == {"0": 1}, "what is not decided is not judged"


@pytest.mark.parametrize(
    ("region", "fault", "verdict"),
    [("europe", "unexpected", "inconclusive"), ("europe", "missing", "disproved"), ("na", "missing", "inconclusive")],
)
def test_what_an_open_transaction_hides_is_no_fault_of_the_other_side(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, region: str, fault: str, verdict: str
) -> None:
    StubCluster.held = {region: [Held("b", 0, 1, 10, HOLDER)]}
    found = Counts(source_records=10)
    setattr(found, fault, 5)
    monkeypatch.setattr(
        flow_comparer, "compare", lambda _, flows, *__: dict.fromkeys((flow.id for flow in flows), found)
    )
    _, verdicts = run(lab)
    assert "b na" in verdicts[verdict]
    assert "a na" in verdicts["disproved"]


def test_the_cut_waits_until_open_transactions_have_ended(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    StubCluster.held = {"europe": [Held("b", 0, 1, 10, HOLDER)]}
    monkeypatch.setattr(snapshot, "_GRACE_S", 600.0)
    monkeypatch.setattr("loosehanger.proof.snapshot.time.sleep", lambda _: StubCluster.held.clear())
    document, verdicts = run(lab)
    assert (document["verdict"], verdicts) == ("proved", {"proved": ALL})
    assert document["cut"]["europe"]["offsets"]["b"] == {"0": 10}


def test_a_target_that_goes_away_hides_no_other(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(*_: Any, **__: Any) -> MirrorProgress:
        StubCluster.away = {"sa"}
        return MirrorProgress("RUNNING", dict.fromkeys(PLACES.values(), 9))

    monkeypatch.setattr(cuts, "wait_for_mirror", wait)
    document, _ = run(lab)
    assert document["verdict"] == "inconclusive"
    assert document["reasons"] == ["sa: the cluster does not answer (gone)"]
    assert {flow["target"] for flow in document["flows"] if flow["source_records"]} == {"na"}


def test_a_cluster_that_falls_silent_while_it_is_read_is_asked_once_and_in_a_hurry(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeout = "java.util.concurrent.TimeoutException: Cannot fetch record for offset 3 in 10000 milliseconds"
    runs: list[set[str]] = []

    def compare(_: Any, flows: Sequence[Flow], *__: Any) -> dict[FlowId, Counts]:
        runs.append({flow.target for flow in flows})
        if len(runs) == 1:
            StubCluster.away = {"sa"}
            StubCluster.asked.clear()
            raise Py4JError(f"An error occurred while calling o1.x.\n: {timeout}")
        return {flow.id: Counts(source_records=10, target_records=10) for flow in flows}

    monkeypatch.setattr(flow_comparer, "compare", compare)
    document, verdicts = run(lab)
    assert document["reasons"] == ["sa: the cluster does not answer (gone)"]
    assert verdicts["proved"] == {f"{topic} na" for topic in PLACES}
    assert runs == [{"na", "sa"}, {"na"}]
    assert StubCluster.asked.count("sa") == 1
    assert StubCluster.hurried == {"europe", "na", "sa"}


def test_a_topic_of_which_arrival_cannot_be_told_hides_no_other(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def arrival(
        _: Mirror, __: Any, last_records: Mapping[TopicPartition, int], *___: Any, **____: Any
    ) -> MirrorProgress:
        if PLACES["c"] in last_records:
            raise UnreachableError("na: the cluster does not answer (TopicAuthorizationFailedError: c)")
        return MirrorProgress("UNKNOWN", last_records)

    monkeypatch.setattr(cuts, "wait_for_arrival", arrival)
    regions = {**lab.regions, "na": replace(lab.regions["na"], mirrors=(MIRROR,))}
    document, verdicts = run(replace(lab, regions=regions))
    assert verdicts == {"inconclusive": {"c na"}, "proved": ALL - {"c na"}}
    (reason,) = document["reasons"]
    assert reason.startswith("c, europe → na: na: the cluster does not answer")

    def away(*_: Any, **__: Any) -> MirrorProgress:
        raise UnreachableError("na: the cluster does not answer (gone)")

    monkeypatch.setattr(cuts, "wait_for_arrival", away)
    document, verdicts = run(replace(lab, regions=regions))
    assert document["reasons"] == ["na: the cluster does not answer (gone)"]


def test_every_mirror_is_waited_for_while_it_moves_on_request(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def wait(*_: Any, while_moving: bool) -> MirrorProgress:
        asked.append(while_moving)
        return MirrorProgress("RUNNING", dict.fromkeys(PLACES.values(), 9))

    monkeypatch.setattr(cuts, "wait_for_mirror", wait)
    for while_moving in (True, False):
        Proof(lab, lambda _: SPARK, 1, 5, lambda _: None, while_moving=while_moving).run()
    assert asked == [True, True, False, False]


def test_chains_topics_and_mirrors_are_waited_for_within_one_bound(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[float] = []

    def wait(_: Mirror, __: Any, timeout_s: float, *___: Any, **____: Any) -> MirrorProgress:
        left.append(timeout_s)
        return MirrorProgress("RUNNING", dict.fromkeys(PLACES.values(), 9))

    monkeypatch.setattr(cuts, "wait_for_mirror", wait)
    run(lab)
    assert len(left) == 2
    assert max(left) <= 1
    monkeypatch.setattr(FlowFinder, "_absent", lambda *_: ["one that does not come"])
    run(lab)
    assert left[2:] == [0, 0]


def test_many_flows_that_cannot_be_read_are_not_tried_for_ever(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_comparer, "_MOST_FAILURES", 3)
    comparing = Comparing(dict.fromkeys(PLACES, Py4JError("no")))
    monkeypatch.setattr(flow_comparer, "compare", comparing)
    document, verdicts = run(lab)
    assert verdicts == {"inconclusive": ALL}
    assert len(document["reasons"]) == len(ALL)
    assert comparing.runs < len(ALL)


@pytest.mark.parametrize(("looks", "verdict"), [(3, "proved"), (1000, "inconclusive")], ids=["late", "never"])
def test_what_a_chain_carries_is_waited_for_at_each_hop(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, looks: int, verdict: str
) -> None:
    left = iter(range(looks))

    def topics(cluster: StubCluster) -> dict[str, int]:
        """Topic d is made in the middle of the chain while the proof looks."""
        without = "d" if cluster.region == "na" and next(left, None) is not None else ""
        return dict.fromkeys(PLACES.keys() - {without}, 1)

    monkeypatch.setattr(StubCluster, "topics", topics)
    monkeypatch.setattr(flow_finder, "_LOOK_S", 0.1)
    arrived = MirrorProgress("UNKNOWN", dict.fromkeys(PLACES.values(), 9))
    monkeypatch.setattr(cuts, "wait_for_arrival", lambda *_, **__: arrived)
    first = lab.mirrors[0]
    second = replace(first, name="to-sa", source="na", target="sa", source_alias="na", target_alias="sa")
    regions = {
        name: replace(region, mirrors=tuple(mirror for mirror in (first, second) if mirror.target == name))
        for name, region in lab.regions.items()
    }
    through = DeclaredThrough.model_validate({"through": ["to-na", "to-sa"]})
    said: list[str] = []
    chained = replace(lab, regions=regions, declared_claims=(through,))
    document = judge(Proof(chained, lambda _: SPARK, 1, 5, said.append).run(), "test", 1.0)
    assert [line for line in said if line.startswith("waiting")] == ["waiting until na has d"]
    (claim,) = (claim for claim in document["claims"] if claim["kind"] == "through")
    assert claim["verdict"] == verdict
    assert ("d, europe → sa: has not reached na yet, as d" in document["reasons"]) == (verdict == "inconclusive")


def test_the_acls_of_a_region_are_compared_with_its_manifests(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    acl = {"resource": {"type": "topic", "name": "a"}, "operations": ["Read"]}
    eve = user("sa", "eve", authorization={"type": "simple", "acls": [acl]})
    rights = DeclaredRights.model_validate({"rights": ["na", "sa"]})
    judging = replace(lab, declared_claims=(rights,), topology=Topology(documents(eve)))

    def found() -> dict[str, tuple[str, ...]]:
        claims = [claim for claim in run(judging)[0]["claims"] if claim["kind"] == "rights"]
        return {claim["region"]: (claim["verdict"], *claim["reasons"][:1]) for claim in claims}

    named = "na has an ACL that no manifest lists: Allow Read on topic a for User:eve; mirror to-na copies ACLs"
    assert found() == {"na": ("disproved", f"{named} (sync.topic.acls.enabled)"), "sa": ("proved",)}

    def wait(*_: Any, **__: Any) -> MirrorProgress:
        StubCluster.away = {"sa"}
        return MirrorProgress("RUNNING", dict.fromkeys(PLACES.values(), 9))

    monkeypatch.setattr(cuts, "wait_for_mirror", wait)
    assert found()["sa"] == ("inconclusive", "sa: the cluster does not answer (gone)")
    assert found()["na"][0] == "disproved"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"lost": ("sa",)}, "sa is lost, as the stage wants it"),
        ({"regions": {}}, "sa has no cluster at this stage"),
    ],
)
@pytest.mark.parametrize("kind", ["rights", "absent"])
def test_a_region_that_has_no_cluster_at_a_stage_hides_no_other(
    lab: Lab, kind: str, changes: dict[str, Any], reason: str
) -> None:
    claim: Any = DeclaredRights.model_validate({"rights": ["na", "sa"]})
    if kind == "absent":
        claim = DeclaredAbsent.model_validate({"absent": {"topics": ["secret"]}, "in": "sa"})
    left = {name: region for name, region in lab.regions.items() if name != "sa"}
    changed = changes | ({"regions": left} if "regions" in changes else {})
    judging = replace(lab, declared_claims=(claim,), topology=Topology(documents(user("sa", "eve"))), **changed)
    document, _ = run(judging)
    assert not [one for one in document["reasons"] if "broke off" in one]
    found = {one["region"]: (one["verdict"], *one["reasons"]) for one in document["claims"] if one["kind"] == kind}
    assert found["sa"][0] == "inconclusive"
    assert reason in found["sa"]


def test_without_spark_the_reason_is_told_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: int | None) -> Any:
        raise SparkEndedError("Spark did not start: x")

    document = judge(Proof(lab, start, 1, 5, lambda _: None).run(), "test", 1.0)
    assert (document["verdict"], document["reasons"]) == ("inconclusive", ["Spark did not start: x"])
    monkeypatch.setattr(flow_comparer, "is_alive", lambda _: False)
    monkeypatch.setattr(flow_comparer, "compare", Comparing({"a": Py4JError("gone")}))
    document, _ = run(lab)
    (reason,) = document["reasons"]
    assert reason.startswith("Spark ended: gone; see ")


def test_a_defect_is_no_disproof(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise KeyError("never thought of")

    monkeypatch.setattr(settings_comparer, "config_differences", broken)
    document, _ = run(lab)
    assert document["verdict"] == "inconclusive"
    assert "mirror to-na: the settings could not be compared: KeyError: 'never thought of'" in document["reasons"]
    monkeypatch.setattr(Cuts, "wait_for_mirrors", broken)
    document, _ = run(lab)
    assert document["reasons"] == ["the proof broke off: KeyError: 'never thought of'"]


def test_topics_that_match_nothing_name_the_pattern(lab: Lab) -> None:
    mirrors = (replace(MIRROR, topics="orders[.].*"),)
    regions = {
        **lab.regions,
        "na": replace(lab.regions["na"], mirrors=mirrors),
        "sa": replace(lab.regions["sa"], mirrors=()),
    }
    document, _ = run(replace(lab, regions=regions))
    assert document["reasons"] == [
        "mirror to-na: europe has no topic that matches 'orders[.].*' and that the user 'prover' may see"
    ]


@pytest.fixture
def foreign(lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Foreign:
    """Makes two clusters of the user's own, on the same stubs, with everything copied."""
    del lab
    monkeypatch.setattr(cuts, "wait_for_arrival", lambda _, __, last, *___, **____: MirrorProgress("UNKNOWN", last))
    files = {name: tmp_path / f"{name}.properties" for name in ("old", "new")}
    for path in files.values():
        path.write_text("bootstrap.servers=x:1\n")
    monkeypatch.setattr(
        sys, "argv", ["prove", "--source-config", str(files["old"]), "--target-config", str(files["new"])]
    )
    return lambda topics, *more: two_clusters(files["old"], files["new"], topics, *more)


Foreign = Callable[..., Lab]


def test_one_cluster_is_not_compared_with_itself(
    foreign: Foreign, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    StubCluster.ids = {"source": "Mk3OEVBNTcw", "target": "Mk3OEVBNTcw"}
    monkeypatch.setattr(prove, "start_session", lambda *_, **__: SPARK)
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--topics", "a"])
    assert run_command(prove.main, failed=ExitCode.INCONCLUSIVE) == ExitCode.WRONG_USE
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: source and target are the same cluster (id Mk3OEVBNTcw)")
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--allow-same-cluster"])
    assert run_command(prove.main) == ExitCode.DONE
    # Under other names a topic and its copy are two, wherever they are.
    StubCluster.more = ("old.a",)
    assert run(foreign("a", "default", "old"))[0]["verdict"] == "proved"


@pytest.mark.parametrize("ids", [{"source": "", "target": ""}, {"source": "x", "target": "y"}])
def test_clusters_that_may_be_two_are_compared(foreign: Foreign, ids: dict[str, str]) -> None:
    StubCluster.ids = ids
    assert run(foreign("a"))[0]["verdict"] == "proved"


def test_a_cluster_that_is_away_is_named_and_no_wrong_use(foreign: Foreign) -> None:
    StubCluster.away = {"target"}
    assert run(foreign("a"))[0]["reasons"] == ["target: the cluster does not answer (gone)"]


def test_a_topic_that_is_named_and_not_there_leaves_it_open(foreign: Foreign, lab: Lab) -> None:
    document, verdicts = run(foreign(r"a,nowhere,b\.c,e.*"))
    assert (document["verdict"], verdicts) == ("inconclusive", {"proved": {"a target"}})
    assert document["reasons"] == [
        "source has no topic b.c, which --topics names",
        "source has no topic nowhere, which --topics names",
    ]
    assert document["notes"] == ["source has no topic that matches 'e.*' of --topics"]
    # A manifest that names topics promises them likewise.
    regions = {**lab.regions, "na": replace(lab.regions["na"], mirrors=(replace(MIRROR, topics="a,nowhere"),))}
    document, _ = run(replace(lab, regions=regions))
    assert document["verdict"] == "inconclusive"
    assert document["reasons"] == ["europe has no topic nowhere, which mirror to-na names"]


def test_a_name_that_matches_a_topic_as_a_pattern_is_there(foreign: Foreign) -> None:
    StubCluster.more = ("e-f",)
    document, _ = run(foreign("a,e.f"))
    assert (document["verdict"], len(document["flows"])) == ("proved", 2)
    assert run(foreign(r"a,e\.f"))[0]["verdict"] == "inconclusive"


def test_a_topic_that_is_named_and_left_out_leaves_it_open(foreign: Foreign, lab: Lab) -> None:
    StubCluster.more = ("state-internal",)
    document, _ = run(foreign("a,state-internal"))
    assert document["verdict"] == "inconclusive"
    (reason,) = document["reasons"]
    assert reason.startswith("source's topic state-internal is not compared, though --topics names it: ")
    # What a manifest names and excludes is meant so.
    mirrors = (replace(MIRROR, topics="a,b", topics_exclude="b"),)
    regions = {**lab.regions, "na": replace(lab.regions["na"], mirrors=mirrors)}
    document, _ = run(replace(lab, regions=regions))
    assert document["verdict"] == "proved"
    assert "europe's topic b is not compared, though mirror to-na names it" in document["notes"][0]


@pytest.mark.parametrize(
    ("handling", "verdict", "differences"),
    [
        (None, "disproved", {"a": ["partitions", "retention.ms"], "b": ["topic"], "c": ["retention.ms"]}),
        ("judge", "disproved", {"a": ["partitions", "retention.ms"], "b": ["topic"], "c": ["retention.ms"]}),
        ("ignore", "disproved", {"b": ["topic"]}),
    ],
)
def test_settings_are_judged_reported_or_left_aside(
    foreign: Foreign,
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
    handling: Handling | None,
    verdict: str,
    differences: dict[str, list[str]],
) -> None:
    waits: list[float] = []

    def differ(_: Any, __: Any, ___: Any, timeout_s: float) -> Any:
        waits.append(timeout_s)
        retention = ConfigDifference("retention.ms", "1", "2")
        return {
            "a": [ConfigDifference("partitions", "1", "2"), retention],
            "b": [ConfigDifference("topic", "b", None)],
            "c": [retention],
        }, {}

    monkeypatch.setattr(settings_comparer, "config_differences", differ)
    document = judge(
        Proof(foreign("a,b,c"), lambda _: SPARK, 9, 5, lambda _: None, configs=handling).run(), "test", 1.0
    )
    assert document["verdict"] == verdict
    found = {flow["topic"]: [entry["name"] for entry in flow["config_differences"]] for flow in document["flows"]}
    assert {topic: names for topic, names in found.items() if names} == differences
    # The default differs: a provider's settings are not judged, a lab's are.
    disproved = {flow["topic"] for flow in document["flows"] if flow["verdict"] == "disproved"}
    assert disproved == {None: {"a", "b"}, "judge": {"a", "b", "c"}, "ignore": {"b"}}[handling]
    assert waits == [9 if handling == "judge" else 0]
    if handling is None:
        _, verdicts = run(lab)
        assert verdicts["disproved"] == {f"{topic} {target}" for topic in "abc" for target in ("na", "sa")}


def test_the_option_about_settings_has_three_values() -> None:
    assert job_options.parser("prove").parse_args(["--configs", "ignore"]).configs == "ignore"
    with pytest.raises(WrongUseError, match="argument --configs: invalid choice: 'no'"):
        job_options.parser("prove").parse_args(["--configs", "no"])


@pytest.mark.parametrize(
    ("policy", "there", "said"),
    [
        ((), ("x.a",), "a, but it has x.a; if that is the copy, give --policy default --source-alias x"),
        (
            ("default", "y"),
            ("x.a",),
            "y.a, but it has x.a; if that is the copy, give --policy default --source-alias x",
        ),
        (("default", "y"), ("a",), "y.a, but it has a; if that is the copy, leave out --policy and --source-alias"),
        (
            (),
            ("x.a", "z.a"),
            "a, but it has x.a, z.a; if that is the copy, give --policy default --source-alias x or --policy default "
            "--source-alias z",
        ),
    ],
)
def test_a_copy_of_another_name_is_named_and_not_waited_for(
    foreign: Foreign, monkeypatch: pytest.MonkeyPatch, policy: tuple[str, ...], there: tuple[str, ...], said: str
) -> None:
    waited: list[TopicPartition] = []

    def arrival(_: Mirror, __: Any, last: Mapping[TopicPartition, int], *___: Any, **____: Any) -> MirrorProgress:
        waited.extend(last)
        return MirrorProgress("UNKNOWN", last)

    monkeypatch.setattr(cuts, "wait_for_arrival", arrival)
    topics = {"source": {"a": 1, "b": 1}, "target": dict.fromkeys([*there, "b", "y.b"], 1)}
    monkeypatch.setattr(StubCluster, "topics", lambda cluster: topics[cluster.region])
    monkeypatch.setattr(
        settings_comparer,
        "config_differences",
        lambda _, __, names, ___: ({t: [ConfigDifference("topic", t, None)] for t in names if t == "a"}, {}),
    )
    document, verdicts = run(foreign("a,b", *policy))
    assert (document["verdict"], verdicts) == ("inconclusive", {"inconclusive": {"a target"}, "proved": {"b target"}})
    assert document["reasons"] == [f"a, source → target: not compared: target has no topic {said}"]
    assert waited == [PLACES["b"]]


def test_a_topic_that_has_a_similar_name_at_the_source_too_is_no_copy(
    foreign: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = {"source": {"a": 1, "x.a": 1}, "target": {"x.a": 1}}
    monkeypatch.setattr(StubCluster, "topics", lambda cluster: topics[cluster.region])
    assert run(foreign("a,x.a"))[0]["reasons"] == []


def test_a_target_that_gives_its_own_times_is_named(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def configs(cluster: StubCluster, topics: Sequence[str]) -> dict[str, dict[str, Config]]:
        kind = "LogAppendTime" if cluster.region == "na" else "CreateTime"
        return {topic: {"message.timestamp.type": Config(kind, override=True, mirrored=True)} for topic in topics}

    def compared(_: Any, flows: Sequence[Flow], *__: Any) -> dict[FlowId, Counts]:
        return {
            flow.id: Counts(source_records=9, missing=9 * (flow.topic == "a"), unexpected=9 * (flow.topic == "a"))
            for flow in flows
        }

    monkeypatch.setattr(StubCluster, "configs", configs)
    monkeypatch.setattr(flow_comparer, "compare", compared)
    document, _ = run(lab)
    assert document["verdict"] == "disproved"
    named = [reason for reason in document["reasons"] if "LogAppendTime" in reason]
    assert len(named) == 1
    assert named[0].startswith("a, europe → na: na's topic a has message.timestamp.type=LogAppendTime: ")


class TestMain:
    """The ways out of ``prove.py``."""

    @pytest.fixture(autouse=True)
    def _no_lab(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(prove, "load_lab", lambda: lab)
        monkeypatch.setattr(sys, "argv", ["prove", "--json"])
        monkeypatch.setattr(prove, "start_session", lambda *_, **__: SPARK)

    def test_a_crash_is_inconclusive_and_has_its_document(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for error, said in ((BrokenPipeError("a socket"), "BrokenPipeError: a socket"), (LabError("no"), "no")):

            def broken(*_: Any, error: Exception = error) -> Any:
                raise error

            monkeypatch.setattr(prove, "judge", broken)
            assert prove.main() == ExitCode.INCONCLUSIVE
            document = json.loads(capsys.readouterr().out)
            assert document["verdict"] == "inconclusive"
            assert document["reasons"] == [f"the proof broke off: {said}"]

    def test_the_timeout_bounds_what_spark_waits_for_a_silent_broker(self, monkeypatch: pytest.MonkeyPatch) -> None:
        started: list[Any] = []

        def start(*_: Any, **named: Any) -> Any:
            started.append(named["silent_s"])
            return SPARK

        monkeypatch.setattr(prove, "start_session", start)
        monkeypatch.setattr(sys, "argv", ["prove", "--json", "--timeout", "7"])
        prove.main()
        assert started == [7]

    def test_wrong_use_stays_wrong_use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def wrong(*_: Any) -> Any:
            raise WrongUseError("no list of regular expressions")

        monkeypatch.setattr(Proof, "run", wrong)
        with pytest.raises(WrongUseError):
            prove.main()

    def test_a_report_that_cannot_be_written_takes_no_verdict_away(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        def full(*_: Any) -> None:
            raise LabError("report: cannot be written: no space left on device")

        monkeypatch.setattr(files, "write", full)
        monkeypatch.setattr(sys, "argv", ["prove", "--json", "--junit", str(tmp_path / "x.xml")])
        assert prove.main() == ExitCode.INCONCLUSIVE
        shown = capsys.readouterr()
        assert json.loads(shown.out)["verdict"] == "proved"
        assert shown.err.endswith("error: report: cannot be written: no space left on device\n")
        monkeypatch.setattr(
            flow_comparer,
            "compare",
            lambda _, flows, *__: {flow.id: Counts(source_records=1, missing=1) for flow in flows},
        )
        assert prove.main() == ExitCode.FAILED


@pytest.mark.parametrize("raised", ["LabError('x')", "ValueError('x')", "OSError('x')"])
def test_a_failure_has_the_exit_code_that_is_wanted(raised: str) -> None:
    program = (
        "import sys\nfrom loosehanger.errors import ExitCode, LabError, run_command\n"
        f"def main():\n    raise {raised}\n"
        "sys.exit(run_command(main, failed=ExitCode.INCONCLUSIVE))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.rstrip().endswith("x")


def test_a_failure_is_else_a_failure() -> None:
    def main() -> int:
        raise LabError("x")

    assert run_command(main) == ExitCode.FAILED


def test_a_verdict_is_the_exit_code_though_discard_output_on(tmp_path: Path) -> None:
    program = (
        "import os, sys\nfrom loosehanger.errors import discard_output\n"
        "try:\n    print('x' * 100000, flush=True)\nexcept BrokenPipeError:\n    discard_output()\nsys.exit(1)"
    )
    pipe = f'"$0" -c "$1" 2>{tmp_path}/err | head -c 1 >/dev/null; exit "${{PIPESTATUS[0]}}"'
    paths = {"PYTHONPATH": ":".join(sys.path), "PATH": os.environ["PATH"]}
    done = subprocess.run(["bash", "-c", pipe, sys.executable, program], env=paths, check=False)
    assert done.returncode == 1
    assert (tmp_path / "err").read_text() == ""


class Tail:
    """A consumer of partitions whose last records are followed by offsets without records; pauses as kafka-python."""

    def __init__(self, records: Mapping[TopicPartition, tuple[int, ...]], ends: Mapping[TopicPartition, int]) -> None:
        self.records, self.ends = records, ends
        self.refused: dict[TopicPartition, Exception] = {}
        self.stuck: set[TopicPartition] = set()
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()

    def __enter__(self) -> Tail:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self.positions = {place: self.positions.get(place, 0) for place in partitions}
        self.paused &= set(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        del timeout_ms
        return self.positions[partition]

    def pause(self, *partitions: TopicPartition) -> None:
        self.paused |= set(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self.paused -= set(partitions)

    def poll(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        del timeout_ms
        found = {}
        for place in self.positions.keys() - self.paused - self.stuck:
            if place in self.refused:
                raise self.refused[place]
            found[place] = [SimpleNamespace(offset=o) for o in self.records[place] if o >= self.positions[place]]
            self.positions[place] = self.ends[place]
        return {place: records for place, records in found.items() if records}


def last_records(monkeypatch: pytest.MonkeyPatch, tail: Tail, timeout_s: float = 5) -> Any:
    cluster = Cluster("europe", Connection(("x:1",)))
    monkeypatch.setattr(cluster, "consumer", lambda: tail)
    return cluster.last_records({place: (0, end) for place, end in tail.ends.items()}, timeout_s)


A, B, C = (PLACES[topic] for topic in "abc")


def test_the_last_record_is_found_before_any_number_of_aborted_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    tail = Tail({A: (0, 1), B: (98,), C: ()}, {A: 5000, B: 100, C: 300})
    assert last_records(monkeypatch, tail) == ({A: 1, B: 98}, {})


def test_a_partition_that_cannot_be_read_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    tail = Tail({A: (0, 1), B: (98,), C: (3,)}, {A: 5000, B: 100, C: 300})
    tail.refused = {B: TopicAuthorizationFailedError({"b"})}
    found, unread = last_records(monkeypatch, tail)
    assert found == {A: 1, C: 3}
    assert unread.keys() == {B}
    assert "lacks Read on topic b in europe" in unread[B]
    tail.refused, tail.stuck = {}, {B}
    assert last_records(monkeypatch, tail, 0.3) == ({A: 1, C: 3}, {B: "not within 0 s"})
    tail.stuck = {A, B, C}
    with pytest.raises(UnreachableError, match=r"europe: a-0, b-0, c-0 could not be read in 0 s"):
        last_records(monkeypatch, tail, 0.1)


def test_a_time_before_1970_is_none_of_kafkas_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def offsets(_: Any, partitions: Any, spec: Any) -> dict[TopicPartition, int]:
        asked.append(spec)
        return dict.fromkeys(partitions, 0)

    monkeypatch.setattr(Cluster, "_offsets", offsets)
    cluster = Cluster("europe", Connection(("x:1",)))
    cluster.offsets_since([A], datetime.fromisoformat("1969-12-31T23:59:59.999+00:00"))
    assert asked[1] == 0


def test_a_topic_whose_records_have_no_times_has_none_since_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka 2.8 refuses the question for a topic with a ``message.format.version`` before 0.10."""

    class Admin:
        def list_partition_offsets(self, specs: Any, **_: Any) -> dict[TopicPartition, Any]:
            if A in specs and specs[A] != OffsetSpec.LATEST:
                raise UnsupportedForMessageFormatError
            return {
                place: SimpleNamespace(offset=9 if spec == OffsetSpec.LATEST else 3) for place, spec in specs.items()
            }

    monkeypatch.setattr(Cluster, "_client", lambda _: Admin())
    cluster = Cluster("europe", Connection(("x:1",)))
    assert cluster.offsets_from([A, B, C], 1000) == {A: 9, B: 3, C: 3}
    assert cluster.offsets_at({A: 1000, C: 1000}) == {A: -1, C: 3}


KILLED = """\
2026-11-22T07:54:27,698 WARN StandaloneAppClient$ClientEndpoint: Failed to connect to master 127.0.0.1:1
org.apache.spark.SparkException: Exception thrown in awaitResult:
Caused by: java.io.IOException: Failed to connect to /127.0.0.1:1
Caused by: java.net.ConnectException: Connection refused
\tat java.base/sun.nio.ch.Net.pollConnect(Native Method)
2026-11-22T07:54:47,702 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: {reason}
2026-11-22T07:54:48,567 WARN StandaloneAppClient$ClientEndpoint: Drop UnregisterApplication(null)
"""
EXECUTOR = """\
2026-11-22T07:56:05,000 INFO StandaloneAppClient$ClientEndpoint: Executor updated: app-1/9 is now RUNNING
2026-11-22T07:56:05,446 INFO StandaloneAppClient$ClientEndpoint: Executor updated: app-1/9 is now FAILED \
(Error running executor: java.lang.IllegalStateException: Cannot find any build directories.)
"""


def test_a_cluster_that_ends_the_application_is_asked_why(tmp_path: Path) -> None:
    path = tmp_path / "spark.log"
    path.write_text("2026-11-22T07:00:00,000 ERROR X: of another job\n")
    log = SparkLog(path)
    assert log.ended() == ""
    with path.open("a") as file:
        file.write(KILLED.format(reason="All masters are unresponsive! Giving up."))
    assert log.ended() == "All masters are unresponsive! Giving up. (java.net.ConnectException: Connection refused)"
    assert str(path) in log.place()
    # A full log is moved away.
    path.write_text(EXECUTOR + KILLED.format(reason="Master removed our application: FAILED"))
    assert log.ended() == (
        "Master removed our application: FAILED "
        "(Error running executor: java.lang.IllegalStateException: Cannot find any build directories.)"
    )
    path.unlink()
    assert log.ended() == SparkLog(None).ended() == ""


def test_the_innermost_cause_of_a_java_error() -> None:
    stopped = "An error occurred while calling None.org.X.\n: java.lang.IllegalStateException: stopped\n\tat x"
    assert cause(Exception(stopped)) == "java.lang.IllegalStateException: stopped"
    assert cause(Exception(f"{stopped}\nCaused by: java.io.IOException: a\nCaused by: b")) == "b"
    assert cause(ValueError()) == "ValueError"


@pytest.mark.parametrize(
    ("records", "serial", "one_compiler"),
    [
        (0, True, True),
        (49_999, True, True),
        (50_000, True, False),
        (1_999_999, True, False),
        (2_000_000, False, False),
        (None, True, False),
    ],
)
def test_java_is_started_to_match_the_records(records: int | None, serial: bool, one_compiler: bool) -> None:
    options = session._java_options(records)
    assert ("-XX:+UseSerialGC" in options, "-XX:TieredStopAtLevel=1" in options) == (serial, one_compiler)
    assert ("-XX:+UseParallelGC" in options) != serial
