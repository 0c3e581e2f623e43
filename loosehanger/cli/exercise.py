"""``./lab exercise undo``: brings a scenario's files back to what they were at the set-up.

The first set-up keeps a copy of the scenario's YAML files in the record. Clean-up deletes it.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from loosehanger.errors import ExitCode, WrongUseError
from loosehanger.files import write_file
from loosehanger.lab.progress import Progress
from loosehanger.lab.scenario_index import PLAYBOOKS, SETUP
from loosehanger.paths import lab_home

_ORIGINALS, _UNDONE = Path("access", "originals"), Path("access", "undone")


def scenario_files(scenario: str, playbooks: Path = PLAYBOOKS) -> dict[str, bytes]:
    """The content of each YAML file of a scenario, by its path in the scenario's folder."""
    return _read(playbooks / scenario)


def keep(files: Mapping[str, bytes], home: Path) -> None:
    """Keeps a scenario's files for ``undo``, unless an earlier set-up of this lab has kept them."""
    if not (home / _ORIGINALS).exists():
        _write(home / _ORIGINALS, files)


def undo(progress: Progress, playbooks: Path = PLAYBOOKS) -> int:
    """Restores the files that were changed since the set-up, and deletes those that are new.

    Raises:
        WrongUseError: nothing was changed, or no copy was kept.
    """
    home, folder = lab_home(), playbooks / progress.scenario
    originals = home / _ORIGINALS
    if not originals.exists():
        raise WrongUseError(
            f"the set-up of this lab kept no copy of playbooks/{progress.scenario}; git restore brings its files back"
        )
    before = _read(originals)
    now = scenario_files(progress.scenario, playbooks)
    changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if not changed:
        raise WrongUseError(f"no file of playbooks/{progress.scenario} was changed since the set-up")
    shutil.rmtree(home / _UNDONE, ignore_errors=True)
    _write(home / _UNDONE, {name: now[name] for name in changed if name in now})
    for name in changed:
        if name in before:
            # Written in place: the file keeps its owner and mode.
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(before[name])
        else:
            (folder / name).unlink()
        print(f"playbooks/{progress.scenario}/{name}: {'as it was at the set-up' if name in before else 'deleted'}")
    again = f"setup {progress.scenario}" if progress.stage in ("", SETUP) else f"stage {progress.stage}"
    print(f"\nYour versions are in {home / _UNDONE}. ./lab {again} applies what is there now.")
    return ExitCode.DONE


def _read(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.yaml"))}


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        write_file(folder / name, content)
