"""The actions of a stage on any platform: each reaches the platform's own method, and check mode changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from loosehanger.lab.actions import (
    Apply,
    ApplyLinks,
    CopySecrets,
    Decommission,
    Delete,
    DeleteCopies,
    Kill,
    PlatformAction,
    RecordResources,
    Wipe,
)
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.topology import SecretCopy, Topology
from loosehanger.platforms import base
from loosehanger.platforms.outcome import Outcome

COPY = SecretCopy("east", "writer", "west", "east-writer", "KafkaUser")
DOCUMENT = Document("file.yaml", 1, {"kind": "KafkaTopic", "metadata": {"name": "orders", "namespace": "west"}})
NOWHERE = Topology(())
ACTIONS: dict[str, PlatformAction] = {
    "kill": Kill(deletes_data=True),
    "wipe": Wipe(("west",), frozenset({"west-ca"}), ()),
    "delete": Delete((DOCUMENT,)),
    "copy": CopySecrets((COPY,)),
    "delete copies": DeleteCopies(("east-writer",)),
    "apply": Apply((DOCUMENT,)),
    "links": ApplyLinks(NOWHERE, {}, starts_region=True, is_needed=True),
    "record": RecordResources((DOCUMENT,), (), (DOCUMENT,), NOWHERE, is_deleted=False),
    "decommission": Decommission(),
}


class Noting(base.Platform):
    """Notes what is asked of it; everything that it is asked changes something."""

    def __init__(self, home: Path, *, check_mode: bool = False) -> None:
        parameters = {"home": str(home), "checkout": str(home), "region": "west"}
        super().__init__(parameters, dict, check_mode=check_mode, report=lambda _: None)
        self.asked: list[Any] = []

    def _note(self, *asked: Any) -> list[str]:
        self.asked.append(asked)
        return [str(asked[0])]

    def kill(self, action: Kill) -> Outcome:
        return Outcome(self._note("kill", action), died_ms=7)

    def wipe(self, action: Wipe) -> Outcome:
        return Outcome(self._note("wipe", action))

    def delete_resources(self, documents: Sequence[Document]) -> list[str]:
        return self._note("delete", documents)

    def copy_secrets(self, copies: Sequence[SecretCopy]) -> list[str]:
        return self._note("copy", copies)

    def delete_copies(self, names: Sequence[str]) -> list[str]:
        return self._note("delete copies", names)

    def apply(self, documents: Sequence[Document]) -> Outcome:
        return Outcome(self._note("apply", documents))

    def apply_links(self, action: ApplyLinks) -> list[str]:
        return self._note("links", action)

    def record(self, action: RecordResources) -> bool:
        return bool(self._note("record", action))

    def stop_clients(self) -> bool:
        return bool(self._note("stop clients"))

    def delete_region(self) -> bool:
        return bool(self._note("delete region"))

    def check(self, plan: Any) -> None:
        raise NotImplementedError

    delete = status = bundle = redact = check  # type: ignore[assignment]


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_reaches_its_own_method_with_what_it_carries(name: str, tmp_path: Path) -> None:
    platform, action = Noting(tmp_path), ACTIONS[name]
    outcome = platform.run_action(action)
    assert outcome.is_changed
    if name == "decommission":
        # A Connect worker whose brokers stop first hangs while it stops.
        assert platform.asked == [("stop clients",), ("delete region",)]
        return
    ((method, carried),) = platform.asked
    assert (method, carried in (action, *vars(action).values())) == (name, True)


@pytest.mark.parametrize("name", ["kill", "links", "record"])
def test_check_mode_asks_a_platform_only_for_what_it_can_foresee(name: str, tmp_path: Path) -> None:
    platform = Noting(tmp_path, check_mode=True)
    assert not platform.run_action(ACTIONS[name]).is_changed
    assert platform.asked == []


def test_what_changed_names_secrets_and_the_record(tmp_path: Path) -> None:
    platform = Noting(tmp_path)
    assert platform.run_action(ACTIONS["copy"]).changed == ["Secret/copy"]
    assert platform.run_action(ACTIONS["delete copies"]).changed == ["Secret/delete copies"]
    assert platform.run_action(ACTIONS["record"]).changed == ["the record of west"]
    assert platform.run_action(ACTIONS["kill"]).died_ms == 7
