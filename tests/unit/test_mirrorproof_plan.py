"""What ``mirrorproof plan`` says of flows, by what their clusters have."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from loosehanger.arguments import Parser
from loosehanger.errors import ExitCode, UnreachableError, WrongUseError
from loosehanger.kafka.cluster import Cluster
from loosehanger.mirrorproof import plan as planning
from loosehanger.mirrorproof.configuration import read_configuration
from loosehanger.mirrorproof.plan import FlowPlan, ListedCluster, estimate_s, plan_flow

ALL = ("READ", "DESCRIBE", "DESCRIBE_CONFIGS")
HEAD = """\
clusters:
  old: {properties: {bootstrap.servers: "old:9092"}}
  new: {properties: {bootstrap.servers: "new:9092"}}
flows:
  - source: old
    target: new
"""


def view(cluster: str, *topics: str, **operations: Collection[str] | None) -> ListedCluster:
    rights = {topic: operations.get(topic, ALL) for topic in topics}
    return ListedCluster(cluster, "ann", dict.fromkeys(topics, 2), rights)


def planned(folder: Path, lines: str, source: ListedCluster, target: ListedCluster) -> FlowPlan:
    path = folder / "flows.yaml"
    path.write_text(HEAD + lines, encoding="utf-8")
    (mirror,) = read_configuration(path).mirrors
    return plan_flow(mirror, "old-new", {"old": source, "new": target})


def problems(plan: FlowPlan) -> dict[str, str]:
    return {topic.topic: topic.problem for topic in plan.topics if topic.problem}


def test_each_topic_has_its_partner(tmp_path: Path) -> None:
    found = planned(
        tmp_path,
        "    patterns: [a.*]\n    names: {prefix: x-}\n",
        view("1", "a1", "a2", "b"),
        view("2", "x-a1", "x-a2"),
    )
    assert [(topic.topic, topic.copy) for topic in found.topics] == [("a1", "x-a1"), ("a2", "x-a2")]
    assert (found.fits, found.suggestion, found.notes) == (True, "", [])


def test_what_would_not_be_compared_is_named(tmp_path: Path) -> None:
    source = view("1", "a", "b", "c", "d", b=["DESCRIBE"], d=["DESCRIBE", "READ"])
    target = view("2", "b", "c", "d", c=["DESCRIBE", "DESCRIBE_CONFIGS"])
    target.topics["d"] = 1
    found = planned(tmp_path, "    topics: [a, b, c, d, e]\n    patterns: [z.*]\n", source, target)
    assert problems(found) == {
        "a": "new has no topic a",
        "b": "user 'ann' lacks Read on topic b in old",
        "c": "user 'ann' lacks Read on topic c in new",
        "e": "old has no topic e",
    }
    assert not found.fits
    assert found.notes == ["old has no topic that matches 'z.*'"]
    (one,) = [topic for topic in found.topics if topic.topic == "d"]
    assert one.notes == [
        "2 partitions, and its copy has 1",
        "user 'ann' lacks DescribeConfigs on topic d in old: neither its settings nor what retention has deleted can "
        "be judged",
    ]


def test_brokers_that_do_not_say_what_is_allowed_are_believed(tmp_path: Path) -> None:
    assert planned(tmp_path, "    topics: [a]\n", view("1", "a", a=None), view("2", "a", a=None)).fits


def test_two_topics_of_one_name_are_not_compared(tmp_path: Path) -> None:
    names = "    patterns: ['.*']\n    names: {pattern: '(.).*', replacement: '$1'}\n"
    found = planned(tmp_path, names, view("1", "a1", "a2", "b1"), view("2", "a", "b"))
    said = "'names' gives the copies of a1, a2 the same name a"
    assert problems(found) == {"a1": said, "a2": said}


def test_a_mapping_is_suggested_where_names_nearly_fit(tmp_path: Path) -> None:
    found = planned(
        tmp_path, "    patterns: ['.*']\n", view("1", "a", "b", "c"), view("2", "europe.a", "europe.b", "c")
    )
    assert found.suggestion == (
        "names: {policy: 'default', alias: 'europe'} would give 2 of 2 topics without a copy one (such as europe.a)"
    )


def test_no_topic_at_all_is_a_problem(tmp_path: Path) -> None:
    found = planned(tmp_path, "    patterns: [x]\n", view("1", "a"), view("2", "a"))
    assert found.problems == ["old has no topic of this flow that the user 'ann' may see"]


@pytest.mark.parametrize(
    ("records", "seconds"), [(0, 9), (1_000_000, 21.6), (3_000_000, 31.75), (20_000_000, 76.7), (35_000_000, 111.5)]
)
def test_the_estimate_follows_the_measurements(records: int, seconds: float) -> None:
    assert estimate_s(records) == pytest.approx(seconds)
    assert estimate_s(records, 1003) == pytest.approx(seconds + 6)


class Service:
    """Clusters by their name, as ``Cluster`` answers for them."""

    def __init__(self, **ids: str) -> None:
        self.ids = ids

    def __call__(self, region: Any, _: str) -> Any:
        return OneCluster(region.name, self.ids[region.name])


class OneCluster:
    def __init__(self, name: str, cluster: str) -> None:
        self.name, self.cluster = name, cluster
        self.connection = argparse.Namespace(username="ann")

    def described(self) -> list[dict[str, Any]]:
        if not self.cluster:
            raise UnreachableError(f"{self.name}: the cluster does not answer")
        topics = ["a", "b"] if self.name == "old" else ["a"]
        return [{"name": name, "partitions": [0, 1], "authorized_operations": ALL} for name in topics]

    def id(self) -> str:
        return self.cluster

    def hidden(self, topics: Collection[str]) -> set[str]:
        return {"b"} & set(topics)

    def start_offsets(self, places: Collection[Any]) -> dict[Any, int]:
        return dict.fromkeys(places, 10)

    def end_offsets(self, places: Collection[Any]) -> dict[Any, int]:
        return dict.fromkeys(places, 110 if self.name == "old" else 60)

    def close(self) -> None:
        """Nothing is open."""


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, topics: str, *more: str, **ids: str) -> int:
    path = folder / "flows.yaml"
    path.write_text(f"{HEAD}    topics: {topics}\n", encoding="utf-8")
    monkeypatch.setattr(Cluster, "of", Service(**ids))
    parser = Parser()
    planning.add_options(parser)
    return planning.run(parser.parse_args([str(path), *more]))


def test_the_document_and_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, monkeypatch, "[a]", "--json", old="1", new="2") == ExitCode.DONE
    document = json.loads(capsys.readouterr().out)
    assert document["fits"]
    assert document["totals"] == {
        "topics": 1, "not_compared": 0, "partitions": 2, "records": 200, "copy_records": 100,
    }  # fmt: skip
    assert run(tmp_path, monkeypatch, "[a, b]", old="1", new="2") == ExitCode.FAILED
    shown = capsys.readouterr().out
    assert "NOT COMPARED  b: user 'ann' lacks Describe on topic b in new" in shown
    assert "1 topics with 2 partitions would be compared, 1 would not; at most 200 records at the source" in shown
    assert run(tmp_path, monkeypatch, "[a]", old="1", new="") == ExitCode.INCONCLUSIVE
    assert "NO ANSWER  new: the cluster does not answer" in capsys.readouterr().out
    with pytest.raises(WrongUseError, match=r"old and new are the same cluster \(id 1\)"):
        run(tmp_path, monkeypatch, "[a]", old="1", new="1")
