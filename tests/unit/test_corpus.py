"""The corpus of damage: its cases are as they say, without any broker."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from scripts.corpus.cases import COUNTS, FOLDER, Case, CaseRecord, read_cases
from scripts.corpus.score import Answer, score
from tests.unit.test_spark_comparison import Record, World, reference

CASES = read_cases()
BASE_MS = 1_795_000_000_000


def test_there_are_enough_cases_and_each_is_explained() -> None:
    assert len(CASES) >= 60
    assert len({case.says for case in CASES}) == len(CASES)
    verdicts = Counter(case.expect["verdict"] for case in CASES)
    assert verdicts["disproved"] > 60
    assert verdicts["proved"] >= 20


def content(record: CaseRecord) -> Record:
    return Record(record.key, record.value, record.partition, record.timestamp, record.headers or None)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_numbers_are_those_of_the_definition(case: Case) -> None:
    """In plain Python, which knows nothing of retention and of compaction."""
    sides = (case.source, case.copy)
    deleted = any("delete_before" in side or side.get("absent") for side in sides)
    if deleted or "cleanup.policy" in case.source.get("settings", {}) or case.expect["verdict"] == "inconclusive":
        return
    aborted = set(case.source.get("aborted", ()))
    here = [content(one) for one in case.written(BASE_MS) if one.number not in aborted]
    named, _ = reference(World(here, [content(one) for one in case.copied(BASE_MS)]))
    assert Counter(kind for kind, *_ in named) == Counter(case.counts())
    assert (case.expect["verdict"] == "disproved") == bool(
        named or case.source.get("partitions", 1) != case.copied_partitions
    )


def test_scores_count_what_was_found_and_what_was_not() -> None:
    lost, equal, open_end = (
        next(case for case in CASES if case.id == name) for name in ("lost-first", "equal", "open-at-the-source")
    )
    right = {
        lost.id: Answer("disproved", lost.counts()),
        equal.id: Answer("proved", equal.counts()),
        open_end.id: Answer("inconclusive"),
    }
    found = score([lost, equal, open_end], right)
    assert (found.damage_found, found.false_alarms, found.undecidable_admitted, found.wrong) == (1, [], 1, {})
    assert found.exact_counts == 2
    wrong = {
        lost.id: Answer("disproved", dict.fromkeys(COUNTS, 0)),
        equal.id: Answer("disproved"),
    }
    found = score([lost, equal, open_end], wrong)
    assert (found.damage_found, found.false_alarms, found.undecidable_admitted) == (1, ["equal"], 0)
    assert found.wrong == {
        "lost-first": "no differences, expected missing 1",
        "equal": "disproved, expected proved",
        "open-at-the-source": "no answer, expected inconclusive",
    }


def test_a_mistake_in_a_case_is_refused(tmp_path: Path) -> None:
    entry = "- {id: a, says: b, expect: {verdict: proved}, source: {recrods: 1}}\n"
    (tmp_path / "a.yaml").write_text(entry, encoding="utf-8")
    with pytest.raises(ValueError, match=r"a\.yaml: a: unknown recrods"):
        read_cases(tmp_path)
    (tmp_path / "a.yaml").write_text(2 * "- {id: a, says: b, expect: {verdict: proved}}\n", encoding="utf-8")
    with pytest.raises(ValueError, match="two cases are called a"):
        read_cases(tmp_path)


def test_everything_that_cases_use_is_explained() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    used = {key for case in CASES for part in (case.source, case.copy, case.expect) for key in part}
    used |= {key for case in CASES for fault in case.target for key in fault}
    assert {key for key in used if not re.search(rf"`{key}`", text)} == set()
