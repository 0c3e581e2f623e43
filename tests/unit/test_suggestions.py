"""What a mistyped name may have meant."""

from __future__ import annotations

import pytest

from loosehanger.suggestions import did_you_mean

NAMES = ["03-broadcast", "04-aggregate", "status", "LH.ORDERS"]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("statsu", "; did you mean 'status'?"),
        ("STATUS", "; did you mean 'status'?"),
        ("broadcast", "; did you mean '03-broadcast'?"),
        ("3-broadcast", "; did you mean '03-broadcast'?"),
        ("lh.order", "; did you mean 'LH.ORDERS'?"),
        ("at", ""),
        ("nothing alike", ""),
        ("", ""),
    ],
)
def test_similar_names_are_suggested(word: str, expected: str) -> None:
    assert did_you_mean(word, NAMES) == expected
