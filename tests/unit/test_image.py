"""The images of the kit and of ``mirrorproof``: what a ``Containerfile`` copies must get as far as the build."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from loosehanger.paths import ROOT

KIT, TOOL = ROOT / "Containerfile", ROOT / "examples" / "mirrorproof" / "Containerfile"


def copied(containerfile: Path) -> set[str]:
    """What a build copies from its context."""
    lines = (line.split() for line in containerfile.read_text(encoding="utf-8").splitlines())
    return {
        source for line in lines if line[:1] == ["COPY"] and not line[1].startswith("--from=") for source in line[1:-1]
    }


def test_both_base_images_are_locked_by_the_same_digest() -> None:
    images = set()
    for containerfile in (KIT, TOOL):
        text = containerfile.read_text(encoding="utf-8")
        bases = re.findall(r"^FROM (\S*)", text, re.MULTILINE)
        assert set(bases) == {"${PYTHON_IMAGE}"}
        images |= set(re.findall(r"^ARG PYTHON_IMAGE=(.*)$", text, re.MULTILINE))
    (image,) = images
    assert re.fullmatch(r"docker\.io/library/python@sha256:[0-9a-f]{64}", image)


def test_every_source_of_an_image_reaches_the_build() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_through = {line.removeprefix("!") for line in lines if line.startswith("!")}
    wanted = copied(KIT) | copied(TOOL)
    assert {source for source in wanted if not (ROOT / source).exists()} == set()
    for source in wanted:
        assert {str(place) for place in (Path(source), *Path(source).parents)} & let_through, source
    assert not [name for name in let_through if not any(Path(source).is_relative_to(name) for source in wanted)]


def test_the_image_of_the_tool_has_all_that_the_wheel_is_made_of() -> None:
    """The backend refuses to build where a file that ``pyproject.toml`` names is not there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {project["project"]["readme"], *project["project"]["license-files"]}
    needed |= {*wheel["only-include"], *wheel["force-include"]}
    sources = copied(TOOL)
    assert not [name for name in needed if not any(Path(name).is_relative_to(source) for source in sources)]


def test_the_image_of_the_kit_has_what_the_project_file_names_before_it_is_installed() -> None:
    given = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    before, installed, _ = KIT.read_text(encoding="utf-8").partition("RUN scripts/bootstrap.sh")
    assert installed
    sources = {source for line in re.findall(r"^COPY (.*) \S+$", before, re.MULTILINE) for source in line.split()}
    wanted = {"pyproject.toml", given["project"]["readme"], *given["project"]["license-files"]}
    wanted |= given["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"].keys()
    assert not [name for name in wanted if not any(Path(name).is_relative_to(source) for source in sources)]


def test_the_image_of_the_tool_runs_it_as_a_user_without_rights() -> None:
    *_, last = TOOL.read_text(encoding="utf-8").split("FROM ${PYTHON_IMAGE}")
    lines = [line for line in last.splitlines() if line]
    assert lines[-3:] == ["USER 10001", 'ENTRYPOINT ["mirrorproof"]', 'CMD ["--help"]']
    assert "useradd --uid 10001" in last


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
    reported = (
        "import sys; import scripts.install, loosehanger.mirrorproof.jars;"
        "found = [(name.split('.')[0], module) for name, module in sys.modules.items()];"
        "print(*(module.__file__ for name, module in found if name in ('loosehanger', 'scripts')))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-B", "-c", reported],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    files = done.stdout.split()
    assert files
    assert [name for name in files if not Path(name).is_relative_to(tmp_path)] == []
