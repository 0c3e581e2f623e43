"""A mirror that runs and delivers nothing is not running: who is judged, from when on, and what is said."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from loosehanger.kafka import stalled
from loosehanger.kafka.retention_risk import PartitionRisk
from loosehanger.kafka.stalled import Stands, bound_s, cause, cut_off, drops, found_s, looked_s, runs
from loosehanger.stack_traces import last_error

MIRROR = "north-america/c"
BOUND = 35.0
LOG = """\
2026-11-26 13:00:00,001 INFO  Kafka version: 4.3.1 (AppInfoParser)
2026-11-26 13:00:00,501 ERROR Something else (X)
2026-11-26 13:00:01,001 WARN  Could not create topic LH.met.ric. (MirrorSourceConnector)
java.util.concurrent.CompletionException: org.apache.kafka.common.errors.InvalidTopicException: Topic 'LH.met.ric' …
\tat java.base/java.util.concurrent.CompletableFuture.encodeThrowable(Unknown Source)
Caused by: org.apache.kafka.common.errors.InvalidTopicException: Topic 'LH.met.ric' collides with existing topic: x
2026-11-26 13:00:02,001 WARN  [Producer] The metadata response reported a recoverable issue (NetworkClient)
2026-11-26 13:00:03,001 INFO  SourceConnectorConfig values:
\tconfig.action.reload = restart
"""


def at(position: int | None, oldest: int | None = None, age_s: float = 1.0, **more: Any) -> PartitionRisk:
    """A partition of the topic A; by default its first."""
    number = more.pop("partition", 0)
    return PartitionRisk(
        "A", number, position, 0, 99, 1, oldest=oldest, age_s=None if oldest is None else age_s, **more
    )


def test_nothing_delivered_while_a_readable_record_waits_is_a_stall_with_its_place_and_cause() -> None:
    stands = Stands()
    for now in (0.0, 10.0, 34.0):
        stands.read(MIRROR, [at(7, 9), at(3, 4, partition=1)], now)
        assert stands.stalled(MIRROR, BOUND) is None
    stands.read(MIRROR, [at(7, 9), at(3, 4, partition=1), at(5, partition=2)], 36.0)
    found = stands.stalled(MIRROR, BOUND)
    assert found is not None
    assert found.describe("Topic 'LH.met.ric' collides") == (
        "running, but no record was delivered for 36 s: A-0 waits at offset 9 and 1 more partition waits; "
        "last error in the worker's log: Topic 'LH.met.ric' collides"
    )


def test_where_no_readable_record_waits_there_is_nothing_to_deliver() -> None:
    stands = Stands()
    for now in (0.0, 60.0, 120.0):
        stands.read(MIRROR, [at(7)], now)  # markers and a compacted tail: offsets, and no record
    assert stands.stalled(MIRROR, BOUND) is None
    stands.read(MIRROR, [at(7, 9)], 130.0)
    assert stands.stalled(MIRROR, BOUND) is None, "the record has only just come"
    stands.read(MIRROR, [at(7, 9)], 166.0)
    assert stands.stalled(MIRROR, BOUND)
    stands.read(MIRROR, [at(9)], 167.0)
    assert stands.stalled(MIRROR, BOUND) is None, "it was delivered"


def test_a_mirror_of_which_nothing_was_ever_delivered_is_judged_as_well() -> None:
    stands = Stands()
    for now in (0.0, 36.0):
        stands.read(MIRROR, [at(None, 0)], now)
    assert stands.stalled(MIRROR, BOUND)
    assert stands.stalled(MIRROR, BOUND, found_s=10.0) is None, "it has not looked for new topics yet"
    stands.read(MIRROR, [at(None, 0, 46.0)], 46.0)
    assert stands.stalled(MIRROR, BOUND, found_s=10.0)
    assert stands.stalled(MIRROR, BOUND, found_s=math.inf) is None
    assert stands.suspects(MIRROR, BOUND, new=True)
    assert not stands.suspects(MIRROR, BOUND, new=False)


def test_a_topic_that_a_mirror_at_work_never_copied_may_be_none_that_it_is_allowed_to_see() -> None:
    stands = Stands()
    for now in (0.0, 3600.0):
        stands.read(MIRROR, [at(7), at(None, 0, 3600.0, partition=1)], now)
    assert stands.stalled(MIRROR, BOUND) is None
    assert not stands.suspects(MIRROR, BOUND, new=True)


@pytest.mark.parametrize(("age_s", "judged"), [(600.0, False), (1.0, True)])
def test_a_mirror_that_works_off_a_backlog_elsewhere_is_at_work(age_s: float, *, judged: bool) -> None:
    stands = Stands()
    for now in range(0, 60, 5):
        stands.read(MIRROR, [at(7, 9), at(now, now + 1, age_s, partition=1)], float(now))
    assert bool(stands.stalled(MIRROR, BOUND)) == judged, "one that has the latest of the others does not work off any"


def test_a_lost_reading_neither_heals_a_mirror_nor_makes_it_ill() -> None:
    stands = Stands()
    stands.read(MIRROR, [at(7, 9)], 0.0)
    stands.read(MIRROR, [at(7, unread=True)], 20.0)
    stands.keep(MIRROR, {("A", 0): 7}, 25.0)
    assert stands.stalled(MIRROR, BOUND) is None
    stands.keep(MIRROR, {("A", 0): 7}, 36.0)
    found = stands.stalled(MIRROR, BOUND)
    assert found is not None
    assert (found.offset, found.seconds) == (9, 36.0)
    stands.keep(MIRROR, {("A", 0): 12}, 40.0)
    assert stands.stalled(MIRROR, BOUND) is None, "the position has moved"
    stands.keep(MIRROR, {("A", 0): 12}, 90.0)
    assert stands.stalled(MIRROR, BOUND) is None, "no look has seen a record that waits"


def test_the_clock_of_a_mirror_that_was_held_begins_anew() -> None:
    stands = Stands()
    for now in (0.0, 36.0):
        stands.read(MIRROR, [at(7, 9)], now)
    stands.forget(MIRROR)
    assert stands.stalled(MIRROR, BOUND) is None
    stands.read(MIRROR, [at(7, 9)], 40.0)
    assert stands.stalled(MIRROR, BOUND) is None


def test_only_an_old_record_that_nothing_moves_is_worth_watching() -> None:
    stands = Stands()
    stands.read(MIRROR, [at(7, 9, 34.0)], 0.0)
    assert not stands.suspects(MIRROR, BOUND, new=True), "a record on its way"
    stands.read(MIRROR, [at(7, 9, 36.0)], 1.0)
    assert stands.suspects(MIRROR, BOUND, new=True)
    stands.read(MIRROR, [at(8, 9, 36.0)], 2.0)
    assert not stands.suspects(MIRROR, BOUND, new=True)


def test_which_connectors_are_judged() -> None:
    running = {"state": "RUNNING"}
    assert runs({"connector": running, "tasks": [running]})
    assert not runs({"connector": running, "tasks": []})
    assert not runs({"connector": {"state": "PAUSED"}, "tasks": [{"state": "PAUSED"}]})
    assert not runs({"connector": running, "tasks": [running, {"state": "FAILED"}]})
    kept = "org.apache.kafka.connect.transforms.InsertHeader"
    assert not drops({})
    assert not drops({"transforms": "a, b", "transforms.a.type": kept, "transforms.b.type": kept})
    assert drops({"transforms": "a,b", "transforms.a.type": kept, "transforms.b.type": "com.example.Sample"})
    assert drops({"transforms": "a", "transforms.a.type": "org.apache.kafka.connect.transforms.Filter"})


def test_in_what_time_a_new_topic_is_found() -> None:
    assert found_s({}) == 600.0
    assert found_s({"refresh.topics.interval.seconds": "10"}) == 10.0
    assert found_s({"refresh.topics.enabled": "false", "refresh.topics.interval.seconds": "10"}) == math.inf


def test_a_mirror_behind_a_link_that_is_cut_or_does_not_answer_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "regions/europe/links/north-america").mkdir(parents=True)
    reported: dict[str, Any] = {"refused": False, "directions": [{"to": "europe", "silent": False}]}
    monkeypatch.setattr(stalled, "ask", lambda _: reported)
    places = "north-america", "europe", "north-america"
    assert not cut_off(tmp_path, *places)
    assert not cut_off(None, *places)
    reported["refused"] = True
    assert cut_off(tmp_path, *places)
    assert not cut_off(tmp_path, "south-america", "europe", "south-america"), "another link"

    def silent(_: object) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(stalled, "ask", silent)
    assert cut_off(tmp_path, *places)


def test_the_bound_is_what_a_worker_takes_to_write_a_position_and_the_cause_is_in_its_log(tmp_path: Path) -> None:
    region = tmp_path / "regions/north-america"
    (region / "connect/mm2").mkdir(parents=True)
    (region / "logs").mkdir()
    assert (bound_s(None, "north-america", "mm2"), cause(None, "north-america", "mm2")) == (90.0, "")
    assert (bound_s(tmp_path, "north-america", "mm2"), cause(tmp_path, "north-america", "mm2")) == (90.0, "")
    (region / "connect/mm2/worker-0.properties").write_text("a=1\noffset.flush.interval.ms=5000\n", encoding="utf-8")
    (region / "logs/mm2-0.log").write_text(LOG, encoding="utf-8")
    (region / "logs/mm2-auto-restart.log").write_text(LOG.replace("create", "restart"), encoding="utf-8")
    assert bound_s(tmp_path, "north-america", "mm2") == 35.0
    said = cause(tmp_path, "north-america", "mm2")
    assert "Could not create topic LH.met.ric." in said
    assert "Topic 'LH.met.ric' collides with existing topic: x" in said
    assert "metadata" not in said, "a warning without a trace is no error"


def test_the_last_error_of_a_log_is_one_line_of_bounded_length() -> None:
    assert last_error("") == last_error("INFO all is well\n") == ""
    assert last_error("2026-11-26 13:00:00,001 ERROR it broke\n\tat x\nCaused by: a.B: no\n") == "it broke: a.B: no"
    assert len(last_error("2026-11-26 13:00:00,001 ERROR " + "x" * 10_000)) < 500


def test_a_source_connector_looks_for_topics_and_for_settings() -> None:
    source = {"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector"}
    assert looked_s(source) == 600
    short = source | {"refresh.topics.interval.seconds": "5"}
    assert looked_s(short) == 600
    assert looked_s(short | {"sync.topic.configs.interval.seconds": "7"}) == 7
    assert looked_s(source | {"refresh.topics.enabled": "false"}) == math.inf
    assert looked_s({"connector.class": "org.apache.kafka.connect.mirror.MirrorCheckpointConnector"}) == 0
