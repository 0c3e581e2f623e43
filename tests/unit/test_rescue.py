"""What only a dead cluster has: listed and exported as it was, and written elsewhere once."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from kafka import TopicPartition

from loosehanger.errors import LabError
from loosehanger.kafka import clients
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.snapshots import (
    MirrorSnapshot,
    SalvageSnapshot,
    keep_mirror_snapshot,
    keep_rescue,
    last_mirror_snapshot,
    read_snapshots,
)
from loosehanger.stages import salvage as module
from loosehanger.stages.salvage import HEADER, rescue

MIRROR = Mirror("ab", "a", "b", "region-a", "region-b", "identity", ".", r"LH\..*", "", "source", region="region-b")
FENCE = MirrorSnapshot("ab/a", "region-a", "region-b", "an-id", 5000, {"LH.T": {0: 40, 1: 7}})


@dataclass
class Record:
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


BEYOND = [
    Record("LH.T", 0, 100, 11, b"key", b'{"n": 1}', [("lh-run", b"one"), ("lh-seq", b"100")]),
    Record("LH.T", 0, 102, 12, None, b"\xff\x00", [("bytes", b"\xfe"), ("empty", None)]),
    Record("LH.T", 1, 9, 13, b"gone", None),
]


class Target:
    """The cluster in which work goes on, to its reader and to its writer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.written: list[Record] = []
        self.refuses = False
        monkeypatch.setattr(module, "beyond", lambda *_: BEYOND)
        monkeypatch.setattr(module, "connection_for", lambda *_: self)
        monkeypatch.setattr(module, "Cluster", lambda *_: self)
        monkeypatch.setattr(clients, "KafkaProducer", lambda **_: self)

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None: ...

    # What the module asks a lab for.
    def region(self, _name: str) -> Target:
        return self

    def kafka_python(self) -> dict[str, Any]:
        return {}

    # A looker.
    def ends(self, topics: set[str]) -> dict[TopicPartition, int]:
        assert topics == {"LH.T"}
        return {}

    def records(self, starts: dict[TopicPartition, int], _ends: object) -> list[Record]:
        assert starts == {TopicPartition("LH.T", 0): 40, TopicPartition("LH.T", 1): 7}
        return list(self.written)

    # A producer.
    def send(self, topic: str, value: bytes, key: bytes, headers: Any, partition: int, timestamp: int) -> Target:
        self.written.append(Record(topic, partition, 1000 + len(self.written), timestamp, key, value, headers))
        return self

    def get(self, _timeout: float) -> None:
        if self.refuses:
            raise TimeoutError("no answer")

    def flush(self, _timeout: float) -> None: ...

    def close(self, _timeout: float) -> None: ...


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Target:
    return Target(monkeypatch)


def run(target: Target, home: Path, *, write: bool) -> SalvageSnapshot:
    return rescue(cast(Any, target), home, MIRROR, FENCE, write=write)


def test_what_was_never_mirrored_is_exported_in_the_words_of_its_records(target: Target, tmp_path: Path) -> None:
    done = run(target, tmp_path, write=False)
    assert (done.records, done.written, target.written) == (3, 0, [])
    lines = [json.loads(line) for line in Path(done.file).read_text(encoding="utf-8").splitlines()]
    assert [(line["partition"], line["offset"], line["timestamp"]) for line in lines] == [
        (0, 100, 11),
        (0, 102, 12),
        (1, 9, 13),
    ]
    assert (lines[0]["key"], lines[0]["value"], lines[0]["headers"][1]) == ("key", '{"n": 1}', ["lh-seq", "100"])
    assert (lines[1]["key"], lines[1]["value"]) == (None, {"base64": "/wA="})
    assert Path(done.file).stat().st_mode & 0o777 == 0o600


def test_what_was_rescued_in_an_earlier_disaster_stays(target: Target, tmp_path: Path) -> None:
    first, again = (run(target, tmp_path, write=False).file for _ in range(2))
    later = rescue(cast(Any, target), tmp_path, MIRROR, replace(FENCE, held_ms=9_000_000), write=False).file
    assert first == again
    assert later != first
    assert Path(first).exists()


def test_copies_are_the_records_as_they_were_with_the_place_that_they_had(target: Target, tmp_path: Path) -> None:
    assert run(target, tmp_path, write=True).written == 3
    for copy, record in zip(target.written, BEYOND, strict=True):
        mark = f"region-a/{record.partition}/{record.offset}".encode()
        assert (copy.topic, copy.partition, copy.timestamp) == (record.topic, record.partition, record.timestamp)
        assert (copy.key, copy.value, copy.headers) == (record.key, record.value, [*record.headers, (HEADER, mark)])


def test_what_was_written_is_not_written_again(target: Target, tmp_path: Path) -> None:
    run(target, tmp_path, write=True)
    del target.written[1]
    assert run(target, tmp_path, write=True).written == 3
    # Nor does a run that only lists forget that they are there.
    assert run(target, tmp_path, write=False).written == 3
    assert [copy.headers[-1][1] for copy in target.written] == [b"region-a/0/100", b"region-a/1/9", b"region-a/0/102"]


def test_what_its_producer_has_sent_again_is_not_there_alone(target: Target, tmp_path: Path) -> None:
    elsewhere = replace(BEYOND[0], offset=70, partition=1)
    target.written = [replace(BEYOND[0], offset=70), elsewhere]
    done = run(target, tmp_path, write=True)
    assert (done.records, done.written) == (2, 2)
    assert [copy.headers[-1] for copy in target.written[2:]] == [(HEADER, b"region-a/0/102"), (HEADER, b"region-a/1/9")]
    # In another partition the number is another event's.
    target.written = [elsewhere]
    assert run(target, tmp_path, write=False).records == 3


def test_what_nobody_has_numbered_is_not_taken_for_sent_again(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = replace(BEYOND[0], headers=[("lh-run", b"one"), ("lh-seq", b"a hundred")])
    monkeypatch.setattr(module, "beyond", lambda *_: [foreign])
    target.written = [replace(foreign, offset=70)]
    assert run(target, tmp_path, write=True).records == 1
    assert len(target.written) == 2


def test_a_cluster_that_does_not_take_them_is_named(target: Target, tmp_path: Path) -> None:
    target.refuses = True
    with pytest.raises(LabError, match=r"region-b: rescued records could not be written: no answer; run the stage"):
        run(target, tmp_path, write=True)


def test_the_last_time_that_a_mirror_was_held_counts(tmp_path: Path) -> None:
    assert last_mirror_snapshot(tmp_path, MIRROR) is None
    for stage, held_ms in (("first", 5000), ("third", 9000), ("second", 7000)):
        keep_mirror_snapshot(tmp_path, stage, MirrorSnapshot("ab/a", "region-a", "region-b", stage, held_ms, {}))
    keep_mirror_snapshot(tmp_path, "first", MirrorSnapshot("other/a", "region-a", "region-b", "other", 99_000, {}))
    found = last_mirror_snapshot(tmp_path, MIRROR)
    assert found is not None
    assert found.cluster == "third"


def test_what_was_rescued_is_kept(tmp_path: Path) -> None:
    done = SalvageSnapshot("ab/a", "region-a", "region-b", "file", 3, 2)
    keep_rescue(tmp_path, "rescue", done)
    assert read_snapshots(tmp_path, "rescue").rescues == (done,)
