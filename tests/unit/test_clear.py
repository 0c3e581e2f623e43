"""The stream that clears a topic: its command line, its topics, its log."""

from __future__ import annotations

import subprocess
import sys

import pytest

from loosehanger.errors import WrongUseError
from loosehanger.jobs.clear import Log, arguments
from loosehanger.paths import ROOT
from loosehanger.redaction.fields import Batch, Clearing, check_partitions

CLEARING = Clearing("LH.ORDERS", "LH.ORDERS.CLEARED", ("customer",), ())
NEEDED = ["--from", "LH.ORDERS", "--to", "LH.ORDERS.CLEARED", "--checkpoint", "checkpoint"]


def test_names_come_with_commas() -> None:
    given = arguments().parse_args([*NEEDED, "--fields", "customer, customerid", "--headers=name"])
    assert (given.source, given.target) == ("LH.ORDERS", "LH.ORDERS.CLEARED")
    assert (given.fields, given.headers) == (("customer", "customerid"), ("name",))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([*NEEDED, "--fields", " ,"], "argument --fields"),
        (NEEDED[2:], "the following arguments are required: --from"),
        ([*NEEDED[:2], "--to", "LH.ORDERS", *NEEDED[4:], "--fields=a"], "cannot be cleared into itself"),
        (NEEDED, "give --fields, --headers or both"),
    ],
)
def test_wrong_use_is_told_before_anything_starts(wrong: list[str], message: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "spark-jobs" / "clear.py"), *wrong], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_both_topics_must_be_there_and_partitions_must_fit() -> None:
    assert check_partitions(CLEARING, {"LH.ORDERS": 3}) == (
        "there is no topic LH.ORDERS.CLEARED, or its user may not see it"
    )
    assert check_partitions(CLEARING, {"LH.ORDERS": 3, "LH.ORDERS.CLEARED": 3}) == ""
    assert check_partitions(CLEARING, {"LH.ORDERS": 3, "LH.ORDERS.CLEARED": 4}) == ""
    with pytest.raises(WrongUseError, match=r"LH\.ORDERS\.CLEARED has 2 partitions and LH\.ORDERS has 3: .*; give"):
        check_partitions(CLEARING, {"LH.ORDERS": 3, "LH.ORDERS.CLEARED": 2})


def test_what_is_withheld_is_told_at_once_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log(every_s=1000)
    log.add(Batch(10, 0, ""))
    assert capsys.readouterr().out == ""
    log.add(Batch(5, 2, "LH.ORDERS-1 at 7: its value is not a JSON object"))
    said = capsys.readouterr().out
    assert "withheld 2 of 5 records; the first is LH.ORDERS-1 at 7: its value is not a JSON object" in said
    assert log.summary == "15 records read, 13 passed on, 2 withheld"


def test_the_numbers_are_told_from_time_to_time(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log(every_s=0)
    log.add(Batch(10, 0, ""))
    assert "10 records read, 10 passed on, 0 withheld" in capsys.readouterr().out
