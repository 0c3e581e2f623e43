"""A link that falls silent under load: mirrors come back by themselves, and nothing is missing or doubled."""

from __future__ import annotations

import json
import time

import pytest

from scripts.sandbox import Kit

from .conftest import wait_until
from .crossings import crossings

pytestmark = [pytest.mark.lab, pytest.mark.slow]

RATE = 300
RECOVERY_S = 150
PROOF_S = 600


@pytest.fixture(scope="module")
def busy(kit: Kit) -> Kit:
    """The broadcast with a producer in a hurry."""
    done = kit.setup("-e", f"producer_rate={RATE}")
    assert done.returncode == 0, done.stdout
    return kit


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        # The records, or the requests for them.
        (("europe", "north-america", "--one-way"), 60),
        (("north-america", "europe", "--one-way"), 60),
        # Longer than transactions may last.
        (("europe", "north-america"), 90),
    ],
    ids=["records", "requests", "both"],
)
def test_after_a_silence_everything_is_there_once(busy: Kit, words: tuple[str, ...], seconds: float) -> None:
    done = busy.run("link", *words, "--silent")
    assert done.returncode == 0, done.stderr
    cut = time.monotonic()
    assert busy.run("status").returncode == 1
    wait_until(lambda: time.monotonic() - cut >= seconds, seconds + 10, "the end of the silence")
    done = busy.run("link", "europe", "north-america", "--heal")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: busy.run("status").returncode == 0, RECOVERY_S, "a healthy lab")
    done = busy.run("prove", "--json", "--timeout", str(RECOVERY_S), timeout=PROOF_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["totals"]["source_records"] > RATE * seconds
    assert [crossing for crossing in crossings(busy) if not crossing.is_right] == []
