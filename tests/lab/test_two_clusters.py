"""Any two clusters: what offsets show of lost records, which rights are missing, and what is at one side only.

Both are one broker here, where the copies of ``orders`` are in ``old.orders``: as MM2's default policy has it.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ACLOperation, ConfigResource, ConfigResourceType
from pyspark.sql import SparkSession

from loosehanger.errors import UnreachableError, WrongUseError
from loosehanger.kafka.cluster import Cluster
from loosehanger.proof import scratch
from loosehanger.proof.evidence.switch_evidence import beginnings
from loosehanger.proof.proof import Proof
from loosehanger.proof.read import external
from loosehanger.proof.read.external import two_clusters
from loosehanger.proof.snapshot import freeze
from loosehanger.proof.verdict import judge
from tests.submission import documented

from .broker import Broker, running

pytestmark = [pytest.mark.lab, pytest.mark.slow]

RECORDS = 2000
LOST = range(500, 1900)
STEP_MS = 100
"""From one record to the next, where there are so many that their times would be ahead of the broker's."""
NOW_MS = int(time.time() * 1000)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(tmp_path_factory.mktemp("broker")) as started:
        yield started


def create(broker: Broker, topic: str, *, partitions: int = 1, copied: bool = True, **settings: str) -> None:
    """Makes a topic, and that of its copies."""
    client = broker.admin()
    names = [topic, f"old.{topic}"] if copied else [topic]
    client.create_topics({name: {"num_partitions": partitions, "replication_factor": 1} for name in names})
    client.wait_for_topics(names)
    if settings:
        wanted = {name.replace("_", "."): value for name, value in settings.items()}
        client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, wanted) for name in names])
    client.close()


def write(
    broker: Broker, topic: str, numbers: Sequence[int], *, partition: int = 0, batch: int = 0, step_ms: int = 1000
) -> None:
    """Writes numbered records; each so many in a transaction, if a number is given."""
    settings = broker.connection().kafka_python()
    if batch:
        settings["transactional_id"] = f"{topic}-{partition}"
    with KafkaProducer(**settings) as producer:
        if batch:
            producer.init_transactions()
        size = batch or len(numbers) or 1
        for start in range(0, len(numbers), size):
            if batch:
                producer.begin_transaction()
            for number in numbers[start : start + size]:
                stamp = NOW_MS - 3_600_000 + number * step_ms
                producer.send(topic, b"v%d" % number, key=b"k%d" % number, partition=partition, timestamp_ms=stamp)
            if batch:
                producer.commit_transaction()
        producer.flush()


def empty(broker: Broker, topic: str, before: int, partition: int = 0) -> None:
    """Deletes the records before an offset."""
    client = broker.admin()
    client.delete_records({TopicPartition(topic, partition): before})
    client.close()


@contextmanager
def copying(broker: Broker, topics: Sequence[str], first: int) -> Iterator[None]:
    """Whatever copies slowly: ten numbered records a second, until the end of the block."""
    enough, settings = threading.Event(), broker.connection().kafka_python()

    def copy() -> None:
        with KafkaProducer(**settings) as producer:
            for number in itertools.count(first):
                for topic in topics:
                    stamp = NOW_MS - 3_600_000 + number * STEP_MS
                    producer.send(topic, b"v%d" % number, key=b"k%d" % number, partition=0, timestamp_ms=stamp)
                producer.flush()
                if enough.wait(0.1):
                    return

    thread = threading.Thread(target=copy)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join(60)


@contextmanager
def copied_slowly(source: Broker, target: Broker, topic: str) -> Iterator[None]:
    """Copies a topic from one cluster to the other, ten records a second at most, until the end of the block."""
    enough, place = threading.Event(), TopicPartition(topic, 0)

    def copy() -> None:
        with (
            closing(KafkaConsumer(**source.connection().kafka_python(), group_id=None)) as consumer,
            KafkaProducer(**target.connection().kafka_python()) as producer,
        ):
            consumer.assign([place])
            consumer.seek(place, 0)
            while not enough.is_set():
                for record in consumer.poll(200).get(place, ()):
                    producer.send(topic, record.value, record.key, partition=0, timestamp_ms=record.timestamp)
                    producer.flush()
                    if enough.wait(0.1):
                        return

    thread = threading.Thread(target=copy)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join(120)


