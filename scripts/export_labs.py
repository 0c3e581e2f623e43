"""Writes a lab with its exercises in the format of a workshop platform: Killercoda, Educates or Instruqt.

Usage: ``python -m scripts.export_labs FORMAT LAB FOLDER --repository URL``. Every platform gets the same: the text of
each section that is an exercise, and scripts that begin, check and solve it by ``./lab learn``, which judges it.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from loosehanger.arguments import Parser
from loosehanger.errors import WrongUseError, run_command
from loosehanger.lab.scenario_index import PLAYBOOKS
from loosehanger.learn.exercise import (
    FrontMatter,
    LabExercise,
    read_exercises,
    read_front_matter,
    without_front_matter,
)
from loosehanger.learn.lab_text import SECTION

HOST = "workstation"
"""The name of Instruqt's machine."""
MESSAGE = """\
import json, sys
found = [one["message"] for one in json.load(sys.stdin)["conditions"] if one["message"]]
print(found[0] if found else "not done yet")
"""
"""Prints the first message of a check."""
_OF_EDUCATES = {"basic": "beginner", "expert": "extreme"}
"""Educates' names of difficulties, where they differ."""


class ExportedLab:
    """A lab, and where its machines get the kit from.

    Args:
        name: its scenario.
        repository: the address of the kit's repository.
        folder: where the files are written.
    """

    def __init__(self, name: str, repository: str, folder: Path) -> None:
        readme = PLAYBOOKS / name / "README.md"
        self.name, self.repository, self.folder = name, repository, folder
        self.about: FrontMatter = read_front_matter(readme)
        self.exercises = read_exercises(name)
        text = without_front_matter(readme.read_text(encoding="utf-8"))
        self.intro = text.strip().partition("\n## ")[0]
        self.sections = {int(found[1]): found[0] for found in SECTION.finditer(text)}

    def write(self, name: str, content: str, *, executable: bool = False) -> None:
        """Writes a file of the export."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.rstrip() + "\n", encoding="utf-8")
        path.chmod(0o755 if executable else 0o644)

    def script(self, name: str, *lines: str) -> None:
        """Writes a script that runs in the kit's checkout."""
        self.write(name, "\n".join(["#!/usr/bin/env bash", "set -uo pipefail", *lines]), executable=True)

    @property
    def install(self) -> tuple[str, ...]:
        """Lines that get the kit and install it."""
        return (f"git clone --quiet {shlex.quote(self.repository)} ~/kit", "cd ~/kit || exit 1", "./lab prefetch")

    def check(self, exercise: LabExercise, say: str) -> tuple[str, ...]:
        """Returns the lines that check an exercise.

        Args:
            exercise: the exercise.
            say: the command that shows the learner a message, given as its last argument.
        """
        return (
            "cd ~/kit || exit 1",
            f"found=$(./lab learn check {exercise.id} --json) && exit 0",
            f'sentence=$(python3 -c {shlex.quote(MESSAGE)} <<<"${{found}}" 2>/dev/null) ||',
            '  sentence="nothing is set up"',
            f'{say} "${{sentence}}"',
            "exit 1",
        )


def killercoda(lab: ExportedLab) -> None:
    """Writes a scenario of Killercoda: a step for each exercise, with ``verify``. It has no solutions."""
    steps = []
    for exercise in lab.exercises:
        name = exercise.folder.name
        lab.write(f"{name}/text.md", lab.sections[exercise.number])
        lab.script(f"{name}/background.sh", "cd ~/kit || exit 1", f"./lab learn start {exercise.id}")
        lab.script(f"{name}/verify.sh", *lab.check(exercise, "echo"))
        files = {"text": "text.md", "background": "background.sh", "verify": "verify.sh"}
        paths = {key: f"{name}/{file}" for key, file in files.items()}
        steps.append({"title": exercise.content.title, **paths})
    lab.write("intro.md", lab.intro)
    lab.script("install.sh", *lab.install)
    lab.write("finish.md", "All exercises of this lab are done.")
    index = {
        "title": lab.about.title,
        "description": lab.about.teaser,
        "details": {
            "intro": {"text": "intro.md", "foreground": "install.sh"},
            "steps": steps,
            "finish": {"text": "finish.md"},
        },
        # The larger of its two machines: the lab takes 3 GB.
        "backend": {"imageid": "ubuntu-4GB"},
    }
    lab.write("index.json", json.dumps(index, indent=2, ensure_ascii=False))


