"""Status: a mirror that may lose records is not healthy, and one that has caught up is, whatever it lost before."""

from __future__ import annotations

from typing import Any

import pytest

from loosehanger.cli.losses import Standing
from loosehanger.clients.loss import Danger
from loosehanger.model.mirror import Mirror

MIRROR = Mirror("m", "europe", "na", "europe", "na", "identity", ".", "LH.*", "", "c")


@pytest.mark.parametrize(
    ("changes", "losing", "told"),
    [
        ({}, False, 0),
        ({"behind": 5, "age_s": 2.0, "loss_in_s": 9e5, "by": "time"}, False, 0),
        ({"behind": 5, "age_s": 90.0, "loss_in_s": 30.0, "by": "time", "endangered": True}, True, 1),
        ({"behind": 5, "gone": 3}, True, 1),
        ({"gone": 3}, False, 1),
        ({"made_again": True}, False, 1),
    ],
)
def test_what_a_mirror_loses_is_told_and_decides_on_its_health(
    changes: dict[str, Any], losing: bool, told: int
) -> None:
    nothing: dict[str, Any] = {
        "behind": 0,
        "age_s": None,
        "loss_in_s": None,
        "by": "",
        "partition": None,
        "pace": None,
        "endangered": False,
        "gone": 0,
        "made_again": False,
    }
    standing = Standing(MIRROR, {"A": Danger("A", **nothing | changes)})
    assert standing.losing == losing
    assert len(list(standing.told)) == told
