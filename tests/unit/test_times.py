"""Times are read as users write them, in one way everywhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from loosehanger.times import moment

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("30s", timedelta(seconds=30)),
        ("-10m", timedelta(minutes=10)),
        ("12h", timedelta(hours=12)),
        ("7d", timedelta(days=7)),
    ],
)
def test_how_long_ago(text: str, ago: timedelta) -> None:
    assert moment(text, NOW) == NOW - ago


def test_a_time_keeps_its_zone_and_is_local_without_one() -> None:
    assert moment("2026-11-21T09:30+02:00", NOW) == datetime(2026, 11, 21, 7, 30, tzinfo=UTC)
    assert moment("2026-11-21T09:30", NOW) == datetime(2026, 11, 21, 9, 30).astimezone()


@pytest.mark.parametrize("text", ["", "yesterday", "10", "10w", "1.5h", "999999999d", "2026-13-01"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        moment(text, NOW)