def educates(lab: ExportedLab) -> None:
    """Writes a workshop of Educates: a page for each exercise, whose test is one click."""
    for exercise in lab.exercises:
        name = exercise.folder.name
        click = {"name": name, "title": f"Check: {exercise.content.title}", "timeout": 200}
        block = f"```examiner:execute-test\n{yaml.safe_dump(click, sort_keys=False)}```"
        title = json.dumps(exercise.content.title, ensure_ascii=False)
        begin = f"```terminal:execute\ncommand: cd ~/kit && ./lab learn start {exercise.id}\n```"
        text = f"---\ntitle: {title}\n---\n\n{begin}\n\n{lab.sections[exercise.number]}\n{block}"
        lab.write(f"workshop/content/{name}.md", text)
        lab.script(f"workshop/examiner/tests/{name}", *lab.check(exercise, "echo"))
    lab.write("workshop/content/00-about.md", f"---\ntitle: About\n---\n\n{lab.intro}")
    lab.script("workshop/setup.d/01-kit.sh", *lab.install)
    workshop = {
        "apiVersion": "training.educates.dev/v1beta1",
        "kind": "Workshop",
        "metadata": {"name": lab.about.slug},
        "spec": {
            "title": lab.about.title,
            "description": lab.about.teaser,
            "difficulty": _OF_EDUCATES.get(lab.about.difficulty, lab.about.difficulty),
            "duration": f"{lab.about.timelimit // 60}m",
            "publish": {"image": f"$(image_repository)/{lab.about.slug}-files:$(workshop_version)"},
            "workshop": {
                "files": [{"image": {"url": f"$(image_repository)/{lab.about.slug}-files:$(workshop_version)"}}]
            },
            "session": {
                # Three regions with their mirrors and a proof.
                "resources": {"memory": "6Gi", "storage": "8Gi"},
                "applications": {
                    "terminal": {"enabled": True, "layout": "split"},
                    "editor": {"enabled": True},
                    "examiner": {"enabled": True},
                },
            },
        },
    }
    lab.write("resources/workshop.yaml", "---\n" + yaml.safe_dump(workshop, sort_keys=False, allow_unicode=True))


def instruqt(lab: ExportedLab) -> None:
    """Writes a classic track of Instruqt: a challenge for each exercise, with set-up, check and solution."""
    share = lab.about.timelimit // len(lab.exercises)
    for exercise in lab.exercises:
        name = exercise.folder.name
        front = {
            "slug": exercise.slug,
            "type": "challenge",
            "title": exercise.content.title,
            "teaser": exercise.content.teaser,
            "tabs": [
                {"title": "Terminal", "type": "terminal", "hostname": HOST, "workdir": "/root/kit"},
                {"title": "Editor", "type": "code", "hostname": HOST, "path": f"/root/kit/playbooks/{lab.name}"},
            ],
            "difficulty": lab.about.difficulty,
            "timelimit": share,
        }
        lab.write(f"{name}/assignment.md", f"---\n{_yaml(front)}---\n\n{lab.sections[exercise.number]}")
        for kind, command in (("setup", "start"), ("solve", "solve")):
            lab.script(f"{name}/{kind}-{HOST}", "cd ~/kit || exit 1", f"./lab learn {command} {exercise.id}")
        lab.script(f"{name}/check-{HOST}", *lab.check(exercise, "fail-message"))
    lab.script(f"track_scripts/setup-{HOST}", *lab.install)
    machine = {"name": HOST, "image": "ubuntu-os-cloud/ubuntu-2404-lts-amd64", "machine_type": "n2-standard-2"}
    lab.write("config.yml", _yaml({"version": "3", "virtualmachines": [{**machine, "shell": "/bin/bash"}]}))
    track = {
        "slug": lab.about.slug,
        "type": "track",
        "title": lab.about.title,
        "teaser": lab.about.teaser,
        "description": lab.intro.partition("\n\n")[2].partition("\n\n")[0],
        "tags": ["kafka", "mirrormaker"],
        "owner": "OWNER",
        "developers": [],
        "private": True,
        "published": False,
    }
    lab.write("track.yml", _yaml(track))


def _yaml(content: dict[str, Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


FORMATS: dict[str, Callable[[ExportedLab], None]] = {
    "killercoda": killercoda,
    "educates": educates,
    "instruqt": instruqt,
}


def main(arguments: list[str] | None = None) -> int:
    """Writes the files.

    Raises:
        WrongUseError: the folder is not empty, or the lab has no exercises.
    """
    parser = Parser(prog="export_labs", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("format", choices=FORMATS)
    parser.add_argument("lab", metavar="LAB", help="a scenario with exercises, as ./lab learn lists them")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="a new or empty folder")
    parser.add_argument("--repository", metavar="URL", required=True, help="where a machine clones the kit from")
    options: argparse.Namespace = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    if options.folder.exists() and (not options.folder.is_dir() or any(options.folder.iterdir())):
        raise WrongUseError(f"{options.folder}: is not empty; name a new folder")
    lab = ExportedLab(options.lab, options.repository, options.folder)
    FORMATS[options.format](lab)
    print(f"{options.folder}: {lab.about.title}, {len(lab.exercises)} exercises, for {options.format}")
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
