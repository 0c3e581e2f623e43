"""The watch sees every region live, finds every fault while it runs and no false one, and goes on after a stop."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from loosehanger.audit import canary
from loosehanger.audit.balance import KINDS
from loosehanger.kafka.connect import ConnectClient
from loosehanger.kafka.connection import connection_for
from scripts.sandbox import Kit

from .conftest import admin, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

TOPIC = "LH.WATCHED"
TARGETS = ("north-america", "south-america")
UNTIL_SHOWN_S = 120
COUNTS = ("records", "copies", "in_flight", "late", *KINDS)


class Watching:
    """A watch that runs beside the test; its documents go to a file, line by line.

    Args:
        kit: the lab.
        output: the file.
        arguments: further options.
    """

    def __init__(self, kit: Kit, output: Path, *arguments: str) -> None:
        self._output = output
        with output.open("w") as file, output.with_suffix(".err").open("w") as errors:
            self.process = kit.start(file, "watch", "--json", *arguments, errors=errors)

    @property
    def errors(self) -> str:
        """What it has said besides its documents."""
        return self._output.with_suffix(".err").read_text()

    @property
    def document(self) -> dict[str, Any]:
        """The newest whole document; empty if there is none."""
        lines = self._output.read_text().split("\n")[:-1]
        document: dict[str, Any] = json.loads(lines[-1]) if lines else {}
        return document

    def flow(self, target: str, topic: str = TOPIC, source: str = "europe") -> dict[str, Any]:
        """What the newest document has of a flow."""
        for flow in self.document.get("flows", ()):
            if (flow["source"], flow["target"], flow["topic"]) == (source, target, topic):
                found: dict[str, Any] = flow
                return found
        return {}

    def counts(self, target: str, topic: str = TOPIC, source: str = "europe") -> dict[str, int]:
        """Its counts of records that are not 0."""
        flow = self.flow(target, topic, source)
        return {name: flow[name] for name in COUNTS if flow.get(name)}

    def examples(self, target: str, topic: str = TOPIC) -> set[tuple[str, int | None, int | None]]:
        """The records that were named: kind, and offsets at source and target."""
        return {
            (example["kind"], example["source_offset"], example["target_offset"])
            for finding in self.document.get("findings", ())
            if (finding["target"], finding["topic"]) == (target, topic)
            for example in finding["examples"]
        }

    def wait_for(
        self, target: str, counts: dict[str, int], seconds: float = UNTIL_SHOWN_S, source: str = "europe"
    ) -> list[float]:
        """Waits until a flow has exactly these counts besides zeros; returns how many seconds that took."""
        started = time.monotonic()

        def there() -> bool:
            assert self.process.poll() is None, self.errors
            return self.counts(target, source=source) == counts

        try:
            wait_until(there, seconds, f"{target}: {counts}")
        except AssertionError as error:
            raise AssertionError(f"{error}; shown: {self.flow(target, source=source)}; {self.errors}") from error
        return [round(time.monotonic() - started, 1)]

    def end(self, number: int = signal.SIGINT) -> int:
        """Ends it, with a signal to the whole group as a terminal sends it; returns the exit code."""
        os.killpg(self.process.pid, number)
        return self.process.wait(timeout=60)


@pytest.fixture
def watched_topic(kit: Kit) -> Any:
    """A topic of two partitions that nothing else writes to, mirrored to both targets."""
    make(kit)
    for region in TARGETS:
        wait_until(lambda r=region: TOPIC in topics(kit, r), 90, f"{TOPIC} in {region}")  # type: ignore[misc]
    yield TOPIC
    for region in kit.lab.regions:
        client = KafkaAdminClient(**connection_for(kit.lab.region(region), "admin").kafka_python())
        client.delete_topics([TOPIC])
        client.close()
    # The next watch would go on where this one was, and count what this topic had.
    shutil.rmtree(kit.home / "watch", ignore_errors=True)


def topics(kit: Kit, region: str) -> set[str]:
    """The topics of a region."""
    client = KafkaAdminClient(**connection_for(kit.lab.region(region), "admin").kafka_python())
    try:
        return set(client.list_topics())
    finally:
        client.close()


def make(kit: Kit) -> None:
    """Makes the topic in Europe."""
    client = admin(kit, "europe")
    client.create_topics({TOPIC: {"num_partitions": 2, "replication_factor": 1}})
    client.close()


def put(kit: Kit, region: str, *keys: str, value: str = "", timestamp: int | None = None, partition: int = 0) -> None:
    """Writes a record for each key."""
    with KafkaProducer(**connection_for(kit.lab.region(region), "admin").kafka_python()) as producer:
        for key in keys:
            content = (value or key).encode()
            sent = producer.send(TOPIC, content, key=key.encode(), partition=partition, timestamp_ms=timestamp)
            sent.get(timeout=30)


def keep_for(client: KafkaAdminClient, retention_ms: int) -> None:
    """Sets the topic's retention."""
    settings = {"retention.ms": str(retention_ms)}
    client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC, settings)])


