"""Schedules of faults that once found something, or that show what faults hide of each other: each as it was predicted.

``scripts/search_faults.py`` searches for others. CI runs the smallest, on the lab that tests share; the slow tier runs
all of them, on labs with ledgers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loosehanger.faults.fault import read_fault
from loosehanger.faults.names import fault_names
from scripts.sandbox import Kit, copy_kit, forget_bytecode
from scripts.search.quick import QuickKit
from scripts.search.running import ScheduleOutcome, ScheduleRun
from scripts.search.schedules import read_schedule
from scripts.search_faults import Labs

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

FILES = sorted((Path(__file__).parent / "schedules").glob("*.json"))
SMALLEST = "hidden-pause"
CATALOGUE = {name: read_fault(name) for name in fault_names()}


def check(outcome: ScheduleOutcome) -> None:
    """Fails with all that is known, as a finding's file has it."""
    assert outcome.findings == [], json.dumps(outcome.document(), indent=1)
    assert outcome.refused == []


@pytest.fixture
def quick(kit: Kit) -> Iterator[QuickKit]:
    """The lab that tests share, with commands that start at once."""
    found = QuickKit.of(kit)
    yield found
    found.end()


def test_the_smallest_schedule_is_as_predicted(quick: QuickKit) -> None:
    (path,) = (path for path in FILES if path.stem == SMALLEST)
    check(ScheduleRun(quick, read_schedule(path), CATALOGUE).run())


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Labs]:
    """Labs with ledgers, one at a time."""
    folder = tmp_path_factory.mktemp("schedules")
    quick = QuickKit.of(copy_kit(folder, port_base=26000))
    found = Labs(quick, rate=20)
    try:
        yield found
    finally:
        quick.end()
        found.forget()
        forget_bytecode(folder)


def ordered() -> list[Any]:
    """Every schedule; those of one scenario together, so that they share a lab."""
    return [pytest.param(path, id=path.stem) for path in sorted(FILES, key=lambda path: read_schedule(path).scenario)]


@pytest.mark.slow
@pytest.mark.parametrize("path", ordered())
def test_a_schedule_is_as_predicted(labs: Labs, path: Path) -> None:
    outcome = labs.run(read_schedule(path))
    check(outcome)
    assert outcome.records > 0
