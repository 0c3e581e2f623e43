"""The image of the kit: what its ``Containerfile`` copies must get as far as the build."""

from __future__ import annotations

from lab.access import ROOT


def test_every_source_of_the_image_reaches_the_build() -> None:
    copied = {
        source
        for line in (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()
        if line.startswith("COPY ")
        for source in line.split()[1:-1]
    }
    let_through = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    assert {source for source in copied if not (ROOT / source).exists()} == set()
    assert let_through == copied