def prove(
    broker: Broker,
    spark: SparkSession,
    topics: str,
    users: tuple[str, str] = ("admin", "admin"),
    since: int | None = None,
) -> dict[str, Any]:
    """The proof's document."""
    source, target = (broker.properties(user) for user in users)
    lab = two_clusters(source, target, topics, "default", "old")
    moment = None if since is None else datetime.fromtimestamp((NOW_MS - 3_600_000 + since * 1000) / 1000, UTC)
    evidence = Proof(lab, lambda _: spark, 3, 5, lambda _: None, moment).run()
    return judge(evidence, lab.scenario, 1.0)


def test_records_deleted_before_they_were_mirrored_leave_it_undecided(broker: Broker, spark: SparkSession) -> None:
    create(broker, "lost", partitions=2)
    everything = range(RECORDS)
    for partition in (0, 1):
        write(broker, "lost", everything, partition=partition)
        copied = [number for number in everything if partition == 0 or number not in LOST]
        write(broker, "old.lost", copied, partition=partition)
        empty(broker, "lost", LOST.stop, partition)
    document = prove(broker, spark, "lost")
    (flow,) = document["flows"]
    assert (document["verdict"], flow["expired"]) == ("inconclusive", 1900 + 500)
    assert document["reasons"] == [
        "lost, source → target: partition 1: at most 1,400 records may have been deleted at the source before they "
        "were mirrored"
    ]
    assert flow["never_mirrored_at_most"] == 1400
    # What the user does not want to know of is not asked for.
    assert prove(broker, spark, "lost", since=1950)["verdict"] == "proved"
    assert prove(broker, spark, "lost", since=100)["verdict"] == "inconclusive"


def test_a_target_that_has_what_retention_took_away_is_proved(broker: Broker, spark: SparkSession) -> None:
    everything = range(RECORDS)
    for topic in ("kept", "both", "late"):
        create(broker, topic, partitions=2)
    for partition in (0, 1):
        write(broker, "kept", everything, partition=partition)
        write(broker, "old.kept", everything, partition=partition)
        empty(broker, "kept", 1500 + partition, partition)
        # The target has let go of some as well, in its own time.
        write(broker, "both", everything, partition=partition)
        write(broker, "old.both", everything, partition=partition)
        empty(broker, "both", 1500, partition)
        empty(broker, "old.both", 300, partition)
        # The mirror was set up when the source had lost its beginning, which no mirror has promised.
        write(broker, "late", everything, partition=partition)
        empty(broker, "late", 1200, partition)
        write(broker, "old.late", everything[1200:], partition=partition)
    document = prove(broker, spark, "kept,both,late")
    assert (document["verdict"], document["reasons"]) == ("proved", [])
    assert {flow["topic"]: flow["expired"] for flow in document["flows"]} == {"kept": 3001, "both": 2400, "late": 0}


