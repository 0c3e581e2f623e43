"""How long a switch took: counted from the right moment, by what the ledgers say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.recovery import recovery
from loosehanger.lab.snapshots import (
    MirrorSnapshot,
    OffsetReset,
    RegionLoss,
    RegionWipe,
    Snapshots,
    archive_snapshots,
    archives,
    has_mirror_snapshot,
    is_lost,
    is_reset,
    is_wiped,
    keep_loss,
    keep_mirror_snapshot,
    keep_reset,
    keep_wipe,
    last_wipe_ms,
    read_snapshots,
)
from loosehanger.ledger import LedgerEntry

OLD, NEW = "cluster-of-a", "cluster-of-b"
FENCE = MirrorSnapshot(
    "ab/regiona",
    "region-a",
    "region-b",
    NEW,
    12_000,
    {"LH.T": {0: 10, 1: 0}},
    {"LH.T": {0: 9}},
    {"g": {"LH.T": {0: 8}}},
)


def entry(kind: str, cluster: str, run: str, first: int, last: int, since: int, until: int) -> LedgerEntry:
    return LedgerEntry(kind, run, cluster, "LH.T", 0, first, last, since, until, "g" if kind == "processed" else "")  # type: ignore[arg-type]


LEDGERS = [
    entry("acked", OLD, "one", 0, 9, 1000, 9900),
    entry("processed", OLD, "one", 0, 8, 1100, 9950),
    entry("acked", NEW, "two", 0, 5, 15_000, 16_000),
    # The first record is one that was read before; with the next, the first of the new ones comes.
    entry("processed", NEW, "one", 8, 9, 14_000, 14_100),
    entry("processed", NEW, "two", 0, 3, 15_500, 15_900),
]


def legs(marks: Snapshots, ledgers: list[LedgerEntry]) -> dict[str, float | None]:
    found = recovery(marks, ledgers)
    assert found is not None
    return {leg.name: leg.seconds for leg in found.legs}


def test_after_a_death_the_first_kill_starts_the_clock() -> None:
    marks = Snapshots((RegionLoss("region-a", 10_000),), (FENCE,))
    assert legs(marks, LEDGERS) == {
        "mirror held": 2.0,
        "consumer's first record": 4.0,
        "producer's first acknowledgement": 5.0,
        "consumer's first new event": 5.5,
    }


def test_in_a_planned_switch_the_last_acknowledgement_before_it_does() -> None:
    assert legs(Snapshots((), (FENCE,)), LEDGERS)["producer's first acknowledgement"] == 5.1


def test_where_only_consumers_move_their_last_record_before_it_starts_the_clock() -> None:
    goes_on = entry("acked", OLD, "one", 10, 99, 10_000, 20_000)
    found = recovery(Snapshots((), (FENCE,)), [*LEDGERS[:2], goes_on, LEDGERS[3]])
    assert found is not None
    assert found.begins == "the consumer's last record before it"
    assert {leg.name: leg.seconds for leg in found.legs} == {"mirror held": 2.05, "consumer's first record": 4.05}


def test_where_consumers_have_moved_before_only_the_producer_has_legs() -> None:
    earlier = entry("processed", NEW, "one", 8, 9, 2000, 9960)
    found = legs(Snapshots((), (FENCE,)), [LEDGERS[0], earlier, LEDGERS[2], LEDGERS[4]])
    assert found == {
        "mirror held": 2.1,
        "producer's first acknowledgement": 5.1,
        "consumer's first new event": 5.6,
    }


def test_who_was_at_the_target_once_and_left_it_again_moves() -> None:
    stay = entry("processed", NEW, "zero", 0, 5, 100, 900)
    assert "consumer's first record" in legs(Snapshots((), (FENCE,)), [stay, *LEDGERS])


def test_what_has_not_come_yet_has_no_time() -> None:
    marks = Snapshots((RegionLoss("region-a", 10_000),), (FENCE,))
    found = recovery(marks, LEDGERS[:3])
    assert found is not None
    assert not found.complete
    assert legs(marks, LEDGERS[:3])["consumer's first record"] is None


def test_without_a_switch_there_is_nothing_to_tell() -> None:
    assert recovery(Snapshots(), LEDGERS) is None


def test_a_group_that_got_its_offsets_by_its_ledger_does_not_hold_a_mirror_up() -> None:
    by_ledger = replace(FENCE, mirror="by ledger/g", source="", held_ms=19_000)
    losses = (RegionLoss("region-a", 10_000),)
    assert legs(Snapshots(losses, (FENCE, by_ledger)), LEDGERS) == legs(Snapshots(losses, (FENCE,)), LEDGERS)
    assert "mirror held" not in legs(Snapshots(losses, (by_ledger,)), LEDGERS)


def test_marks_are_read_as_they_were_kept(tmp_path: Path) -> None:
    mirror = Mirror("ab", "regiona", "regionb", "region-a", "region-b", "identity", ".", "LH.*", "", "connector")
    assert not has_mirror_snapshot(tmp_path, "failover", mirror)
    keep_mirror_snapshot(tmp_path, "failover", FENCE)
    assert not is_lost(tmp_path, "failover", "region-a")
    keep_loss(tmp_path, "failover", RegionLoss("region-a", 10_000))
    assert is_lost(tmp_path, "failover", "region-a")
    assert read_snapshots(tmp_path, "failover") == Snapshots((RegionLoss("region-a", 10_000),), (FENCE,))
    assert has_mirror_snapshot(tmp_path, "failover", mirror)
    assert read_snapshots(tmp_path, "setup") == Snapshots()


def test_a_stage_that_begins_anew_keeps_marks_of_its_own_and_wipes_are_remembered(tmp_path: Path) -> None:
    mirror = Mirror("ab", "regiona", "regionb", "region-a", "region-b", "identity", ".", "LH.*", "", "connector")
    assert last_wipe_ms(tmp_path) is None
    archive_snapshots(tmp_path, "rebuild")
    for wiped_ms in (7000, 9000):
        keep_wipe(tmp_path, "rebuild", RegionWipe("region-a", wiped_ms))
        keep_reset(tmp_path, "rebuild", OffsetReset("ab/regiona", {"LH.T": {0: 9}}))
        assert is_wiped(tmp_path, "rebuild", "region-a")
        assert not is_wiped(tmp_path, "rebuild", "region-b")
        assert is_reset(tmp_path, "rebuild", mirror)
        archive_snapshots(tmp_path, "rebuild")
        assert read_snapshots(tmp_path, "rebuild") == Snapshots()
    assert last_wipe_ms(tmp_path) == 9000


def test_an_archive_is_one_until_the_mirror_is_re_armed_again_or_its_target_is_wiped(tmp_path: Path) -> None:
    assert archives(tmp_path) == {}
    for at_ms, end in ((2000, 5), (1000, 3)):
        keep_reset(tmp_path, "return", OffsetReset("ab/a", {}, {"a.LH.T": {0: end, 2: 1}}, "region-b", at_ms))
        archive_snapshots(tmp_path, "return")
    assert archives(tmp_path) == {"ab/a": {"a.LH.T": {0: 5, 2: 1}}}, "the later one, whatever its folder's name"
    keep_wipe(tmp_path, "rebuild", RegionWipe("region-a", 3000))
    assert archives(tmp_path) == {"ab/a": {"a.LH.T": {0: 5, 2: 1}}}
    keep_wipe(tmp_path, "rebuild", RegionWipe("region-b", 3000))
    assert archives(tmp_path) == {}
