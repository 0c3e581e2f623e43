"""A stage that asks for a proof: reached with one, refused with reasons, and never by a proof without an answer."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from loosehanger.errors import LabError
from loosehanger.stages import stage_proof

PROVED = {"verdict": "proved", "reasons": [], "claims": [{"id": "kept:producer"}, {"id": "copy:mm2"}]}
LOST = "3 acknowledged records are lost"
DISPROVED = {"verdict": "disproved", "reasons": [LOST], "claims": [{"id": "kept:producer"}]}


def answers(monkeypatch: pytest.MonkeyPatch, code: int, text: str) -> None:
    def ran(command: list[str], *_: object) -> tuple[int, str]:
        assert command[-5:] == ["prove", "--json", "--timeout", str(stage_proof.STALLED_S), "--while-moving"]
        return code, text

    monkeypatch.setattr(stage_proof, "run", ran)


def test_what_is_proved_is_reported_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers(monkeypatch, 0, json.dumps(PROVED))
    said: list[str] = []
    stage_proof.prove(tmp_path, "drain", said.append)
    assert said == ["proved: kept:producer, copy:mm2"]
    kept = tmp_path / "access" / "marks" / "drain" / "proof.json"
    assert json.loads(kept.read_text()) == PROVED


def test_what_is_not_proved_keeps_the_stage_from_being_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers(monkeypatch, 1, json.dumps(DISPROVED))
    with pytest.raises(
        LabError, match=r"'drain' was not reached because its proof failed: 3 acknowledged records are lost; "
    ):
        stage_proof.prove(tmp_path, "drain", print)


def test_a_proof_without_an_answer_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers(monkeypatch, 4, "")
    with pytest.raises(LabError, match="the proof gave no result"):
        stage_proof.prove(tmp_path, "drain", print)


def test_what_a_proof_waits_for_is_reported_while_it_waits(tmp_path: Path) -> None:
    """The command here continues only when its line was read."""
    waiting = (
        "import pathlib, sys, time\n"
        "print('waiting: 5 records behind', file=sys.stderr, flush=True)\n"
        "while not pathlib.Path('said').exists(): time.sleep(0.01)\n"
        "print('{}')\n"
        "sys.exit(4)\n"
    )
    said: list[str] = []

    def report(line: str) -> None:
        said.append(line)
        (tmp_path / "said").touch()

    assert stage_proof.run([sys.executable, "-c", waiting], tmp_path, os.environ, report) == (4, "{}\n")
    assert said == ["waiting: 5 records behind"]


def test_a_proof_that_has_gone_silent_is_ended_and_none_that_still_speaks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stage_proof, "_SILENT_S", 4)
    silent = [sys.executable, "-c", "import signal; print('{}', flush=True); signal.pause()"]
    assert stage_proof.run(silent, tmp_path, os.environ, print)[0] < 0
    speaks = "import sys, time\nfor n in range(8): print(n, file=sys.stderr, flush=True); time.sleep(0.75)"
    said: list[str] = []
    assert stage_proof.run([sys.executable, "-c", speaks], tmp_path, os.environ, said.append) == (0, "")
    assert said == [*"01234567"]