def test_the_documented_submission_proves(broker: Broker, tmp_path: Path) -> None:
    """Word for word, with ``spark-submit``, between two clusters."""
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    with running(other_folder, cluster="NkU3OEVBNTcwNTJENDM2Qg") as other:
        for side, here in (("old", broker), ("new", other)):
            create(here, "orders", copied=False)
            write(here, "orders", range(50))
            shutil.copy(here.properties("admin"), tmp_path / f"{side}.properties")
        done = subprocess.run(
            ["bash", "-euc", documented(tmp_path)],
            cwd=tmp_path,
            # Without the folder of the Spark in this process: a job deletes its own at its end.
            env={name: value for name, value in os.environ.items() if name != scratch.VARIABLE}
            | {"LAB_HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr + (tmp_path / "proof.json").read_text()
    document = json.loads((tmp_path / "proof.json").read_text(encoding="utf-8"))
    assert document["totals"]["source_records"] == 50


def test_the_time_of_what_is_left_of_a_log_tells_how_old_what_is_gone_must_be(broker: Broker) -> None:
    create(broker, "aged", partitions=3, copied=False, retention_ms=str(36_000_000))
    for partition, left in enumerate((4, 10, 0)):
        write(broker, "aged", range(10), partition=partition)
        empty(broker, "aged", left, partition)
    with closing(Cluster("here", broker.connection())) as cluster:
        found = beginnings(cluster, (), freeze(cluster, ["aged"]))
    assert found.pop(("aged", 0)) == NOW_MS - 3_600_000 + 4000
    # Nothing is left of it, so what was there last is older than what it keeps.
    assert found.pop(("aged", 1)) == pytest.approx(time.time() * 1000 - 36_000_000, abs=60_000)
    assert found == {}


def test_markers_of_transactions_are_no_records(broker: Broker, spark: SparkSession) -> None:
    for topic in ("marked", "gone", "marked-lost"):
        create(broker, topic)
        write(broker, topic, range(40), batch=1)
        write(
            broker, f"old.{topic}", [number for number in range(40) if topic != "marked-lost" or not 4 <= number < 32]
        )
    empty(broker, "marked", 64)
    empty(broker, "gone", 80)
    empty(broker, "marked-lost", 64)
    document = prove(broker, spark, "marked.*,gone")
    assert document["reasons"] == [
        "marked-lost, source → target: partition 0: at most 60 records may have been deleted at the source before "
        "they were mirrored"
    ]


def test_a_right_that_is_missing_is_named_and_nothing_else_is_judged_by_it(
    broker: Broker,
    spark: SparkSession,
) -> None:
    create(broker, "described")
    create(broker, "here", cleanup_policy="compact,delete")
    create(broker, "there")
    for topic in ("described", "here", "there"):
        write(broker, topic, range(20))
        write(broker, f"old.{topic}", range(20))
    empty(broker, "old.here", 10)
    empty(broker, "old.there", 10)
    client = broker.admin()
    client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "old.there", {"retention.ms": "60000"})])
    client.close()
    for topic in ("described", "here", "there"):
        for name in (topic, f"old.{topic}"):
            rights = [ACLOperation.READ]
            rights += [ACLOperation.DESCRIBE_CONFIGS] if name not in ("here", "old.there") else []
            broker.allow("reader", name, *rights)
    document = prove(broker, spark, "described,here,there", ("reader", "reader"))
    assert document["verdict"] == "inconclusive"
    assert document["reasons"] == [
        "here, source → target: not compared, because its cleanup policy is unknown: user 'reader' lacks "
        "DescribeConfigs on topic here in source",
        "there, source → target: neither its settings nor what retention has deleted can be judged: user 'reader' "
        "lacks DescribeConfigs on topic old.there in target",
    ]
    flows = {flow["topic"]: flow for flow in document["flows"]}
    assert flows["described"]["source_records"] == 20
    assert flows["there"]["missing"] == 0


def test_a_topic_that_is_gone_at_the_source_is_named(broker: Broker, spark: SparkSession) -> None:
    create(broker, "present")
    write(broker, "present", range(5))
    write(broker, "old.present", range(5))
    create(broker, "old.deleted", copied=False)
    create(broker, "other.deleted", copied=False)
    document = prove(broker, spark, "present|deleted")
    assert document["verdict"] == "inconclusive"
    (reason,) = document["reasons"]
    assert reason.startswith("deleted, source → target: old.deleted is a copy of a topic that source does not have")
    assert [flow["target_topic"] for flow in document["only_at_target"]] == ["old.deleted"]


