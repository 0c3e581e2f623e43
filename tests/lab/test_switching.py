"""A region dies, and the other one takes over: what the kit says of it is what is really there."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition

from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.connection import connection_for
from loosehanger.lab.snapshots import read_snapshots
from loosehanger.ledger import LedgerEntry, ledger_files, read_entries
from scripts.sandbox import Kit

from .conftest import batches, processes, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]


GROUP = "consumer-southamerica"


@pytest.fixture
def kit(bare_kit: Kit, request: pytest.FixtureRequest) -> Kit:
    """The active/passive scenario, with enough events for something to be on its way."""
    done = bare_kit.run("setup", "05-active-passive", *getattr(request, "param", ("-e", "producer_rate=300")))
    assert done.returncode == 0, done.stdout + done.stderr
    return bare_kit


def entries(kit: Kit) -> list[LedgerEntry]:
    return list(read_entries(file for folder in kit.lab.ledgers for file in ledger_files(folder)))


def present(kit: Kit, region: str) -> Counter[tuple[str, str, int, int]]:
    """How often each numbered record is in a region, read record by record."""
    settings = connection_for(kit.lab.region(region), "admin").kafka_python()
    consumer = KafkaConsumer(**settings, group_id=None, isolation_level="read_committed", consumer_timeout_ms=5000)
    try:
        topics = [topic for topic in consumer.topics() if topic.startswith("LH.")]
        consumer.assign([TopicPartition(t, p) for t in topics for p in consumer.partitions_for_topic(t)])
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(consumer.assignment())
        found: Counter[tuple[str, str, int, int]] = Counter()
        for batch in batches(consumer, ends):
            for record in batch:
                headers = dict(record.headers)
                run, number = headers["lh-run"].decode(), int(headers["lh-seq"])
                found[run, record.topic, record.partition, number] += 1
        return found
    finally:
        consumer.close()


def records(found: list[LedgerEntry]) -> set[tuple[str, str, int, int]]:
    return {(one.run, one.topic, one.partition, n) for one in found for n in range(one.first, one.last + 1)}


def test_after_a_death_what_is_lost_and_read_again_is_told_exactly(kit: Kit) -> None:
    done = kit.run("stage", "failover")
    assert done.returncode == 0, done.stdout + done.stderr
    # The ocean is no part of it.
    links = {process.pid for process in processes(kit, "north-america", "local.relay")}
    assert not [process for process in processes(kit, "north-america", "") if process.pid not in links]
    assert "consumer's first new event" in done.stdout
    assert "not yet" not in done.stdout
    assert kit.run("status").returncode == 0
    proof = kit.run("prove", "--json")
    document = json.loads(proof.stdout)
    kept, groups = document["claims"]
    assert groups["verdict"] == "proved", groups
    # Counted once more, record by record.
    (fence,) = read_snapshots(kit.home, "failover").fences
    ledger = [entry for entry in entries(kit) if entry.until <= fence.held_ms]
    acked = records([entry for entry in ledger if entry.kind == "acked"])
    there = present(kit, "europe")
    lost = acked - set(there)
    listed: list[dict[str, Any]] = next(
        (one["details"]["records"] for one in kept["findings"] if one["kind"] == "lost"), []
    )
    reported = {(r["run"], r["topic"], r["partition"], n) for r in listed for n in range(r["first"], r["last"] + 1)}
    assert reported == lost
    assert proof.returncode == (1 if lost else 0)
    # The stage may run again: nothing dies twice, and nothing moves.
    again = kit.run("stage", "failover")
    assert again.returncode == 0, again.stdout + again.stderr
    assert kit.run("setup", "05-active-passive").returncode == 2, "a set-up now would start the mirror again"


def test_a_planned_switch_loses_and_repeats_nothing(kit: Kit) -> None:
    asked = kit.run("stage", "switchover", "--dry-run")
    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert asked.stdout.count("holds") == 4
    done = kit.run("stage", "switchover")
    assert done.returncode == 0, done.stdout + done.stderr
    proof = kit.run("prove", "--json")
    assert proof.returncode == 0, proof.stdout
    (groups,) = (claim for claim in json.loads(proof.stdout)["claims"] if claim["kind"] == "groups")
    (again,) = (one for one in groups["findings"] if one["kind"] == "read_again")
    assert (again["count"], again["details"]["predicted"]) == (0, 0)
    there = present(kit, "europe")
    assert set(there.values()) == {1}

    def acked() -> set[tuple[str, str, int, int]]:
        return records([entry for entry in entries(kit) if entry.kind == "acked"])

    # The producer goes on, and its ledger is a moment behind it.
    wait_until(lambda: acked() >= set(there), 10, "every record in Europe is acknowledged in the ledger")


def stage(kit: Kit, *words: str) -> str:
    done = kit.run("stage", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def proof(kit: Kit, code: int) -> dict[str, list[dict[str, Any]]]:
    """The findings of each claim, by its id without its place."""
    done = kit.run("prove", "--json", timeout=600)
    assert done.returncode == code, done.stdout + done.stderr
    return {claim["id"]: claim["findings"] for claim in json.loads(done.stdout)["claims"]}


def of_kind(findings: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next(one for one in findings if one["kind"] == kind)


def identity(kit: Kit) -> list[bytes]:
    """What clients know both clusters by: certificate authorities, users and passwords."""
    folder = kit.home / "access"
    return [path.read_bytes() for region in ("europe", "north-america") for path in sorted((folder / region).iterdir())]


def test_rescued_rebuilt_and_switched_back_nothing_is_lost_or_doubled_and_a_second_disaster_is_survived(
    kit: Kit,
) -> None:
    quiet = ("-e", "producer_rate=50")
    stage(kit, "failover", *quiet)
    # Stopped, not wiped: the first run lists, the second one writes, and a third one has nothing left to write.
    assert "They are not written to europe" in stage(kit, "rescue")
    for _ in range(2):
        stage(kit, "rescue", "-e", "carry_out_write_rescued=true")
    (rescued,) = read_snapshots(kit.home, "rescue").rescues
    proof(kit, 0)
    before = identity(kit)
    stage(kit, "rebuild")
    proof(kit, 0)
    assert identity(kit) == before
    stage(kit, "failback", *quiet)
    claims = proof(kit, 0)
    again = of_kind(claims[f"groups:{GROUP}:north-america"], "read_again")
    assert (again["count"], again["details"]["predicted"]) == (0, 0)
    assert rescued.records == rescued.written
    stage(kit, "failover", *quiet)
    (fence,) = read_snapshots(kit.home, "failover").fences
    claims = json.loads(kit.run("prove", "--json", timeout=600).stdout)["claims"]
    assert [claim["verdict"] for claim in claims if claim["kind"] == "groups"] == ["proved"]
    # Counted once more, record by record: what was ever acknowledged is in Europe, once, but for what is listed. The
    # dead cluster's last words may have been lost: what the mirror has copied, and the producer has sent again.
    there = present(kit, "europe")
    acked = records([entry for entry in entries(kit) if entry.kind == "acked" and entry.until <= fence.held_ms])
    (kept,) = (claim["findings"] for claim in claims if claim["kind"] == "kept")
    sent_twice = sum(one["count"] for one in kept if one["kind"] == "sent_twice")
    assert sum(times - 1 for times in there.values()) == sent_twice
    listed: list[dict[str, Any]] = next((one["details"]["records"] for one in kept if one["kind"] == "lost"), [])
    assert acked - set(there) == {
        (one["run"], one["topic"], one["partition"], n) for one in listed for n in range(one["first"], one["last"] + 1)
    }


def test_a_mirror_that_runs_again_without_being_re_armed_doubles_and_the_proof_says_so(kit: Kit) -> None:
    table = kit.root / "playbooks" / "05-active-passive" / "scenario.yaml"
    text = table.read_text(encoding="utf-8")
    assert "mm2: reset" in text
    table.write_text(text.replace("mm2: reset", "mm2: running"), encoding="utf-8")
    for name in ("failover", "rebuild", "failback"):
        stage(kit, name, "-e", "producer_rate=50")
    findings = [one for of_claim in proof(kit, 1).values() for one in of_claim]
    assert sum(one["count"] for one in findings if one["kind"] == "duplicates") > 100


def set_group(kit: Kit, offset: int) -> None:
    with Cluster("europe", connection_for(kit.lab.region("europe"), "admin")) as looker:
        ends = looker.ends([topic for topic in looker.topics() if topic.startswith("LH.")])
        looker.set_committed(GROUP, {part: min(offset, end) for part, end in ends.items()})


@pytest.mark.parametrize("kit", [("-e", "producer_rate=300", "-e", "consumer_replicas=0")], indirect=True)
def test_a_group_that_was_set_ahead_has_skipped_as_many_records_as_the_proof_says(kit: Kit) -> None:
    stage(kit, "failover", "-e", "producer_rate=50")
    set_group(kit, 20)
    stage(kit, "failover", "-e", "consumer_replicas=1")
    # Nothing was read before, so what lies before the offset was never read.
    with Cluster("europe", connection_for(kit.lab.region("europe"), "admin")) as looker:
        ends = looker.ends([topic for topic in looker.topics() if topic.startswith("LH.")])
        ahead = looker.records_from({}, {part: min(20, end) for part, end in ends.items()})
    skipped = of_kind(proof(kit, 1)[f"groups:{GROUP}:europe"], "skipped")
    assert skipped["count"] == ahead > 0


def test_a_group_that_was_set_back_reads_more_again_than_was_predicted(kit: Kit) -> None:
    stage(kit, "failover", "-e", "consumer_replicas=0", "-e", "producer_rate=50")
    set_group(kit, 0)
    stage(kit, "failover", "-e", "consumer_replicas=1")
    again = of_kind(proof(kit, 1)[f"groups:{GROUP}:europe"], "read_again")
    assert again["count"] > again["details"]["predicted"]
