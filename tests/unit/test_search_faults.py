"""The search by night: its schedules, what it predicts, how it shrinks, and how it continues."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from loosehanger.errors import WrongUseError
from loosehanger.faults.fault import Fault, read_fault
from loosehanger.faults.names import fault_names
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.record import Lab
from loosehanger.ledger import LedgerEntry
from loosehanger.paths import ROOT
from scripts import search_faults
from scripts.search.accounts import acknowledged, compare
from scripts.search.controls import ORACLES, controls
from scripts.search.effects import At, depth, excludes, is_near, reach
from scripts.search.prediction import cause_findings, foreign_words, predict
from scripts.search.results import Results
from scripts.search.schedules import (
    FEWEST,
    MOST,
    Schedule,
    described,
    in_order,
    make_schedule,
    placed_faults,
    read_schedule,
    scenario_of,
)
from scripts.search.shrinking import shrink

BROADCAST, SHARED = "03-broadcast", "04-shared-aggregate"


@pytest.fixture(scope="module")
def catalogue() -> dict[str, Fault]:
    return {name: read_fault(name) for name in fault_names()}


@pytest.fixture(scope="module")
def lab() -> Lab:
    return described(BROADCAST)


@pytest.fixture
def at(catalogue: dict[str, Fault], lab: Lab) -> Callable[..., At]:
    """A fault of the catalogue at the mirror of a region."""

    def place(name: str, region: str = "north-america") -> At:
        return catalogue[name], next(mirror for mirror in lab.mirrors if mirror.region == region)

    return place


def ids(mirrors: Sequence[Mirror]) -> set[str]:
    return {mirror.id for mirror in mirrors}


@pytest.mark.parametrize("scenario", [BROADCAST, SHARED])
def test_a_seed_and_a_number_make_one_schedule(catalogue: dict[str, Fault], scenario: str) -> None:
    faults = list(catalogue.values())
    made = [make_schedule(1, number, described(scenario), faults) for number in range(20)]
    assert made == [make_schedule(1, number, described(scenario), faults) for number in range(20)]
    assert made != [make_schedule(2, number, described(scenario), faults) for number in range(20)]
    assert {len(one.faults) for one in made} == set(range(FEWEST, MOST + 1))


def test_no_schedule_has_two_faults_that_exclude_each_other_or_one_that_comes_too_late(
    catalogue: dict[str, Fault],
) -> None:
    lab = described(SHARED)
    for number in range(60):
        schedule = make_schedule(3, number, lab, list(catalogue.values()))
        placed = placed_faults(schedule, lab, catalogue)
        for place, later in enumerate(placed):
            for earlier in placed[:place]:
                assert not excludes(earlier, later)
                if is_near(earlier, later, lab.mirrors):
                    assert depth(earlier[0]) <= depth(later[0]), schedule


def test_schedules_in_a_row_share_a_scenario() -> None:
    assert [scenario_of(["a", "b"], number, 2) for number in range(6)] == ["a", "a", "b", "b", "a", "a"]


def test_two_faults_of_one_connector_process_link_or_user_exclude_each_other(at: Callable[..., At]) -> None:
    assert excludes(at("connector-paused"), at("connector-stopped"))
    assert excludes(at("connector-paused"), at("transform-fails"))
    assert excludes(at("worker-killed"), at("worker-frozen"))
    assert excludes(at("link-cut"), at("link-silent"))
    assert excludes(at("copy-write-denied"), at("transactions-denied"))
    assert excludes(at("broker-frozen"), at("broker-stopped", "south-america"))
    assert not excludes(at("connector-paused"), at("connector-stopped", "south-america"))
    assert not excludes(at("connector-paused"), at("worker-stopped"))
    assert excludes(at("copy-deleted"), at("copy-deleted", "south-america"))


def test_a_fault_reaches_the_mirrors_that_share_what_it_changes(at: Callable[..., At], lab: Lab) -> None:
    north = {at("copy-deleted")[1].id}
    assert reach(*at("connector-paused"), lab.mirrors) == north
    assert reach(*at("link-cut"), lab.mirrors) == north
    assert reach(*at("broker-killed"), lab.mirrors) == north
    assert reach(*at("broker-stopped"), lab.mirrors) == ids(lab.mirrors)
    assert reach(*at("copy-write-denied"), lab.mirrors) == north
    # Both mirrors sign in as the same user in Europe.
    assert reach(*at("configs-denied"), lab.mirrors) == ids(lab.mirrors)
    assert reach(*at("password-changed"), lab.mirrors) == ids(lab.mirrors)
    assert reach(*at("record-too-large"), lab.mirrors) == ids(lab.mirrors)


def test_faults_that_take_the_most_away_come_last(at: Callable[..., At], lab: Lab) -> None:
    chosen = [at("broker-stopped"), at("worker-frozen"), at("connector-paused"), at("copy-deleted")]
    ordered = in_order(chosen, lab.mirrors)
    assert [fault.name for fault, _ in ordered] == [fault.name for fault, _ in reversed(chosen)]


def predicted(lab: Lab, catalogue: dict[str, Fault], *faults: At) -> Any:
    return predict(faults, lab.mirrors, catalogue.values())


def test_a_difference_disproves_unless_a_fault_near_it_hides_it(
    at: Callable[..., At], lab: Lab, catalogue: dict[str, Fault]
) -> None:
    def during(*faults: At) -> set[str]:
        return set(predicted(lab, catalogue, *faults).during)

    assert during(at("unreadable-compression"), at("wrong-timestamps")) == {"proved"}
    assert during(at("unreadable-compression"), at("copy-deleted")) == {"disproved"}
    assert during(at("connector-paused"), at("wrong-timestamps")) == {"inconclusive"}
    assert during(at("copy-truncated"), at("connector-paused")) == {"disproved", "inconclusive"}


def test_a_fault_of_which_the_catalogue_says_nothing_leaves_the_verdict_open_only_while_it_is_there(
    at: Callable[..., At], lab: Lab, catalogue: dict[str, Fault]
) -> None:
    silent = next(name for name, fault in catalogue.items() if fault.noticed.proof is None)
    where = next(m for m in lab.mirrors if m.region == "north-america")
    found = predicted(lab, catalogue, (catalogue[silent], where), at("wrong-timestamps"))
    assert found.during == {"proved", "disproved", "inconclusive"}
    assert found.after == {"proved"}


def test_one_loss_that_stays_disproves_what_follows(
    at: Callable[..., At], lab: Lab, catalogue: dict[str, Fault]
) -> None:
    fault, mirror = at("copy-deleted")
    lasting = fault.model_copy(update={"after": "disproved"})
    assert predicted(lab, catalogue, (lasting, mirror), at("wrong-timestamps")).after == {"disproved"}
    assert predicted(lab, catalogue, (fault, mirror), at("wrong-timestamps")).after == {"proved"}


def test_the_lab_recovers_alone_only_if_every_fault_does(
    at: Callable[..., At], lab: Lab, catalogue: dict[str, Fault]
) -> None:
    assert predicted(lab, catalogue, at("worker-killed"), at("broker-killed", "south-america")).heals_itself
    assert not predicted(lab, catalogue, at("worker-killed"), at("wrong-timestamps")).heals_itself


def test_a_cause_must_be_named_unless_another_fault_may_hide_it(
    at: Callable[..., At], lab: Lab, catalogue: dict[str, Fault]
) -> None:
    paused, stopped = at("connector-paused"), at("worker-stopped")
    says = [notice.says for fault, _ in (paused, stopped) if (notice := fault.noticed.status)]
    assert predicted(lab, catalogue, paused, at("worker-stopped", "south-america")).named == ((says[0],), (says[1],))
    assert predicted(lab, catalogue, paused, stopped).named == (tuple(says), tuple(reversed(says)))
    expected = predicted(lab, catalogue, paused, at("copy-deleted"))
    assert cause_findings(expected, [], "all is well") == [f"status has not named '{says[0]}'"]
    assert cause_findings(expected, [], f"it {says[0].upper()} yesterday") == []


def test_words_that_accuse_a_fault_which_is_not_there_are_found(
    at: Callable[..., At], lab: Lab, catalogue: dict[str, Fault]
) -> None:
    expected = predicted(lab, catalogue, at("worker-stopped"), at("copy-deleted"))
    where = "north-america, KafkaMirrorMaker2/mm2-na"
    accused = {"cause": "connector x was paused by hand", "where": where}
    assert len(cause_findings(expected, [accused], "stopped")) == 1
    assert cause_findings(expected, [{"cause": "no Connect worker answers", "where": where}], "stopped") == []
    there = predicted(lab, catalogue, at("connector-paused"))
    assert cause_findings(there, [accused], "was paused by hand") == []


def test_a_problem_in_a_region_without_a_fault_is_found(
    at: Callable[..., At], lab: Lab, catalogue: dict[str, Fault]
) -> None:
    expected = predicted(lab, catalogue, at("connector-paused"))
    text = "was paused by hand"
    elsewhere = {"cause": "no Connect worker answers", "where": "south-america, KafkaMirrorMaker2/mm2-sa"}
    assert len(cause_findings(expected, [elsewhere], text)) == 1
    assert cause_findings(expected, [{**elsewhere, "where": "europe, Kafka/europe"}], text) == []


def test_words_shared_by_two_faults_accuse_neither(catalogue: dict[str, Fault]) -> None:
    words = foreign_words([catalogue["connector-paused"]], catalogue.values())
    assert "was paused by hand" not in words
    assert "was stopped by hand" in words


def schedule_of(*names: str, pause: float = 0) -> Schedule:
    placed = [
        {"fault": name, "region": "r", "mirror": "m", "source": "s", "target": "r", "pause": pause} for name in names
    ]
    return Schedule.model_validate({"seed": 1, "number": 0, "scenario": BROADCAST, "faults": placed})


def test_a_finding_is_shrunk_to_the_faults_that_it_needs() -> None:
    def finds(schedule: Schedule) -> bool:
        return {"b", "d"} <= {placed.fault for placed in schedule.faults}

    small, replays = shrink(schedule_of("a", "b", "c", "d", pause=3), finds)
    assert [placed.fault for placed in small.faults] == ["b", "d"]
    assert [placed.pause for placed in small.faults] == [0, 0]
    assert replays <= 10


def test_shrinking_ends_after_the_replays_that_it_may_take() -> None:
    seen: list[Schedule] = []

    def finds(schedule: Schedule) -> bool:
        seen.append(schedule)
        return False

    start = schedule_of("a", "b", "c", "d", pause=3)
    assert shrink(start, finds, most=3) == (start, 3)
    assert len(seen) == 3
    assert shrink(start, finds)[0] == start


def test_a_search_continues_behind_its_last_complete_line(tmp_path: Path) -> None:
    settings = {"seed": 1}
    results = Results(tmp_path / "search", settings)
    assert results.next_number == 0
    results.add({"number": 0, "findings": []})
    results.add({"number": 1, "findings": []})
    with (tmp_path / "search" / "done.jsonl").open("a") as file:
        file.write('{"number": 2, "fi')
    again = Results(tmp_path / "search", settings)
    assert again.next_number == 2
    again.add({"number": 2, "findings": []})
    assert [one["number"] for one in again.done] == [0, 1, 2]


def test_a_search_with_other_settings_is_refused(tmp_path: Path) -> None:
    Results(tmp_path, {"seed": 1, "block": 10})
    with pytest.raises(WrongUseError, match="other settings \\(seed\\); choose another folder with --out"):
        Results(tmp_path, {"seed": 2, "block": 10})


def test_a_schedule_is_read_from_its_file_and_from_a_findings(tmp_path: Path) -> None:
    schedule, path = schedule_of("a", "b"), tmp_path / "x.json"
    path.write_text(schedule.model_dump_json())
    assert read_schedule(path) == schedule
    path.write_text(json.dumps({"schedule": schedule.model_dump(), "findings": []}))
    assert read_schedule(path) == schedule
    path.write_text("{}")
    with pytest.raises(WrongUseError, match=re.escape(f"{path}: is not a schedule")):
        read_schedule(path)


def entry(kind: Any, first: int, last: int, partition: int = 0) -> LedgerEntry:
    return LedgerEntry(kind, "run", "c", "LH.X", partition, first, last, 0, 0)


def test_only_what_was_acknowledged_must_be_copied() -> None:
    known = acknowledged([entry("sent", 0, 99), entry("acked", 0, 4), entry("acked", 5, 6), entry("unknown", 7, 9)])
    assert known == {("c", "LH.X", "run", 0): [(0, 6)]}


def test_records_that_a_copy_lacks_or_has_twice_are_counted() -> None:
    source = [{("run", number): 1 for number in range(4)} | {("run", 4): 2}]
    wanted = [("run", 0, [(0, 5)])]
    exact = compare("there", [("run", 0, [(0, 4)])], source, source)
    assert exact.is_exact
    assert exact.acknowledged == 5
    found = compare("there", wanted, source, [{("run", 0): 1, ("run", 1): 2, ("run", 2): 1, ("run", 4): 2}])
    assert (found.acknowledged, found.missing, found.twice, found.at_source) == (6, 2, 1, 1)
    assert not found.is_exact
    assert compare("there", wanted, source, []).missing == 6


def test_every_oracle_has_a_control(catalogue: dict[str, Fault], lab: Lab) -> None:
    made = list(controls(lab, catalogue))
    assert tuple(control.oracle for control in made) == ORACLES
    for control in made:
        declared = predict(placed_faults(control.schedule, lab, catalogue), lab.mirrors, catalogue.values())
        assert declared.during == {"proved"}


def test_the_first_schedules_are_shown_without_a_lab(capsys: pytest.CaptureFixture[str]) -> None:
    assert search_faults.main(["--list", "3", "--seed", "5", "--scenarios", BROADCAST]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["0", "1", "2"]
    assert all(BROADCAST in line for line in lines)


def test_a_search_without_an_end_is_refused() -> None:
    with pytest.raises(WrongUseError, match="--schedules N, or --for 2h"):
        search_faults.main(["--scenarios", BROADCAST])


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1.5h", 5400)])
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert search_faults.duration(text) == seconds


def test_a_wrong_duration_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        search_faults.main(["--for", "2 hours"])
    assert stopped.value.code == 2
    assert "'2 hours' is not a duration such as 90s, 30m or 2h" in capsys.readouterr().err


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tests" / "lab" / "schedules").glob("*.json")), ids=lambda path: path.stem
)
def test_a_kept_schedule_fits_the_catalogue_and_its_scenario(path: Path, catalogue: dict[str, Fault]) -> None:
    schedule = read_schedule(path)
    lab = described(schedule.scenario)
    placed = placed_faults(schedule, lab, catalogue)
    assert in_order(placed, lab.mirrors) == placed
    assert not any(excludes(one, other) for place, one in enumerate(placed) for other in placed[:place])