def test_a_topic_that_may_not_be_read_is_named(broker: Broker, spark: SparkSession) -> None:
    for topic in ("unread", "readable"):
        create(broker, topic)
        for name in (topic, f"old.{topic}"):
            write(broker, name, range(5))
            rights = [ACLOperation.READ] if topic == "readable" else [ACLOperation.DESCRIBE]
            broker.allow("describer", name, *rights, ACLOperation.DESCRIBE_CONFIGS)
    document = prove(broker, spark, "unread,readable", ("describer", "describer"))
    assert (document["verdict"], document["reasons"]) == (
        "inconclusive",
        [
            "unread, source → target: the last record of partition 0 at the source could not be read: user 'describer' "
            "lacks Read on topic unread in source"
        ],
    )
    assert [flow["target_records"] for flow in document["flows"] if flow["topic"] == "readable"] == [5]


def test_a_topic_that_may_not_be_seen_is_neither_missing_nor_copied(broker: Broker, spark: SparkSession) -> None:
    create(broker, "seen")
    create(broker, "unseen")
    create(broker, "alone")
    for name in ("seen", "old.seen", "unseen", "old.unseen"):
        write(broker, name, range(5))
    for name in ("seen", "old.seen", "unseen", "old.alone"):
        broker.allow("blinkered", name, ACLOperation.READ, ACLOperation.DESCRIBE_CONFIGS)
    document = prove(broker, spark, "seen,unseen,alone", ("blinkered", "blinkered"))
    lacks = "user 'blinkered' lacks Describe on topic"
    assert (document["verdict"], document["reasons"]) == (
        "inconclusive",
        [
            f"mirror external: {lacks} alone in source",
            f"unseen, source → target: whether there is a copy is unknown: {lacks} old.unseen in target",
            f"alone, source → target: old.alone is a copy of a topic that cannot be seen: {lacks} alone in source",
        ],
    )
    assert [flow["target_records"] for flow in document["flows"] if flow["topic"] == "seen"] == [5]
    # With all rights, a topic that is not there is not there.
    document = prove(broker, spark, "seen,unseen,nowhere")
    assert (document["verdict"], document["reasons"]) == (
        "inconclusive",
        ["source has no topic nowhere, which --topics names"],
    )
    assert {flow["topic"]: flow["verdict"] for flow in document["flows"]} == {"seen": "proved", "unseen": "proved"}


def test_a_copier_that_lags_is_behind_and_what_it_has_skipped_is_missing(
    broker: Broker, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external, "OBSERVED_S", 15.0)
    for topic in ("slow", "holed"):
        create(broker, topic)
        write(broker, topic, range(10_000), step_ms=STEP_MS)
    write(broker, "old.slow", range(1000), step_ms=STEP_MS)
    write(broker, "old.holed", [number for number in range(1000) if not 500 <= number < 510], step_ms=STEP_MS)
    with copying(broker, ("old.slow", "old.holed"), 1000):
        document = prove(broker, spark, "slow")
        (flow,) = document["flows"]
        assert (document["verdict"], flow["missing"]) == ("inconclusive", 0)
        assert document["reasons"][0].startswith("the copies are behind and still grow: ")
        assert flow["source_records"] >= 990
        document = prove(broker, spark, "holed")
        (flow,) = document["flows"]
        assert (document["verdict"], flow["missing"]) == ("disproved", 10)
    # At rest, nothing more will come.
    document = prove(broker, spark, "slow")
    (flow,) = document["flows"]
    assert (document["verdict"], flow["source_records"]) == ("disproved", 10_000)
    assert flow["missing"] == 10_000 - flow["target_records"] > 0


