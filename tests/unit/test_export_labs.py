"""The labs in the formats of workshop platforms: each is what the platform's schema or examples ask for."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from loosehanger.errors import WrongUseError
from loosehanger.learn.exercise import lab_names, read_exercises
from scripts.export_labs import FORMATS, main

SCHEMAS = Path(__file__).parent / "workshop_formats"
REPOSITORY = "https://git.example.com/kit.git"
LABS = lab_names()


def schema(name: str, part: str = "") -> dict[str, Any]:
    """The schema of a format, or of a part of it."""
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    return {**found["$defs"][part], "$defs": found["$defs"]} if part else found


def export(format_: str, lab: str, folder: Path) -> Path:
    """Exports a lab."""
    assert main([format_, lab, str(folder / "out"), "--repository", REPOSITORY]) == 0
    return folder / "out"


@pytest.mark.parametrize("lab", LABS)
def test_killercoda(lab: str, tmp_path: Path) -> None:
    folder = export("killercoda", lab, tmp_path)
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    jsonschema.validate(index, schema("killercoda"))
    details = index["details"]
    assert len(details["steps"]) == len(read_exercises(lab))
    for page in (details["intro"], *details["steps"], details["finish"]):
        for key in page.keys() - {"title"}:
            assert (folder / page[key]).stat().st_size > 0


@pytest.mark.parametrize("lab", LABS)
def test_educates(lab: str, tmp_path: Path) -> None:
    folder = export("educates", lab, tmp_path)
    workshop = yaml.safe_load((folder / "resources/workshop.yaml").read_text(encoding="utf-8"))
    jsonschema.validate(workshop, schema("educates"))
    for exercise in read_exercises(lab):
        page = (folder / "workshop/content" / f"{exercise.folder.name}.md").read_text(encoding="utf-8")
        block = yaml.safe_load(page.partition("```examiner:execute-test\n")[2].partition("```")[0])
        assert os.access(folder / "workshop/examiner/tests" / block["name"], os.X_OK)


@pytest.mark.parametrize("lab", LABS)
def test_instruqt(lab: str, tmp_path: Path) -> None:
    folder = export("instruqt", lab, tmp_path)
    jsonschema.validate(yaml.safe_load((folder / "track.yml").read_text("utf-8")), schema("instruqt", "track"))
    (machine,) = yaml.safe_load((folder / "config.yml").read_text("utf-8"))["virtualmachines"]
    for exercise in read_exercises(lab):
        challenge = folder / exercise.folder.name
        front = (challenge / "assignment.md").read_text("utf-8").split("---\n")[1]
        jsonschema.validate(yaml.safe_load(front), schema("instruqt", "challenge"))
        for kind in ("setup", "check", "solve"):
            assert os.access(challenge / f"{kind}-{machine['name']}", os.X_OK)


def test_a_check_of_every_format_says_the_sentence_of_the_kit(tmp_path: Path) -> None:
    """The script runs with a stand-in for ./lab, as there is no machine of the platform here."""
    folder = export("instruqt", "03-broadcast", tmp_path)
    kit, bin_ = tmp_path / "kit", tmp_path / "bin"
    for place in (kit, bin_):
        place.mkdir()
    answer = {"conditions": [{"message": ""}, {"message": 'it\'s "not" $there'}]}
    (kit / "lab").write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(answer)}\nEND\nexit ${{CODE}}\n", encoding="utf-8")
    (bin_ / "fail-message").write_text('#!/bin/sh\necho "said: $1"\n', encoding="utf-8")
    for path in (kit / "lab", bin_ / "fail-message"):
        path.chmod(0o755)
    script = folder / "02-change-a-topic" / "check-workstation"
    for code, said in (("1", 'said: it\'s "not" $there\n'), ("0", "")):
        environment = {**os.environ, "HOME": str(tmp_path), "PATH": f"{bin_}:{os.environ['PATH']}", "CODE": code}
        done = subprocess.run([script], env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (int(code), said), done.stderr


def test_scripts_are_what_shellcheck_accepts(tmp_path: Path) -> None:
    scripts = []
    for format_ in FORMATS:
        folder = export(format_, "03-broadcast", tmp_path / format_)
        scripts += [path for path in folder.rglob("*") if path.is_file() and os.access(path, os.X_OK)]
    assert len(scripts) > 30
    done = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_folder_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(WrongUseError, match=r"is not empty; name a new folder"):
        main(["killercoda", "03-broadcast", str(tmp_path), "--repository", REPOSITORY])


def test_a_public_runner_runs_the_two_commands_of_the_readme() -> None:
    root = Path(__file__).parents[2]
    workflow = yaml.safe_load((root / ".github/workflows/lab.yaml").read_text(encoding="utf-8"))
    (job,) = workflow["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands == ["./setup-03-broadcast.sh", "./prove.sh"]
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert all(f"$ {command}" in readme for command in commands)


def test_the_container_for_development_installs_by_one_command() -> None:
    root = Path(__file__).parents[2]
    container = json.loads((root / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    assert container["postCreateCommand"] == "./lab prefetch"
    assert container["hostRequirements"] == {"cpus": 2, "memory": "8gb", "storage": "16gb"}
