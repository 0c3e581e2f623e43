"""``./lab exercise undo``: brings back what an exercise has changed, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from loosehanger.cli import exercise
from loosehanger.errors import WrongUseError
from loosehanger.lab.progress import Progress

PROGRESS = Progress("99-test", "local", "inventories/local", "setup")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scenario's folder, in the state of its set-up."""
    monkeypatch.setattr(exercise, "lab_home", lambda: tmp_path / "home")
    folder = tmp_path / "playbooks" / "99-test"
    (folder / "manifests").mkdir(parents=True)
    (folder / "setup.yaml").write_text("a: 1\n", encoding="utf-8")
    (folder / "manifests/mm2.yaml").write_bytes(b"b: 1\r\n# \xff\n")
    (folder / "README.md").write_text("text", encoding="utf-8")
    return folder


def test_what_was_changed_is_as_it_was_at_the_first_set_up(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = folder.parents[1] / "home"
    exercise.keep(exercise.scenario_files("99-test", folder.parent), home)
    (folder / "setup.yaml").write_text("a: 2\n", encoding="utf-8")
    # The set-up of an exercise does not replace what the first one has kept.
    exercise.keep(exercise.scenario_files("99-test", folder.parent), home)
    (folder / "manifests/mm2.yaml").unlink()
    (folder / "manifests/new.yaml").write_text("c: 1\n", encoding="utf-8")
    (folder / "README.md").write_text("notes", encoding="utf-8")
    assert exercise.undo(PROGRESS, folder.parent) == 0
    assert (folder / "setup.yaml").read_text(encoding="utf-8") == "a: 1\n"
    assert (folder / "manifests/mm2.yaml").read_bytes() == b"b: 1\r\n# \xff\n"
    assert not (folder / "manifests/new.yaml").exists()
    assert (folder / "README.md").read_text(encoding="utf-8") == "notes"
    assert (home / "access/undone/setup.yaml").read_text(encoding="utf-8") == "a: 2\n"
    assert capsys.readouterr().out.splitlines()[:3] == [
        "playbooks/99-test/manifests/mm2.yaml: as it was at the set-up",
        "playbooks/99-test/manifests/new.yaml: deleted",
        "playbooks/99-test/setup.yaml: as it was at the set-up",
    ]
    with pytest.raises(WrongUseError, match=r"no file of playbooks/99-test was changed since the set-up"):
        exercise.undo(PROGRESS, folder.parent)


def test_a_lab_of_an_earlier_version_has_no_copy(folder: Path) -> None:
    with pytest.raises(WrongUseError, match=r"kept no copy of playbooks/99-test; git restore"):
        exercise.undo(PROGRESS, folder.parent)