def records(kit: Kit, region: str) -> dict[str, int]:
    """The timestamps of the committed records in partition 0 by their keys, in the order of their offsets."""
    place = TopicPartition(TOPIC, 0)
    found: dict[str, int] = {}
    settings = connection_for(kit.lab.region(region), "admin").kafka_python() | {"isolation_level": "read_committed"}
    with KafkaConsumer(**settings, enable_auto_commit=False) as consumer:
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        (end,) = consumer.end_offsets([place]).values()

        def whole() -> bool:
            for batch in consumer.poll(500).values():
                found.update((record.key.decode(), record.timestamp) for record in batch)
            return bool(consumer.position(place) >= end)

        wait_until(whole, 60, f"{TOPIC} of {region}")
    return found


def states(rest: ConnectClient, connector: str) -> str:
    """The states of a connector and its tasks, one after the other."""
    status = rest.status(connector) or {"connector": {"state": ""}, "tasks": []}
    return str(status["connector"]["state"]) + "".join(task["state"] for task in status["tasks"])


@contextmanager
def moved_position(kit: Kit, to: int | None = None, topic: str = TOPIC) -> Iterator[None]:
    """Stops North America's mirror, and lets it go on as if it had copied partition 0 up to this offset, or whole."""
    (mirror,) = kit.lab.region("north-america").mirrors
    rest = ConnectClient.of(mirror.connect)
    path = f"/connectors/{quote(mirror.connector, safe='')}"

    rest.act(mirror.connector, "stop")
    wait_until(lambda: states(rest, mirror.connector) == "STOPPED", 60, "the mirror has stopped")
    yield
    if to is None:
        with KafkaConsumer(**connection_for(kit.lab.region(mirror.source), "admin").kafka_python()) as consumer:
            (end,) = consumer.end_offsets([TopicPartition(topic, 0)]).values()
        # It goes on with the offset after it; beyond the end it would begin anew.
        to = end - 1
    place = {"cluster": mirror.source_alias, "topic": topic, "partition": 0}
    rest.call("PATCH", f"{path}/offsets", {"offsets": [{"partition": place, "offset": {"offset": to}}]})
    rest.act(mirror.connector, "resume")
    wait_until(lambda: states(rest, mirror.connector).startswith("RUNNINGRUNNING"), 60, "the mirror runs again")


def write(kit: Kit, region: str, values: str) -> None:
    """Writes a record for each letter."""
    with KafkaProducer(**connection_for(kit.lab.region(region), "admin").kafka_python()) as producer:
        for value in values:
            producer.send(TOPIC, value.encode(), partition=0).get(timeout=30)


def test_every_region_is_shown_live_and_the_end_is_clean(kit: Kit) -> None:
    started = time.time()
    done = kit.run("watch", "--json", "--for", "90")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    last = documents[-1]
    assert set(last["regions"]) == {"europe", *TARGETS}
    for region in last["regions"].values():
        orders = sum(minute["orders"] for minute in region["minutes"])
        assert orders > 0
        assert not any(minute["unreadable"] for minute in region["minutes"])
        assert region["by_product"]
        assert region["by_warehouse"]
    assert last["totals"]["records"] > 0
    assert all(flow["copies"] for flow in last["flows"])
    assert last["totals"]["equal_buckets"] > 0
    assert not any(last["totals"][kind] for kind in KINDS)
    assert last["findings"] == last["notes"] == last["not_judged"] == last["problems"] == []
    assert time.time() - started < 200

    plain = kit.run("watch", "--for", "45")
    assert plain.returncode == 0, plain.stderr
    assert "europe → north-america" in plain.stdout


def test_a_mirror_that_is_paused_has_lost_nothing_and_catches_up(kit: Kit, watched_topic: str, tmp_path: Path) -> None:
    assert watched_topic
    manifest = kit.manifest("mm2-sa.yaml")
    text = manifest.read_text()
    watching = Watching(kit, tmp_path / "watch.json", "--late-after", "10")
    try:
        wait_until(lambda: watching.document, UNTIL_SHOWN_S, "the first document")
        write(kit, "europe", "abc")
        for target in TARGETS:
            watching.wait_for(target, {"records": 3, "copies": 3})

        manifest.write_text(text.replace("        tasksMax: 1\n", "        tasksMax: 1\n        state: paused\n"))
        assert kit.setup().returncode == 0
        write(kit, "europe", "de")
        watching.wait_for("south-america", {"records": 5, "copies": 3, "in_flight": 2})
        watching.wait_for("south-america", {"records": 5, "copies": 3, "late": 2})
        watching.wait_for("north-america", {"records": 5, "copies": 5})

        manifest.write_text(text)
        assert kit.setup().returncode == 0
        watching.wait_for("south-america", {"records": 5, "copies": 5})
        assert not watching.document["findings"]
    finally:
        manifest.write_text(text)
        kit.setup()
        assert watching.end() == 0, watching.errors


