"""What the consoles' pages have from others is what ``web.lock`` pins, with its licences."""

from __future__ import annotations

import hashlib

from loosehanger.paths import ROOT

VENDOR = ROOT / "loosehanger" / "console" / "static" / "vendor"


def locked(kind: str) -> list[list[str]]:
    """The lines of the lock of one kind, in words."""
    lines = (ROOT / "web.lock").read_text(encoding="utf-8").splitlines()
    return [words[1:] for words in map(str.split, lines) if words[0] == kind]


def test_every_file_is_the_one_of_the_lock() -> None:
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR.iterdir()}
    assert found == dict(locked("file"))


def test_each_comes_with_its_licence() -> None:
    names = {name for name, _ in locked("file")}
    assert {f"{name.partition('.')[0]}.LICENSE" for name in names} <= names
    assert len(locked("package")) == 3


def test_the_land_is_one_path_that_loads_nothing_else() -> None:
    text = (VENDOR / "land.svg").read_text(encoding="utf-8")
    assert text.count("<path") == 1
    assert "href" not in text
    assert 'id="land"' in text
