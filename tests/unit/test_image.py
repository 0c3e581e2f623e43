"""The image of the kit: what its ``Containerfile`` copies must get as far as the build."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

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
    assert let_through == {Path(source).parts[0] for source in copied}


def test_what_the_image_installs_with_is_copied_before(tmp_path: Path) -> None:
    """Modules of the checkout are found as well; so it counts where each of them is from."""
    before, installed, _ = (ROOT / "Containerfile").read_text(encoding="utf-8").partition("RUN scripts/bootstrap.sh")
    assert installed
    for line in filter(re.compile("COPY ").match, before.splitlines()):
        *sources, folder = line.split()[1:]
        for source in sources:
            target = tmp_path / folder / (Path(source).name if folder.endswith("/") else "")
            target.parent.mkdir(exist_ok=True)
            (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, target)
    told = (
        "import sys; import scripts.install, loosehanger.mirrorproof.jars;"
        "found = [(name.split('.')[0], module) for name, module in sys.modules.items()];"
        "print(*(module.__file__ for name, module in found if name in ('loosehanger', 'scripts')))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-B", "-c", told],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    files = done.stdout.split()
    assert files
    assert [name for name in files if not Path(name).is_relative_to(tmp_path)] == []
