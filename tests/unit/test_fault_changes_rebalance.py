"""A rebalance that does not end, with a stand-in for the coordinator of the group."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from kafka.admin import MemberToRemove
from kafka.errors import RequestTimedOutError

from loosehanger.errors import LabError, WrongUseError
from loosehanger.faults.changes import rebalance
from loosehanger.faults.changes.rebalance import StallRebalance
from loosehanger.faults.site import FaultSite
from loosehanger.lab.record import Lab
from loosehanger.platforms import registry

from .test_fault_changes_access import MIRROR, TOPIC
from .test_scenario_rights import topology


@dataclass
class Coordinator:
    """A group whose silent members are waited for."""

    members: list[str] = field(default_factory=list)
    waits: bool = True
    removed: list[str] = field(default_factory=list)

    def list_groups(self) -> list[dict[str, Any]]:
        state = "PreparingRebalance" if len(self.members) > 1 else "Stable"
        return [{"group_id": "other", "group_state": "Empty"}, {"group_id": "mm2-na", "group_state": state}]

    def remove_group_members(self, _: str, members: Sequence[MemberToRemove]) -> None:
        self.removed += [member.group_instance_id for member in members]
        self.members = []

    def join(self, admin: object, group: str, member: str, _: float) -> None:
        assert (admin, group) == (self, "mm2-na")
        self.members.append(member)
        if len(self.members) > 1 and self.waits:
            raise RequestTimedOutError


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    """That of the mirror's worker group."""
    found = Coordinator()

    @contextlib.contextmanager
    def opened(*_: object) -> Iterator[Coordinator]:
        yield found

    monkeypatch.setattr(FaultSite, "admin", opened)
    monkeypatch.setattr(rebalance, "granted", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(rebalance, "_join", found.join)
    return found


def site(tmp_path: Any) -> FaultSite:
    """The mirror."""
    return FaultSite(
        Lab("03-broadcast", "local", "", {}, topology=topology("03-broadcast")), tmp_path, MIRROR, TOPIC, registry
    )


def test_two_members_fall_silent_and_are_removed(coordinator: Coordinator, tmp_path: Any) -> None:
    change = StallRebalance()
    undo = change.prepare(site(tmp_path))
    change.inject(site(tmp_path), undo)
    assert coordinator.members == ["mm2-na-silent-1", "mm2-na-silent-2"]
    with pytest.raises(WrongUseError, match="the worker group mm2-na is in the state PreparingRebalance"):
        change.prepare(site(tmp_path))
    for _ in range(2):
        change.heal(site(tmp_path), undo)
    assert coordinator.removed[:2] == ["mm2-na-silent-1", "mm2-na-silent-2"]


def test_a_rebalance_that_ends_is_an_error(coordinator: Coordinator, tmp_path: Any) -> None:
    coordinator.waits = False
    change = StallRebalance()
    with pytest.raises(LabError, match="the rebalance of mm2-na has ended"):
        change.inject(site(tmp_path), change.prepare(site(tmp_path)))


def test_a_worker_says_of_itself_what_connect_expects() -> None:
    url = b"http://127.0.0.1:1"
    assert b"\0\2" + bytes([0, len(url)]) + url + b"\xff" * 12 == rebalance._METADATA
