"""Two flows between two brokers of a user's own, by one configuration file: planned, and proved.

One copy is damaged, one topic is missing; names are mapped by a prefix and by a regular expression.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import ACLOperation
from pyspark.sql import SparkSession

from loosehanger.arguments import Parser
from loosehanger.errors import ExitCode, WrongUseError
from loosehanger.kafka.cluster import Cluster
from loosehanger.mirrorproof import plan
from loosehanger.mirrorproof.configuration import read_configuration
from loosehanger.proof.proof import Proof
from loosehanger.proof.verdict import judge

from .broker import Broker, running

pytestmark = [pytest.mark.lab, pytest.mark.slow]

RECORDS = 300
AT_MS = int(time.time() * 1000) - 3_600_000
"""Recent: the brokers delete what is older than a week, by its timestamp."""


def fill(broker: Broker, topics: Mapping[str, Sequence[int]]) -> None:
    """Creates topics of one partition with numbered records."""
    client = broker.admin()
    client.create_topics({name: {"num_partitions": 1, "replication_factor": 1} for name in topics})
    client.wait_for_topics(list(topics))
    client.close()
    with KafkaProducer(**broker.connection().kafka_python()) as producer:
        for topic, numbers in topics.items():
            for number in numbers:
                producer.send(topic, b"v%d" % number, key=b"k%d" % number, partition=0, timestamp_ms=AT_MS + number)
        producer.flush()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Broker]]:
    old, new = tmp_path_factory.mktemp("old"), tmp_path_factory.mktemp("new")
    with running(old) as source, running(new, cluster="TmV3Q2x1c3Rlck5ld05ldw") as target:
        every = range(RECORDS)
        fill(source, {"orders": every, "stock": every, "pay.in": every, "pay.out": every, "lone": every})
        fill(
            target,
            {"eu.orders": every, "eu.stock": [*range(7), *range(8, RECORDS)], "in-pay": every, "out-pay": every},
        )
        yield source, target


def commit(broker: Broker, offsets: Mapping[tuple[str, str], int]) -> None:
    """Sets the offsets of groups, by group and topic, in partition 0."""
    with Cluster("here", broker.connection()) as cluster:
        for (group, topic), offset in offsets.items():
            # The first question makes a fresh broker ready for groups.
            assert cluster.committed(group, [topic]) == {}
            cluster.set_committed(group, {TopicPartition(topic, 0): offset})


def configuration(
    folder: Path, brokers: tuple[Broker, Broker], orders: str, prefix: str = "eu.", groups: str = "[]"
) -> Path:
    path = folder / "flows.yaml"
    source, target = (broker.properties("admin") for broker in brokers)
    path.write_text(
        f"clusters:\n  old: {{file: '{source}'}}\n  new: {{file: '{target}'}}\nflows:\n"
        f"  - {{name: shop, source: old, target: new, topics: {orders}, groups: {groups},"
        f" names: {{prefix: '{prefix}'}}}}\n"
        "  - name: pay\n    source: old\n    target: new\n    patterns: [pay\\..*]\n"
        "    names: {pattern: '(\\w+)\\.(\\w+)', replacement: $2-$1}\n",
        encoding="utf-8",
    )
    return path


def planned(path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, Any]]:
    parser = Parser()
    plan.add_options(parser)
    code = plan.run(parser.parse_args([str(path), "--json", *more]))
    return code, json.loads(capsys.readouterr().out)


def proved(path: Path, spark: SparkSession, *flows: str) -> dict[str, Any]:
    configuration = read_configuration(path)
    lab, judged = configuration.lab({}, flows), configuration.judge
    proof = Proof(
        *(lab, lambda _: spark, 3, 5, lambda _: None),
        groups=configuration.groups,
        group_handling=judged.groups,
    )
    return judge(proof.run(), lab.scenario, 1.0)


def test_the_plan_names_each_partner_and_what_is_missing(
    brokers: tuple[Broker, Broker], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, document = planned(configuration(tmp_path, brokers, "[orders, stock, ledger]"), capsys)
    assert code == ExitCode.FAILED
    shop, pay = document["flows"]
    rows = {topic["topic"]: (topic["copy"], topic["records"], topic["copy_records"]) for topic in pay["topics"]}
    assert rows == {"pay.in": ("in-pay", RECORDS, RECORDS), "pay.out": ("out-pay", RECORDS, RECORDS)}
    assert [topic["problem"] for topic in shop["topics"]] == ["", "", "old has no topic ledger"]
    assert planned(configuration(tmp_path, brokers, "[orders]"), capsys)[0] == ExitCode.DONE
    # Names that nearly fit, and a source topic without a partner.
    code, document = planned(configuration(tmp_path, brokers, "[orders, lone]", prefix="us."), capsys, "--flow", "shop")
    assert code == ExitCode.FAILED
    assert document["flows"][0]["suggestion"].startswith("names: {policy: 'default', alias: 'eu'} would give 1 of 2")
    assert document["totals"]["not_compared"] == 2
    with pytest.raises(WrongUseError, match="are the same cluster"):
        planned(configuration(tmp_path, (brokers[0], brokers[0]), "[orders]"), capsys, "--flow", "pay")


def test_a_user_without_rights_is_named(
    brokers: tuple[Broker, Broker], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = configuration(tmp_path, brokers, "[orders]")
    poor = brokers[1].allow("poor", "eu.orders", ACLOperation.DESCRIBE)
    path.write_text(path.read_text().replace(str(brokers[1].properties("admin")), str(poor)), encoding="utf-8")
    code, document = planned(path, capsys)
    assert code == ExitCode.FAILED
    shop, pay = document["flows"]
    assert [topic["problem"] for topic in shop["topics"]] == ["user 'poor' lacks Read on topic eu.orders in new"]
    assert pay["topics"][0]["problem"] == "user 'poor' lacks Describe on topic in-pay in new"


def test_the_proof_judges_every_flow_by_its_own_names(
    brokers: tuple[Broker, Broker], spark: SparkSession, tmp_path: Path
) -> None:
    document = proved(configuration(tmp_path, brokers, "[orders, stock, ledger]"), spark)
    assert document["verdict"] == "disproved"
    verdicts = {flow["topic"]: (flow["target_topic"], flow["verdict"], flow["missing"]) for flow in document["flows"]}
    assert verdicts == {
        "orders": ("eu.orders", "proved", 0),
        "stock": ("eu.stock", "disproved", 1),
        "pay.in": ("in-pay", "proved", 0),
        "pay.out": ("out-pay", "proved", 0),
    }
    assert {claim["mirror"]: claim["verdict"] for claim in document["claims"]} == {
        "external/shop": "disproved",
        "external/pay": "proved",
    }
    assert "old has no topic ledger, which flow shop names" in document["reasons"]


@pytest.mark.parametrize("topics", ["[ledger]", "[orders, ledger]", "[orders, lone]"])
def test_with_a_missing_topic_nothing_is_proved(
    topics: str, brokers: tuple[Broker, Broker], spark: SparkSession, tmp_path: Path
) -> None:
    assert proved(configuration(tmp_path, brokers, topics), spark, "shop")["verdict"] != "proved"


def test_one_cluster_is_not_compared_with_itself(
    brokers: tuple[Broker, Broker], spark: SparkSession, tmp_path: Path
) -> None:
    path = configuration(tmp_path, (brokers[0], brokers[0]), "[orders]")
    with pytest.raises(WrongUseError, match="old and new are the same cluster"):
        proved(path, spark, "pay")


def test_groups_must_skip_nothing_after_a_switch(
    brokers: tuple[Broker, Broker], spark: SparkSession, tmp_path: Path
) -> None:
    """Offsets at the target are seven ahead of those of the same records at the source."""
    source, target = brokers
    fill(source, {"sales": range(RECORDS)})
    fill(target, {"eu.sales": range(-7, 0)})
    client = target.admin()
    client.delete_records({TopicPartition("eu.sales", 0): 7})
    client.close()
    with KafkaProducer(**target.connection().kafka_python()) as producer:
        for number in range(RECORDS):
            producer.send("eu.sales", b"v%d" % number, key=b"k%d" % number, partition=0, timestamp_ms=AT_MS + number)
        producer.flush()
    commit(source, {("right", "sales"): 100, ("late", "sales"): 100, ("early", "sales"): 100, ("none", "sales"): 100})
    commit(target, {("right", "eu.sales"): 107, ("late", "eu.sales"): 67, ("early", "eu.sales"): 109})

    def of(groups: str) -> dict[str, Any]:
        return proved(configuration(tmp_path, brokers, "[sales]", groups=groups), spark, "shop")

    document = of("[right, late]")
    assert (document["verdict"], document["reasons"]) == ("proved", [])
    found = {one["group"]: (one["skipped"], one["read_again"]) for one in document["flows"][0]["groups"]}
    assert found == {"right": (0, 0), "late": (0, 40)}
    for group, reason in {
        "early": "group early would skip 2 records after a switch, as its offsets at the target are ahead: ",
        "none": "group none has no offset at the target in partition 0: ",
    }.items():
        document = of(f"[right, {group}]")
        assert document["verdict"] == "disproved"
        assert reason in document["reasons"][0]
    document = of("[right, nobodys]")
    assert document["verdict"] == "inconclusive"
    assert document["reasons"][0].startswith("group nobodys has committed no offset in the compared topics of old; ")


def test_groups_that_cannot_be_read_leave_the_flow_inconclusive(
    brokers: tuple[Broker, Broker], spark: SparkSession, tmp_path: Path
) -> None:
    """A user that may read the topics needs Describe on a group."""
    source, target = brokers
    commit(source, {("right", "orders"): 100})
    reader = source.allow("reader", "orders", ACLOperation.READ, ACLOperation.DESCRIBE, ACLOperation.DESCRIBE_CONFIGS)
    path = configuration(tmp_path, (source, target), "[orders]", groups="[right]")
    path.write_text(path.read_text().replace(str(source.properties("admin")), str(reader)), encoding="utf-8")
    document = proved(path, spark, "shop")
    assert document["verdict"] == "inconclusive"
    assert "the offsets of its consumer groups cannot be read: " in document["reasons"][0]
