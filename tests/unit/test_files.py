"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import cast

import pytest

from loosehanger.files import replacing, write_file


def names(folder: Path) -> list[str]:
    """Everything in a folder."""
    return sorted(path.name for path in folder.iterdir())


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with replacing(path) as stream:
        stream.write(b"new")
        stream.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names(tmp_path) == ["file"]


def test_after_a_failure_the_old_file_stays_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(TypeError), replacing(path) as stream:
        stream.write(b"half" + cast(bytes, None))
    assert (names(tmp_path), path.read_bytes()) == (["file"], b"old")


def test_a_file_that_must_stay_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "key"
    for content in (b"first", b"second"):
        with replacing(path, keep=True) as stream:
            stream.write(content)
    assert (names(tmp_path), path.read_bytes()) == (["key"], b"first")


def test_a_file_has_the_mode_that_it_must_have_and_a_users_own_what_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with replacing(tmp_path / "report", None) as stream:
            stream.write(b"x")
        write_file(tmp_path / "program", "x", 0o755)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "report").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "program").stat().st_mode) == 0o755


def test_a_name_of_the_longest_length_can_be_written(tmp_path: Path) -> None:
    assert write_file(tmp_path / ("x" * 255), "x")
    assert not write_file(tmp_path / ("x" * 255), "x"), "the same content is not written again"
