"""A quota that makes a flush of offsets time out, with a stand-in for the broker."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loosehanger.errors import LabError, WrongUseError
from loosehanger.faults.changes import quotas
from loosehanger.faults.changes.quotas import ThrottleOffsets

from .test_fault_changes_rebalance import site

HERE = site(Path())
NAMES = {"user": "mm2-northamerica", "client-id": "mm2-na-offsets"}


@dataclass
class Broker:
    """One that keeps quotas by user and client."""

    known: dict[tuple[str, str], float] = field(default_factory=dict)
    refuses: bool = False

    def ask(self, _admin: object, _region: str, request: Any) -> Any:
        if not hasattr(request, "validate_only"):
            wanted = tuple(one.match for one in request.components)
            return SimpleNamespace(entries=[name for name in self.known if name == wanted])
        (entry,) = request.entries
        ((change,), names) = entry.ops, tuple(one.entity_name for one in entry.entity)
        assert [one.entity_type for one in entry.entity] == ["user", "client-id"]
        assert change.key == "producer_byte_rate"
        if change.remove:
            self.known.pop(names, None)
        else:
            self.known[names] = change.value
        return SimpleNamespace(entries=[SimpleNamespace(error_code=int(self.refuses), error_message="no")])


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    found = Broker()

    @contextlib.contextmanager
    def opened(*_: object) -> Iterator[Broker]:
        yield found

    monkeypatch.setattr("loosehanger.faults.site.FaultSite.admin", opened)
    monkeypatch.setattr(quotas, "granted", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(quotas, "_ask", found.ask)
    return found


def test_a_quota_is_set_for_the_writer_of_positions_alone_and_removed(broker: Broker) -> None:
    change = ThrottleOffsets(rate=100)
    undo = change.prepare(HERE)
    assert undo == {"region": "north-america", **NAMES}
    change.heal(HERE, undo)
    change.inject(HERE, undo)
    assert broker.known == {tuple(NAMES.values()): 100.0}
    with pytest.raises(
        WrongUseError, match="north-america: client mm2-na-offsets of user mm2-northamerica has a quota"
    ):
        change.prepare(HERE)
    change.heal(HERE, undo)
    change.heal(HERE, undo)
    assert broker.known == {}


def test_a_quota_that_a_broker_refuses_is_an_error(broker: Broker) -> None:
    broker.refuses = True
    with pytest.raises(LabError, match="north-america: Kafka refuses the quota: no"):
        ThrottleOffsets(rate=1).inject(HERE, {"region": "north-america", **NAMES})
