"""What a proof of configured flows compares, and why something is never proved: by what the clusters have."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from loosehanger.errors import WrongUseError
from loosehanger.kafka.cluster import Cluster
from loosehanger.mirrorproof.configuration import read_configuration
from loosehanger.mirrorproof.flows_job import complete
from loosehanger.proof.compare.comparison import Counts
from loosehanger.proof.evidence.evidence import Evidence
from loosehanger.proof.flow_finder import FlowFinder
from loosehanger.proof.run import ProofRun
from loosehanger.proof.verdict import judge

HEAD = """\
clusters:
  old: {properties: {bootstrap.servers: "old:9092"}}
  new: {properties: {bootstrap.servers: "new:9092"}}
flows:
"""


class OneCluster:
    """A cluster with topics of one partition."""

    def __init__(self, name: str, cluster: str, topics: Collection[str]) -> None:
        self.name, self.cluster, self.names = name, cluster, topics
        self.connection = argparse.Namespace(username="ann")

    def id(self) -> str:
        return self.cluster

    def topics(self) -> dict[str, int]:
        return dict.fromkeys(self.names, 1)

    def hidden(self, _: Collection[str]) -> set[str]:
        return set()


def found(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    flows: str,
    old: Collection[str],
    new: Collection[str],
    ids: str = "12",
) -> dict[str, Any]:
    """The document of a proof that found no difference in what it compared."""
    path = folder / "flows.yaml"
    path.write_text(HEAD + flows, encoding="utf-8")
    clusters = {"old": OneCluster("old", ids[0], old), "new": OneCluster("new", ids[1], new)}
    monkeypatch.setattr(Cluster, "of", lambda region, _: clusters[region.name])
    lab = read_configuration(path).lab({})
    evidence = Evidence(claims=lab.claims)
    finder = FlowFinder(ProofRun(lab, evidence, lambda _: None, 1, 5))
    finder.refuse_the_same_cluster()
    finder.find_flows()
    finder.leave_out_other_names()
    finder.find_hidden_topics()
    evidence.counts = {flow.id: Counts(source_records=1, target_records=1) for flow in evidence.flows}
    return judge(evidence, lab.scenario, 1.0)


FLOW = "- {name: shop, source: old, target: new, "


def test_two_flows_between_the_same_clusters_are_judged_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flows = f"{FLOW}topics: [a], names: {{prefix: x.}}}}\n- {{name: pay, source: old, target: new, topics: [b, c]}}\n"
    document = found(tmp_path, monkeypatch, flows, ["a", "b"], ["x.a", "b"])
    assert [(flow["mirror"], flow["target_topic"]) for flow in document["flows"]] == [
        ("external/shop", "x.a"),
        ("external/pay", "b"),
    ]
    assert {claim["says"]: claim["verdict"] for claim in document["claims"]} == {
        "new has an exact copy of all that flow shop takes from old": "proved",
        "new has an exact copy of all that flow pay takes from old": "inconclusive",
    }
    assert document["reasons"] == ["old has no topic c, which flow pay names"]


@pytest.mark.parametrize(
    ("flow", "old", "reason"),
    [
        ("topics: [gone]}", ["a"], "flow shop: old has no topic that matches 'gone'"),
        ("topics: [a, gone]}", ["a"], "old has no topic gone, which flow shop names"),
        ("patterns: ['a.'], names: {pattern: '(.).', replacement: $1}}", ["a1", "a2"], "the same name a"),
        (
            "topics: [b], names: {suffix: .v2}}",
            ["b"],
            "new has no topic b.v2, but it has x.b; if that is the copy, change",
        ),
    ],
)
def test_what_was_not_compared_is_never_proved(
    flow: str, old: list[str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = found(tmp_path, monkeypatch, f"{FLOW}{flow}\n", old, ["a", "x.b"])
    assert document["verdict"] == "inconclusive"
    assert any(reason in said for said in document["reasons"]), document["reasons"]


@pytest.mark.parametrize(
    ("names", "refused"),
    [
        ("{}", True),
        ("{pairs: {a: b}}", True),
        ("{pattern: '(.)', replacement: x$1}", True),
        ("{prefix: x.}", False),
        ("{policy: default}", False),
    ],
)
def test_one_cluster_on_both_sides_is_refused(
    names: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flows = f"{FLOW}topics: [a], names: {names}}}\n"
    if refused:
        with pytest.raises(WrongUseError, match=r"old and new are the same cluster \(id 1\)"):
            found(tmp_path, monkeypatch, flows, ["a"], ["a"], "11")
    else:
        found(tmp_path, monkeypatch, flows, ["a"], ["x.a", "old.a"], "11")


def test_the_file_gives_what_the_command_line_leaves_open(tmp_path: Path) -> None:
    path = tmp_path / "flows.yaml"
    path.write_text(
        f"{HEAD}{FLOW}topics: [a]}}\njudge: {{settings: ignore}}\nresults: {{json: a.json, html: a.html}}\n",
        encoding="utf-8",
    )
    options = argparse.Namespace(report=None, junit=tmp_path / "mine.xml", configs=None, evidence=None, sign=None)
    complete(options, read_configuration(path))
    assert options == argparse.Namespace(
        report=tmp_path / "a.html",
        junit=tmp_path / "mine.xml",
        json_file=tmp_path / "a.json",
        configs="ignore",
        evidence=None,
        sign=None,
    )
    path.write_text(f"{HEAD}{FLOW}topics: [a]}}\nresults: {{json: no/a.json}}\n", encoding="utf-8")
    with pytest.raises(WrongUseError, match="there is no folder"):
        complete(options, read_configuration(path))