def test_every_kind_of_fault_is_found_and_its_records_are_named(kit: Kit, watched_topic: str, tmp_path: Path) -> None:
    target = "north-america"
    watching = Watching(kit, tmp_path / "watch.json")
    counted, named = list[float](), list[float]()

    def wait_for(counts: dict[str, int], kind: str) -> None:
        """Waits until a fault is counted, and then until its record is named, which happens beside the rounds."""
        counted.extend(watching.wait_for(target, counts))
        started = time.monotonic()
        wait_until(
            lambda: kind in {found for found, _, _ in watching.examples(target)}, UNTIL_SHOWN_S, f"{kind} is named"
        )
        named.append(round(time.monotonic() - started, 1))

    try:
        wait_until(lambda: watching.flow(target), UNTIL_SHOWN_S, f"{watched_topic} in a document")
        put(kit, "europe", "a", "b", "c")
        watching.wait_for(target, {"records": 3, "copies": 3})

        with moved_position(kit, to=3):
            put(kit, "europe", "d")
        put(kit, "europe", "e")
        wait_for({"records": 5, "copies": 4, "missing": 1}, "missing")
        assert ("missing", 3, None) in watching.examples(target)

        with moved_position(kit, to=3):
            pass
        wait_for({"records": 5, "copies": 5, "missing": 1, "duplicates": 1}, "duplicates")

        put(kit, target, "x")
        faults = {"missing": 1, "duplicates": 1, "unexpected": 1}
        wait_for({"records": 5, "copies": 6, **faults}, "unexpected")

        with moved_position(kit, to=5):
            now = round(time.time() * 1000)
            put(kit, "europe", "f", timestamp=now)
            put(kit, target, "f", value="F", timestamp=now)
        wait_for({"records": 6, "copies": 7, **faults, "altered": 1}, "altered")

        with moved_position(kit, to=6):
            now = round(time.time() * 1000)
            put(kit, "europe", "g", timestamp=now)
            put(kit, target, "g", timestamp=now, partition=1)
        wait_for({"records": 7, "copies": 8, **faults, "altered": 1, "moved": 1}, "moved")
        kinds = {"missing", "duplicates", "unexpected", "altered", "moved"}
        wait_until(
            lambda: {kind for kind, _, _ in watching.examples(target)} == kinds, UNTIL_SHOWN_S, "every kind is named"
        )

        # Whatever was done to one target, the other has everything.
        watching.wait_for("south-america", {"records": 7, "copies": 7})
        print("each fault was counted after", counted, "s, and named after", named, "s more")

        client = admin(kit, target)
        client.delete_records({TopicPartition(TOPIC, 0): 2})
        client.close()
        wait_until(
            lambda: any("deleted" in note["says"] for note in watching.document["notes"]), 60, "what was deleted"
        )
    finally:
        assert watching.end() == 0, watching.errors


def test_a_canary_that_does_not_arrive_raises_the_alarm(kit: Kit, tmp_path: Path) -> None:
    watching = Watching(kit, tmp_path / "watch.json", "--canary", "3")

    def verdicts() -> dict[str, str]:
        return {entry["target"]: entry["verdict"] for entry in watching.document.get("canaries", ())}

    fine = dict.fromkeys(TARGETS, "arriving")
    try:
        wait_until(lambda: verdicts() == fine, UNTIL_SHOWN_S, "canaries in both Americas")
        wait_until(lambda: watching.flow("north-america", canary.TOPIC)["copies"] > 3, 60, "four of them")
        assert not watching.document["findings"]
        with moved_position(kit, topic=canary.TOPIC):
            # Nothing else need be written for it to show.
            wait_until(lambda: verdicts() == fine | {"north-america": "late"}, 60, "canaries that are late")
        wait_until(lambda: verdicts() == fine | {"north-america": "missing"}, 60, "canaries that were swallowed")
        assert {finding["target"] for finding in watching.document["findings"]} == {"north-america"}
    finally:
        assert watching.end() == 0, watching.errors


