"""A stage that asks for a proof: reached with one, refused with reasons, and never by a proof without an answer."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from loosehanger.errors import LabError
from loosehanger.platforms import proving

PROVED = {"verdict": "proved", "reasons": [], "claims": [{"id": "kept:producer"}, {"id": "copy:mm2"}]}
LOST = "3 acknowledged records are lost"
DISPROVED = {"verdict": "disproved", "reasons": [LOST], "claims": [{"id": "kept:producer"}]}


def answers(monkeypatch: pytest.MonkeyPatch, code: int, text: str) -> None:
    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert command[-2:] == ["prove", "--json"]
        return subprocess.CompletedProcess(command, code, text)

    monkeypatch.setattr(subprocess, "run", run)


def test_what_is_proved_is_told_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers(monkeypatch, 0, json.dumps(PROVED))
    told: list[str] = []
    proving.prove(tmp_path, "drain", told.append)
    assert told == ["proved: kept:producer, copy:mm2"]
    kept = tmp_path / "access" / "marks" / "drain" / "proof.json"
    assert json.loads(kept.read_text()) == PROVED


def test_what_is_not_proved_keeps_the_stage_from_being_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers(monkeypatch, 1, json.dumps(DISPROVED))
    with pytest.raises(LabError, match=r"the stage 'drain' is not reached, .*: 3 acknowledged records are lost; "):
        proving.prove(tmp_path, "drain", print)


def test_a_proof_without_an_answer_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers(monkeypatch, 4, "")
    with pytest.raises(LabError, match="the proof did not end with an answer"):
        proving.prove(tmp_path, "drain", print)
