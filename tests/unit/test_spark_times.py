"""Times of records as text, also those that no Python date can be."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loosehanger.proof.report.record_times import iso, plain

LAST_MS = 253_402_300_799_999
"""The last moment of the year 9999."""


@pytest.mark.parametrize(
    ("time_ms", "text", "shown"),
    [
        (0, "1970-01-01T00:00:00.000+00:00", "1970-01-01 00:00:00"),
        (-1, "1969-12-31T23:59:59.999+00:00", "1969-12-31 23:59:59"),
        (LAST_MS, "9999-12-31T23:59:59.999+00:00", "9999-12-31 23:59:59"),
        (LAST_MS + 1, "+10000-01-01T00:00:00.000+00:00", "+10000-01-01 00:00:00"),
        # Microseconds, written by a producer that took them for milliseconds.
        (1_770_000_000_000_000, "+58059-01-25T02:40:00.000+00:00", "+58059-01-25 02:40:00"),
        (2**63 - 1, "+292278994-08-17T07:12:55.807+00:00", "+292278994-08-17 07:12:55"),
    ],
)
def test_a_time_as_text(time_ms: int, text: str, shown: str) -> None:
    assert iso(time_ms) == text
    assert plain(text) == shown
    assert plain(text, milliseconds=True) == f"{shown}.{time_ms % 1000:03}"


@given(st.integers(0, LAST_MS))
def test_as_python_has_it(time_ms: int) -> None:
    expected = datetime.fromtimestamp(time_ms // 1000, UTC).replace(microsecond=time_ms % 1000 * 1000)
    assert iso(time_ms) == expected.isoformat(timespec="milliseconds")