def test_a_copier_between_two_clusters_is_waited_for_while_it_comes_closer(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    with running(tmp_path, cluster="OEU3OEVBNTcwNTJENDM2Qg") as other:
        for here in (broker, other):
            create(here, "moving", copied=False)
        write(broker, "moving", range(300), step_ms=STEP_MS)
        lab = two_clusters(broker.properties("admin"), other.properties("admin"), "moving")
        # The copies take half a minute: longer than the bound, which begins anew with each that has come.
        with copied_slowly(broker, other, "moving"):
            evidence = Proof(lab, lambda _: spark, 10, 5, lambda _: None, while_moving=True).run()
    document = judge(evidence, lab.scenario, 1.0)
    (flow,) = document["flows"]
    assert (document["verdict"], document["reasons"], flow["target_records"]) == ("proved", [], 300)


def test_a_target_with_times_of_its_own_is_named_and_nothing_is_waited_for(broker: Broker, spark: SparkSession) -> None:
    create(broker, "stamped")
    client = broker.admin()
    stamps = {"message.timestamp.type": "LogAppendTime"}
    client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "old.stamped", stamps)])
    client.close()
    for name in ("stamped", "old.stamped"):
        write(broker, name, range(30))
    said: list[str] = []
    lab = two_clusters(broker.properties("admin"), broker.properties("admin"), "stamped", "default", "old")
    document = judge(Proof(lab, lambda _: spark, 60, 5, said.append).run(), lab.scenario, 1.0)
    assert document["verdict"] == "disproved"
    assert document["reasons"][1].startswith(
        "stamped, source → target: target's topic old.stamped has message.timestamp.type=LogAppendTime: "
    )
    assert not [line for line in said if "was not found" in line]


def test_a_copy_under_another_alias_is_named(broker: Broker, spark: SparkSession) -> None:
    create(broker, "aliased")
    for name in ("aliased", "old.aliased"):
        write(broker, name, range(5))
    lab = two_clusters(broker.properties("admin"), broker.properties("admin"), "aliased", "default", "new")
    document = judge(Proof(lab, lambda _: spark, 60, 5, lambda _: None).run(), lab.scenario, 1.0)
    assert (document["verdict"], document["reasons"]) == (
        "inconclusive",
        [
            "aliased, source → target: not compared: target has no topic new.aliased, but it has old.aliased; if that "
            "is the copy, give --policy default --source-alias old"
        ],
    )


def test_settings_of_another_provider_are_reported(broker: Broker, spark: SparkSession) -> None:
    create(broker, "provided", retention_ms="36000000")
    for name in ("provided", "old.provided"):
        write(broker, name, range(5))
    client = broker.admin()
    client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "old.provided", {"retention.ms": "72000000"})])
    client.close()
    document = prove(broker, spark, "provided")
    assert (document["verdict"], document["notes"]) == (
        "proved",
        ["retention.ms differs: source 36000000, target 72000000, of topic provided; not judged"],
    )


def test_one_cluster_is_not_compared_with_itself(broker: Broker, spark: SparkSession) -> None:
    create(broker, "same", copied=False)
    write(broker, "same", range(5))
    lab = two_clusters(broker.properties("admin"), broker.properties("admin"), "same")
    with pytest.raises(WrongUseError, match="source and target are the same cluster"):
        Proof(lab, lambda _: spark, 3, 5, lambda _: None).run()
    evidence = Proof(lab, lambda _: spark, 3, 5, lambda _: None, allow_same_cluster=True).run()
    assert judge(evidence, lab.scenario, 1.0)["verdict"] == "proved"


@pytest.mark.parametrize("advertised", ["127.0.0.1:9", "kafka-0.kafka.invalid:9092"])
def test_an_advertised_address_that_cannot_be_reached_is_named(tmp_path: Path, advertised: str) -> None:
    with running(tmp_path, advertised) as started:
        cluster = Cluster("source", started.connection())
        with pytest.raises(UnreachableError) as raised:
            cluster.topics()
        cluster.close()
    assert str(raised.value).startswith(
        f"source: the cluster answers, but broker 1 advertises the address {advertised} (advertised.listeners), "
        "which cannot be reached from here: "
    )
