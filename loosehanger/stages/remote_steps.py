"""Runs a step of a switch in a pod, and keeps the snapshots that it returns."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from loosehanger.errors import LabError, WrongUseError
from loosehanger.files import write_file
from loosehanger.lab.actions import ClusterAction
from loosehanger.lab.record import Lab, Pod
from loosehanger.platforms.operations import RunInPod

_NAME: Final = r"[A-Za-z0-9][\w.-]*"
_KEPT: Final = re.compile(
    # The id of a consumer group, in the name of a fence's file, may have nearly any character.
    rf"access/marks/{_NAME}/(loss|fence|silence|wipe|ending|rearmed|rescue)\.[^/\x00-\x1f]+\.json"
    rf"|rescued/{_NAME}\.jsonl",
    re.ASCII,
)
"""The files that a step may write: snapshots and salvaged records. A pod is not trusted with the rest of the home."""


def take(lab: Lab, pod: Pod, home: Path, run_in_pod: RunInPod, step: ClusterAction) -> Any:
    """Runs a step in a pod; returns its answer.

    Args:
        lab: what is set up.
        pod: where pods run.
        home: the lab's home on this machine: its snapshots are sent along, and new ones are written to it.
        run_in_pod: the platform's.
        step: which.

    Raises:
        LabError: the step failed; or the pod does not start, exits without an answer, or would write a file that no
            step keeps.
    """
    code, given = run_in_pod(lab, pod, home, step.model_dump_json(), exclusive=step.changes)
    if given is None:
        raise LabError(f"{pod.namespace}: the step '{step.kind}' ended with exit code {code}, and no answer")
    answer: dict[str, Any] = json.loads(given)
    for path, text in _kept(pod, home, step, answer["files"]).items():
        # A snapshot that names a file must name it by its path here.
        write_file(path, text.replace(answer["home"], str(home)))
    if "error" in answer:
        raise (WrongUseError if answer["wrong_use"] else LabError)(answer["error"])
    return answer["value"]


def _kept(pod: Pod, home: Path, step: ClusterAction, files: Mapping[str, str]) -> dict[Path, str]:
    """The files that a step kept, by their path here; all of them are checked before one is written."""
    found = {}
    for name, text in files.items():
        path = (home / name).resolve()
        if not path.is_relative_to(home.resolve()):
            raise LabError(f"{pod.namespace}: the step '{step.kind}' would write {name}, outside the lab's home")
        if not _KEPT.fullmatch(name) or path != home.resolve() / name:
            what = f"{name}, which is neither a snapshot nor a salvaged file"
            raise LabError(f"{pod.namespace}: the step '{step.kind}' would write {what}")
        found[path] = text
    return found
