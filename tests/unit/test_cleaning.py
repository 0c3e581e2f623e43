"""A clean-up beside a program that still uses the lab's folders."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from loosehanger.cli import cleaning
from loosehanger.errors import LabError


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that a proof has written to, in a lab that can be cleaned up."""
    monkeypatch.setattr(cleaning, "lab_home", lambda: tmp_path)
    monkeypatch.setattr(cleaning, "run_playbook", lambda *_: None)
    monkeypatch.setattr(cleaning, "_progress", lambda _: None)
    monkeypatch.setattr(cleaning, "_USED_SECONDS", 0.2)
    folder = tmp_path / "spark"
    (folder / "blocks" / "22").mkdir(parents=True)
    return folder


def test_files_that_a_proof_deletes_at_the_same_time_do_not_matter(
    spark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = shutil.rmtree

    def meanwhile(folder: Path) -> None:
        if (folder / "blocks" / "22").exists():
            (folder / "blocks" / "22").rmdir()
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", "22")
        delete(folder)

    monkeypatch.setattr(shutil, "rmtree", meanwhile)
    assert cleaning.cleanup([]) == 0
    assert not spark.exists()


def test_a_program_that_keeps_writing_is_named(spark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def written(_: Path) -> None:
        raise OSError(errno.ENOTEMPTY, "Directory not empty", "blocks")

    monkeypatch.setattr(shutil, "rmtree", written)
    with pytest.raises(LabError, match=r"spark: .* a proof or a watch of this lab still writes there; end it, and run"):
        cleaning.cleanup([])
    assert spark.exists()
