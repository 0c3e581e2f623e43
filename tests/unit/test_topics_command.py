"""``./lab topic show`` puts a topic beside its copies, whatever mirrors call them, and cuts nothing off."""

from __future__ import annotations

from contextlib import nullcontext
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


class Admin:
    """A cluster with one topic of three partitions."""

    def __init__(self) -> None:
        self.partitions = 3

    def describe_topics(self) -> list[dict[str, Any]]:
        return [{"name": "LH.ORDERS", "is_internal": False, "partitions": list(range(self.partitions))}]

    def create_partitions(self, wanted: dict[str, int]) -> None:
        self.partitions = wanted["LH.ORDERS"]


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    found = Admin()
    monkeypatch.setattr(topics, "_admin", lambda _: nullcontext(found))
    monkeypatch.setattr(topics, "topic_configs", lambda _, names, __: ({name: {} for name in names}, {}))
    return found


def test_a_topic_gets_more_partitions_like_a_setting(admin: Admin, capsys: pytest.CaptureFixture[str]) -> None:
    regions = {name: Region(name, name, {}, {"log": Path()}, ()) for name in ("europe", "north-america")}
    lab: Any = SimpleNamespace(
        mirrors=(route("mm2", "north-america", "europe", "north-america", "identity"),), region=regions.__getitem__
    )
    topics.run(lab, topics.parse(["set", "europe", "LH.ORDERS", "partitions=5"]))
    assert admin.partitions == 5
    assert capsys.readouterr().out.startswith("europe: LH.ORDERS: partitions=5 set\nnorth-america: ")
    topics.run(lab, topics.parse(["set", "europe", "LH.ORDERS", "partitions=5"]))
    with pytest.raises(WrongUseError, match=r"LH\.ORDERS has 5 partitions, and partitions cannot be removed"):
        topics.run(lab, topics.parse(["set", "europe", "LH.ORDERS", "partitions=4"]))
    assert admin.partitions == 5


@pytest.mark.parametrize("number", ["0", "-1", "1.5", "many", "²"])
def test_an_odd_number_of_partitions_is_refused(number: str) -> None:
    with pytest.raises(WrongUseError, match="a topic has a whole number of partitions"):
        topics.parse(["set", "europe", "LH.ORDERS", f"partitions={number}"])


def test_partitions_cannot_be_unset() -> None:
    with pytest.raises(WrongUseError, match="no default number of partitions"):
        topics.parse(["unset", "europe", "LH.ORDERS", "partitions"])
