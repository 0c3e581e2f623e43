"""The watch sees every region live, tells what is on its way from what is missing, and goes on after a stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient

from lab.sandbox import Kit

from .conftest import wait_until

pytestmark = pytest.mark.lab

TOPIC = "LH.WATCHED"
TARGETS = ("north-america", "south-america")
UNTIL_SHOWN_S = 120


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
            self.process = subprocess.Popen(
                [sys.executable, "-m", "lab", "watch", "--json", *arguments],
                cwd=kit.root,
                env=kit.variables(),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=errors,
                start_new_session=True,
            )

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

    def counts(self, target: str, topic: str = TOPIC) -> dict[str, int]:
        """The newest counts of a flow from Europe. How many copies were late is a matter of how busy the machine is."""
        for flow in self.document.get("flows", ()):
            if (flow["source"], flow["target"], flow["topic"]) == ("europe", target, topic):
                return {name: n for name, n in flow.items() if isinstance(n, int) and n and name != "late"}
        return {}

    def wait_for(self, target: str, counts: dict[str, int], seconds: float = UNTIL_SHOWN_S) -> None:
        """Waits until a flow has exactly these counts besides zeros."""

        def there() -> bool:
            assert self.process.poll() is None, self.errors
            return self.counts(target) == counts

        try:
            wait_until(there, seconds, f"{target}: {counts}")
        except AssertionError as error:
            raise AssertionError(f"{error}; shown: {self.counts(target)}; {self.errors}") from error

    def end(self, number: int = signal.SIGINT) -> int:
        """Ends it, with a signal to the whole group as a terminal sends it; returns the exit code."""
        os.killpg(self.process.pid, number)
        return self.process.wait(timeout=60)


@pytest.fixture
def watched_topic(kit: Kit) -> Any:
    """A topic of one partition that nobody else writes to, mirrored to both targets."""
    client = KafkaAdminClient(**kit.lab.region("europe").connection("admin").kafka_python())
    client.create_topics({TOPIC: {"num_partitions": 1, "replication_factor": 1}})
    client.close()
    for region in TARGETS:
        wait_until(lambda r=region: TOPIC in topics(kit, r), 90, f"{TOPIC} in {region}")  # type: ignore[misc]
    yield TOPIC
    for region in kit.lab.regions:
        client = KafkaAdminClient(**kit.lab.region(region).connection("admin").kafka_python())
        client.delete_topics([TOPIC])
        client.close()


def topics(kit: Kit, region: str) -> set[str]:
    """The topics of a region."""
    client = KafkaAdminClient(**kit.lab.region(region).connection("admin").kafka_python())
    try:
        return set(client.list_topics())
    finally:
        client.close()


def write(kit: Kit, region: str, values: str) -> None:
    """Writes a record for each letter."""
    with KafkaProducer(**kit.lab.region(region).connection("admin").kafka_python()) as producer:
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
    assert last["totals"]["copied"] > 0
    assert last["totals"]["missing"] == last["totals"]["unmatched"] == 0
    assert time.time() - started < 200

    plain = kit.run("watch", "--for", "45")
    assert plain.returncode == 0, plain.stderr
    assert "europe → north-america" in plain.stdout


def test_a_stopped_mirror_leaves_records_in_flight_then_overdue_then_missing(
    kit: Kit, watched_topic: str, tmp_path: Path
) -> None:
    assert watched_topic
    manifest = kit.manifest("mm2-sa.yaml")
    text = manifest.read_text()
    watching = Watching(kit, tmp_path / "watch.json", "--late-after", "10", "--missing-after", "60")
    try:
        wait_until(lambda: watching.document, UNTIL_SHOWN_S, "the first document")
        write(kit, "europe", "abc")
        for target in TARGETS:
            watching.wait_for(target, {"records": 3, "copied": 3})

        manifest.write_text(text.replace("        tasksMax: 1\n", "        tasksMax: 1\n        state: paused\n"))
        assert kit.setup().returncode == 0
        write(kit, "europe", "de")
        watching.wait_for("south-america", {"records": 5, "copied": 3, "in_flight": 2})
        watching.wait_for("south-america", {"records": 5, "copied": 3, "overdue": 2})
        watching.wait_for("south-america", {"records": 5, "copied": 3, "missing": 2})
        watching.wait_for("north-america", {"records": 5, "copied": 5})

        manifest.write_text(text)
        assert kit.setup().returncode == 0
        watching.wait_for("south-america", {"records": 5, "copied": 3, "missing": 2, "unmatched": 2})
    finally:
        manifest.write_text(text)
        kit.setup()
        assert watching.end() == 0, watching.errors


def test_a_killed_watch_goes_on_without_losing_or_doubling_anything(
    kit: Kit, watched_topic: str, tmp_path: Path
) -> None:
    assert watched_topic
    watching = Watching(kit, tmp_path / "first.json")
    try:
        wait_until(lambda: watching.document, UNTIL_SHOWN_S, "the first document")
        write(kit, "europe", "abc")
        watching.wait_for("north-america", {"records": 3, "copied": 3})
    finally:
        watching.end(signal.SIGKILL)
    write(kit, "europe", "defg")
    # Longer than a record may take: what came in the pause is not missing.
    watching = Watching(kit, tmp_path / "second.json")
    try:
        for target in TARGETS:
            watching.wait_for(target, {"records": 7, "copied": 7})
        assert "anew" not in watching.errors
    finally:
        assert watching.end() == 0, watching.errors

    # A topic that was deleted and made again is another one.
    for region in kit.lab.regions:
        client = KafkaAdminClient(**kit.lab.region(region).connection("admin").kafka_python())
        client.delete_topics([TOPIC])
        client.close()
        wait_until(lambda r=region: TOPIC not in topics(kit, r), 60, f"no {TOPIC} in {region}")  # type: ignore[misc]
    client = KafkaAdminClient(**kit.lab.region("europe").connection("admin").kafka_python())
    client.create_topics({TOPIC: {"num_partitions": 1, "replication_factor": 1}})
    client.close()
    done = kit.run("watch", "--json", "--for", "30")
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if "starting anew" in line and TOPIC in line]


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
