"""``./lab topic show`` puts a topic beside its copies, whatever mirrors call them, and cuts nothing off."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loosehanger.cli import topics
from loosehanger.errors import WrongUseError
from loosehanger.model.record import Region

from ..consoles import route

ORDERS = {"partitions": 3, "retention.bytes": "100000000"}
THERE: dict[str, dict[str, dict[str, Any]]] = {
    "europe": {"northamerica.LH.ORDERS": ORDERS, "southamerica.LH.ORDERS": {**ORDERS, "retention.bytes": "5"}},
    "north-america": {"LH.ORDERS": ORDERS},
    "south-america": {"LH.ORDERS": ORDERS},
}


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two regions that write, one that has copies of both."""
    monkeypatch.setattr(topics, "describe", lambda region: THERE[region.name])
    regions = {name: Region(name, name, {}, {"log": Path()}, ()) for name in THERE}
    mirrors = tuple(route("mm2", "europe", source, "europe") for source in ("north-america", "south-america"))
    return SimpleNamespace(clusters=regions, regions=regions, mirrors=mirrors)


def shown(lab: Any, name: str | None, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """The cells of each line."""
    assert topics._show(lab, name) == 0
    lines = capsys.readouterr().out.splitlines()
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]


def test_a_topic_stands_beside_its_copies(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(lab, "LH.ORDERS", capsys) == [
        ["LH.ORDERS", "called", "northamerica.LH.ORDERS", "LH.ORDERS", "–"],
        ["", "partitions", "3", "3", "–"],
        ["", "retention.bytes", "100000000", "100000000", "–"],
        ["LH.ORDERS", "called", "southamerica.LH.ORDERS", "–", "LH.ORDERS"],
        ["", "partitions", "3", "–", "3"],
        ["", "retention.bytes", "5", "–", "100000000"],
    ]


def test_a_copy_is_found_by_its_own_name(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(lab, "southamerica.LH.ORDERS", capsys)
    assert lines[0] == ["LH.ORDERS", "called", "southamerica.LH.ORDERS", "–", "LH.ORDERS"]
    assert len(lines) == 3
    with pytest.raises(WrongUseError, match=r"unknown topic 'LH\.NONE'"):
        topics._show(lab, "LH.NONE")
