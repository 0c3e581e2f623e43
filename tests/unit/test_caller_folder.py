"""Whatever lies in the folder that a command is called from, nothing of it runs; what a command writes is private."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from loosehanger.lab.record import Progress
from loosehanger.paths import ROOT
from scripts.sandbox import Kit, copy_kit

WRAPPERS = sorted(["lab", *(path.name for path in ROOT.glob("*.sh"))])
# Modules that the commands import, or that Python imports by itself: ours, the library's, and packages' own.
HOSTILE = (
    *("argparse", "encodings", "json", "logging", "pathlib", "random", "sitecustomize", "string", "usercustomize"),
    *(
        "ansible",
        "consumers",
        "ensurepip",
        "kafka",
        "loosehanger",
        "pip",
        "producer",
        "pytest",
        "rich",
        "scripts",
    ),
    *("supervisor", "venv", "yaml"),
)


@pytest.fixture
def caught(tmp_path: Path) -> Path:
    """The file in which a module of the hostile folder would leave its name."""
    return tmp_path / "caught"


@pytest.fixture
def hostile(tmp_path: Path, caught: Path) -> Path:
    """A folder with modules that another user has put there."""
    folder = tmp_path / "another user's"
    folder.mkdir()
    code = f"with open({str(caught)!r}, 'a') as file:\n    file.write(__name__ + chr(10))\n"
    for name in HOSTILE:
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
    (folder / "loosehanger").mkdir()
    for name in ("__init__", "__main__"):
        (folder / "loosehanger" / f"{name}.py").write_text(code, encoding="utf-8")
    (folder / "uv.toml").write_text("index-url = 5\n", encoding="utf-8")
    return folder


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    """A copy of the kit on which nothing is to be installed, and whose linters find nothing."""
    kit = copy_kit(tmp_path, 0)
    for name in ("bootstrap", "check"):
        (kit.root / f"scripts/{name}.sh").write_text("#!/bin/sh\n", encoding="utf-8")
    return kit


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapper_runs_nothing_of_the_callers_folder(wrapper: str, kit: Kit, hostile: Path, caught: Path) -> None:
    Progress("s", "local", "i", stage="setup").write(kit.home)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LAB_"))}
    done = subprocess.run(
        [kit.root / wrapper, "--help"],
        # In place of the environment's own list of folders, which has another checkout's.
        env={**environment, "PYTHONPATH": kit.variables()["PYTHONPATH"]},
        cwd=hostile,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert not caught.exists(), caught.read_text(encoding="utf-8")
    assert re.search(r"(?i)^usage: ", done.stdout + done.stderr), done.stdout + done.stderr


def test_the_installer_runs_nothing_of_the_callers_folder(hostile: Path, caught: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LAB_", "UV_"))}
    done = subprocess.run(
        [ROOT / "scripts/bootstrap.sh"],
        env={
            **environment,
            "LAB_HOME": str(tmp_path / "home"),
            "LAB_PYTHON": sys.executable,
            # It ends where something is to be downloaded: after ``venv``, in ``pip``.
            "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
            "PIP_CONFIG_FILE": os.devnull,
        },
        cwd=hostile,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2, done.stderr
    assert "127.0.0.1:9: cannot be reached" in done.stderr
    assert not caught.exists(), caught.read_text(encoding="utf-8")


def test_the_installer_takes_no_settings_of_uv_from_the_callers_folder(hostile: Path, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    for name, text in (("uv", f"#!/bin/sh\npwd >>'{seen}'\nexit 1\n"), ("python", "#!/bin/sh\nexit 1\n")):
        program = tmp_path / "home/uv/bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(text, encoding="utf-8")
        program.chmod(0o700)
    run = (
        "import pathlib, sys; from scripts import install; "
        "install.install_uv = lambda: None; install.check_index = lambda index: None; "
        f"sys.argv[1:] = [{str(ROOT / 'requirements.lock')!r}]; install.main()"
    )
    subprocess.run(
        [sys.executable, "-P", "-c", run],
        env={**os.environ, "LAB_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)},
        cwd=hostile,
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert set(seen.read_text(encoding="utf-8").splitlines()) == {str(ROOT)}
    # There uv ends its search for settings, instead of looking in every folder above.
    assert "\n[tool.uv]\n" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_every_module_that_is_run_is_looked_for_outside_of_the_folder() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    found = []
    for name in listed:
        path = ROOT / name
        if name.startswith("tests/") or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [
            f"{name}: {line.strip()}"
            # By line, for the map of the land has 70,000 characters in one, which an expression would try from each.
            for line in text.split("\n")
            # As a shell, a list of Python or JSON, and YAML have it; not where it is only a program's name.
            if "-m" in line
            and re.search(r"""(?:python\d?"?|sys\.executable|bin/python"?\)?)[, "]+-m[", ]+""", line)
            # A package that openshift brings has the name of the folder scripts: those tools run in the checkout only.
            and not re.search(r'"""|prog=|PROGRAM =|explains"|usage: |-m scripts[.]', line)
        ]
    assert found == []


def test_what_a_wrapper_writes_is_its_users_alone(kit: Kit, tmp_path: Path) -> None:
    python = tmp_path / "home/venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\numask\n", encoding="utf-8")
    python.chmod(0o700)
    done = subprocess.run(
        [kit.root / "setup-03-broadcast.sh"],
        env={**os.environ, "LAB_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
        umask=0o002,
    )
    assert done.stdout == "0077\n"
