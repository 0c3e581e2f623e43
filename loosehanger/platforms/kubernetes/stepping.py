"""Having a step of a switch taken in a pod, and keeping what it kept there."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from loosehanger.errors import LabError, WrongUseError
from loosehanger.files import write_file
from loosehanger.model.record import Lab, Pod
from loosehanger.platforms.switch_steps import SwitchStep

from . import pods
from .in_pod import STEP
from .step_in_pod import ANSWER, STEP_FILE


def take(lab: Lab, pod: Pod, home: Path, step: SwitchStep) -> Any:
    """Takes a step in a pod; returns what it returns.

    Args:
        lab: what is set up.
        pod: where pods run.
        home: the lab's home on this machine: the marks in it go along, and new ones are kept in it.
        step: which.

    Raises:
        LabError: what the step raises; or the pod does not start, or ends without an answer.
    """
    if step.changes:
        pods.end_all(pod, STEP)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ANSWER
        brought = {STEP_FILE: step.model_dump_json()}
        code = pods.run(lab, pod, STEP, [], home=home, brought=brought, back={ANSWER: path})
        if not path.exists():
            raise LabError(f"{pod.namespace}: the step '{step.kind}' ended with exit code {code}, and no answer")
        answer: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for name, text in answer["files"].items():
        kept = (home / name).resolve()
        if not kept.is_relative_to(home.resolve()):
            raise LabError(f"{pod.namespace}: the step '{step.kind}' would write {name}, outside the lab's home")
        # A mark that names a file names it as it is here.
        write_file(kept, text.replace(answer["home"], str(home)))
    if "error" in answer:
        raise (WrongUseError if answer["wrong_use"] else LabError)(answer["error"])
    return answer["value"]
