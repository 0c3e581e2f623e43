"""Reads orders to the end and keeps its offsets in a file; continues in another cluster, where they mean nothing.

    own_offsets.py REGION FILE

Run it from the root of the kit while the scenario is set up; README.md says how.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from loosehanger.errors import ExitCode, LabError, WrongUseError, run_command
from loosehanger.files import write_file
from loosehanger.kafka.connection import connection_for
from loosehanger.kafka.patches import cluster_id, prepare
from loosehanger.lab.record import load_lab

TOPIC = "LH.ORDERS"
USER = "prover"
SILENT_S = 60.0


class Reader:
    """A reader of one cluster.

    Args:
        consumer: its consumer.
        kept: partition → the last record that was read: its offset, time, run and sequence number.
    """

    def __init__(self, consumer: KafkaConsumer, kept: dict[str, dict[str, Any]]) -> None:
        self._consumer = consumer
        self.kept = kept
        self.read = self.passed_over = self.skipped = 0
        numbers = sorted(consumer.partitions_for_topic(TOPIC) or ())
        self._partitions = [TopicPartition(TOPIC, number) for number in numbers]
        self._ends = consumer.end_offsets(self._partitions)
        consumer.assign(self._partitions)
        consumer.seek_to_beginning()

    def go_on(self) -> None:
        """Begins behind the last offsets: the cluster is the one that they are of."""
        for partition in self._partitions:
            if last := self.kept.get(str(partition.partition)):
                self._consumer.seek(partition, last["offset"] + 1)
        self._read(searching=set())

    def go_on_elsewhere(self) -> None:
        """Begins with the first record that is as old as the last one, and passes over what was read already.

        Raises:
            LabError: a last record is not there.
        """
        known = [partition for partition in self._partitions if str(partition.partition) in self.kept]
        times = {partition: self.kept[str(partition.partition)]["time"] for partition in known}
        for partition, found in self._consumer.offsets_for_times(times).items():
            self._consumer.seek(partition, found.offset if found else self._ends[partition])
        if missing := self._read(searching=set(times)):
            number = min(partition.partition for partition in missing)
            raise LabError(
                f"the last order read of partition {number} is not in this cluster yet; begin again when it is"
            )

    def _read(self, searching: set[TopicPartition]) -> set[TopicPartition]:
        """Reads to the end; in these partitions it looks first for the last record that was read."""
        moved = time.monotonic()
        while any(self._consumer.position(partition) < self._ends[partition] for partition in self._partitions):
            if time.monotonic() >= moved + SILENT_S:
                raise LabError(f"no order received for {SILENT_S:.0f} s before the end; see ./lab status")
            for partition, records in self._consumer.poll(timeout_ms=500).items():
                moved = time.monotonic()
                for record in records:
                    self._take(record, partition, searching)
        return searching

    def _take(self, record: Any, partition: TopicPartition, searching: set[TopicPartition]) -> None:
        headers = dict(record.headers)
        run, seq = headers.get("lh-run", b"").decode(), int(headers.get("lh-seq", b"0"))
        last = self.kept.setdefault(str(partition.partition), {"run": "", "seq": 0})
        if partition in searching:
            self.passed_over += 1
            if (run, seq) != (last["run"], last["seq"]):
                return
            searching.discard(partition)
        else:
            self.read += 1
            if run and run == last["run"]:
                self.skipped += max(0, seq - last["seq"] - 1)
        last.update(run=run, seq=seq, offset=record.offset, time=record.timestamp)


def main() -> int:
    """Reads the new orders, counts them, and keeps their offsets.

    Returns:
        0 if nothing failed.

    Raises:
        LabError: the record to continue from is missing.
        WrongUseError: other arguments than a region and a file.
    """
    prepare(lambda line: print(line, file=sys.stderr))
    if len(sys.argv) != 3:
        raise WrongUseError("give a region and a file")
    region, file = load_lab().region(sys.argv[1]), Path(sys.argv[2])
    state: dict[str, Any] = {"cluster": "", "partitions": {}}
    if file.exists():
        try:
            state |= json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise WrongUseError(f"{file} was not written by this program; delete it") from error
    consumer = KafkaConsumer(
        **connection_for(region, USER).kafka_python(),
        group_id=None,
        enable_auto_commit=False,
        isolation_level="read_committed",
        allow_auto_create_topics=False,
    )
    try:
        reader, cluster = Reader(consumer, state["partitions"]), cluster_id(consumer)
        if state["cluster"] in ("", cluster):
            reader.go_on()
        else:
            print(
                f"another cluster than before: {len(reader.kept)} offsets mean nothing here; the last orders' times do"
            )
            reader.go_on_elsewhere()
    finally:
        consumer.close(autocommit=False)
    write_file(file, json.dumps({"cluster": cluster, "partitions": reader.kept}))
    print(
        f"{region.name}: passed over {reader.passed_over:,} that were read before, read {reader.read:,} orders,"
        f" skipped {reader.skipped:,}"
    )
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(run_command(main))
