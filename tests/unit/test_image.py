"""The image of the kit: what its ``Containerfile`` copies must get as far as the build."""

from __future__ import annotations

import re

from loosehanger.paths import ROOT


def test_the_base_image_is_locked_by_its_digest() -> None:
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    (base,) = re.findall(r"^FROM (.*)$", text, re.MULTILINE)
    assert base == "${PYTHON_IMAGE}"
    (image,) = re.findall(r"^ARG PYTHON_IMAGE=(.*)$", text, re.MULTILINE)
    assert re.fullmatch(r"docker\.io/library/python@sha256:[0-9a-f]{64}", image)


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