def test_a_killed_watch_goes_on_without_losing_or_doubling_anything(
    kit: Kit, watched_topic: str, tmp_path: Path
) -> None:
    assert watched_topic
    watching = Watching(kit, tmp_path / "first.json")
    try:
        wait_until(lambda: watching.document, UNTIL_SHOWN_S, "the first document")
        write(kit, "europe", "abc")
        watching.wait_for("north-america", {"records": 3, "copies": 3})
    finally:
        watching.end(signal.SIGKILL)
    write(kit, "europe", "defg")
    watching = Watching(kit, tmp_path / "second.json")
    try:
        for target in TARGETS:
            watching.wait_for(target, {"records": 7, "copies": 7})
        assert "anew" not in watching.errors
    finally:
        assert watching.end() == 0, watching.errors

    # A recreated topic is a different one.
    for region in kit.lab.regions:
        client = admin(kit, region)
        client.delete_topics([TOPIC])
        client.close()
        wait_until(lambda r=region: TOPIC not in topics(kit, r), 60, f"no {TOPIC} in {region}")  # type: ignore[misc]
    make(kit)
    done = kit.run("watch", "--json", "--for", "30")
    assert done.returncode == 0, done.stderr
    notes = json.loads(done.stdout.splitlines()[-1])["notes"]
    assert [note for note in notes if note["topic"] == TOPIC and "recreated" in note["says"]]


def test_a_loss_is_warned_of_before_and_counted_after_it(kit: Kit, watched_topic: str, tmp_path: Path) -> None:
    assert watched_topic
    target = "north-america"
    (mirror,) = kit.lab.region(target).mirrors
    rest = ConnectClient.of(mirror.connect)
    watching = Watching(kit, tmp_path / "watch.json")
    try:
        wait_until(lambda: watching.flow(target), UNTIL_SHOWN_S, "the topic in a document")
        put(kit, "europe", *map(str, range(500)))
        watching.wait_for(target, {"records": 500, "copies": 500})
        rest.act(mirror.connector, "pause")
        # Its task still copies what it is waiting for at that moment.
        wait_until(lambda: states(rest, mirror.connector) == "PAUSEDPAUSED", 60, "the mirror has paused")
        client = admin(kit, "europe")
        keep_for(client, 100_000)
        put(kit, "europe", *map(str, range(500, 2500)))

        def danger() -> Any:
            return watching.flow(target)["loss"] or {"endangered": False, "behind": 0, "gone": 0}

        wait_until(lambda: danger()["endangered"], 120, "the warning")
        wait_until(lambda: danger()["behind"] >= 2000, 60, "all of them")  # Not each round sees them all.
        assert danger()["gone"] == 0
        status = kit.run("status")
        assert status.returncode == 1
        assert "the source may delete them by time in" in status.stdout

        # From here on only the test deletes records.
        keep_for(client, 3_600_000)
        last = records(kit, "europe")["1999"]
        client.delete_records({TopicPartition(TOPIC, 0): 2000})
        client.close()
        wait_until(lambda: danger()["gone"] == 1500, 60, "what is gone")
        assert "1,500 offsets were deleted before they were copied" in kit.run("status").stdout

        # As if the task had fetched this one before it was paused: what it has fetched it copies, sooner or later.
        put(kit, target, "1999", timestamp=last)
        rest.act(mirror.connector, "resume")
        wait_until(lambda: "2499" in records(kit, target), 120, "the last record's copy")
        copied = list(records(kit, target))
        assert [key for key in copied if not 500 <= int(key) < 2000] == [
            *map(str, range(500)),
            *map(str, range(2000, 2500)),
        ]
        print(len(copied) - 1000, "of the deleted records were copied")
        numbers = {"records": 2500, "copies": len(copied), "never_mirrored": 2500 - len(copied)}
        watching.wait_for(target, numbers)
        # Also once the records have been named, which happens beside the rounds.
        named = time.monotonic() + 20
        wait_until(lambda: time.monotonic() > named or watching.counts(target) != numbers, 30, "the names")
        assert watching.counts(target) == numbers
        assert {finding["verdict"] for finding in watching.document["findings"]} == {"never mirrored"}
        watching.wait_for("south-america", {"records": 2500, "copies": 2500})
        assert any("1500" in str(note["offsets"]) for note in watching.document["notes"])
    finally:
        rest.act(mirror.connector, "resume")
        assert watching.end() == 0, watching.errors


def test_a_region_that_does_not_answer_ends_it_with_one_line(kit: Kit) -> None:
    properties = kit.lab.region("south-america").clients["prover"]
    text = properties.read_text()
    lines = [
        "bootstrap.servers=localhost:9" if line.startswith("bootstrap.servers") else line for line in text.split("\n")
    ]
    try:
        properties.write_text("\n".join(lines))
        done = kit.run("watch", "--for", "30")
    finally:
        properties.write_text(text)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: south-america: the cluster does not answer")
