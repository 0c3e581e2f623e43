"""``./lab topic show`` puts a topic beside its copies, whatever mirrors call them, and cuts nothing off."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loosehanger.cli import topics
from loosehanger.errors import LabError, WrongUseError
from loosehanger.kafka import patches
from loosehanger.lab.record import Region

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


REGIONS = ("europe", "north-america", "south-america", "asia-pacific")


def broadcast() -> Any:
    """A lab in which three regions mirror from the first one."""
    regions = {name: Region(name, name, {}, {"log": Path()}, ()) for name in REGIONS}
    mirrors = tuple(route("mm2", target, "europe", target, "identity") for target in REGIONS[1:])
    return SimpleNamespace(mirrors=mirrors, region=regions.__getitem__)


def test_copies_are_waited_for_at_once_so_that_each_has_its_own_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first mirror is slow: the second one's time is not the first one's."""
    lab = broadcast()
    clock = [0.0]
    follows = {"north-america": 9.0, "south-america": 2.0, "asia-pacific": 0.0}

    def describe(region: Region) -> dict[str, dict[str, Any]]:
        clock[0] += 0.1
        done = clock[0] >= follows[region.name]
        return {"LH.ORDERS": {"retention.ms": "5"} if done else {}}

    monkeypatch.setattr(topics, "describe", describe)
    monkeypatch.setattr(topics, "_alter", lambda *_: None)
    passing = SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda s: clock.__setitem__(0, clock[0] + s))
    monkeypatch.setattr(topics, "time", passing)
    topics.run(lab, topics.parse(["set", "europe", "LH.ORDERS", "retention.ms=5"]))
    _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == list(REGIONS[1:])
    north, south, asia = (float(line.split("after ")[1].removesuffix(" s")) for line in lines)
    assert asia < 1 < 2 <= south < 4 < 9 <= north < 11


def test_a_copy_that_does_not_follow_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = broadcast()
    clock = [0.0]

    def describe(region: Region) -> dict[str, dict[str, Any]]:
        if region.name == "asia-pacific":
            raise LabError("asia-pacific: the cluster does not answer; see ./lab status")
        return {"LH.ORDERS": {"retention.ms": "5"} if region.name == "south-america" else {}}

    monkeypatch.setattr(topics, "describe", describe)
    monkeypatch.setattr(topics, "_alter", lambda *_: None)
    passing = SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda s: clock.__setitem__(0, clock[0] + s))
    monkeypatch.setattr(topics, "time", passing)
    with pytest.raises(LabError) as failed:
        topics.run(lab, topics.parse(["set", "europe", "LH.ORDERS", "retention.ms=5"]))
    assert "south-america: LH.ORDERS: followed after 0.0 s" in capsys.readouterr().out
    assert str(failed.value) == (
        "north-america: LH.ORDERS has not followed within 60 s; is mm2 running (./lab status), and does it synchronise "
        "this setting?; asia-pacific: the cluster does not answer; see ./lab status"
    )


@pytest.mark.parametrize(
    ("words", "synchronisation", "followed", "said"),
    [
        (["min.insync.replicas=2"], {}, 0, "mm2 does not copy min.insync.replicas (config.properties.exclude)"),
        (["min.insync.replicas=2", "retention.ms=5"], {}, 1, "mm2 does not copy min.insync.replicas"),
        (["retention.ms=5"], {"sync.topic.configs.enabled": "False"}, 0, "retention.ms (sync.topic.configs.enabled is"),
        (["min.insync.replicas=2"], {"config.properties.exclude": "unclean.*"}, 1, ""),
    ],
)
def test_what_a_mirror_does_not_copy_is_said_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str],
    synchronisation: dict[str, str], followed: int, said: str,
) -> None:  # fmt: skip
    regions = {name: Region(name, name, {}, {"log": Path()}, ()) for name in ("europe", "north-america")}
    mirror = replace(
        route("mm2", "north-america", "europe", "north-america", "identity"), synchronisation=synchronisation
    )
    lab: Any = SimpleNamespace(mirrors=(mirror,), region=regions.__getitem__)
    copied = dict(word.split("=") for word in words if said.find(word.split("=")[0]) < 0)
    monkeypatch.setattr(topics, "describe", lambda _: {"LH.ORDERS": copied})
    monkeypatch.setattr(topics, "_alter", lambda *_: None)
    assert topics.run(lab, topics.parse(["set", "europe", "LH.ORDERS", *words])) == 0
    out = capsys.readouterr().out
    assert out.count("followed after") == followed
    assert (said in out) if said else ("does not copy" not in out)


def test_a_setting_that_topics_do_not_have_is_not_unset(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "topic_configs", lambda *_: ({"LH.ORDERS": {"retention.ms": {}}}, {}))
    monkeypatch.setattr(topics, "alter_topic", lambda *_: pytest.fail("it was changed"))
    lab: Any = SimpleNamespace(mirrors=(), region=lambda name: Region(name, name, {}, {"log": Path()}, ()))
    with pytest.raises(WrongUseError, match="'foo' is not a setting of a topic"):
        topics.run(lab, topics.parse(["unset", "europe", "LH.ORDERS", "foo"]))
    assert admin.partitions == 3


@pytest.mark.parametrize("number", ["0", "-1", "1.5", "many", "²"])
def test_an_odd_number_of_partitions_is_refused(number: str) -> None:
    with pytest.raises(WrongUseError, match="is not a number of partitions"):
        topics.parse(["set", "europe", "LH.ORDERS", f"partitions={number}"])


def test_partitions_cannot_be_unset() -> None:
    with pytest.raises(WrongUseError, match="no default number of partitions"):
        topics.parse(["unset", "europe", "LH.ORDERS", "partitions"])
