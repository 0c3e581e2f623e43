"""Ansible's default output, with one line in place of a dump where the kit knows what went wrong.

The failures are also kept in the file that ``LAB_OUTCOME`` names, for the wrapper's last line and exit code. Under the
wrapper, and without ``-v`` or ``--check``, there are no banners. One task runs a stage in all regions: it shows a line
for each step and region, and the count at the end has what each region did.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from ansible import constants, context
from ansible.plugins.callback.default import CallbackModule as DefaultCallback
from ansible.utils.color import colorize, hostcolor

from loosehanger.errors import discard_output
from loosehanger.process_lifetime import end_forks_with_this

DOCUMENTATION = """
name: lab
type: stdout
short_description: Ansible's default output, with the kit's own errors in one line
description: Like the default output, but what the kit's modules explain in one line is shown in one line.
extends_documentation_fragment:
  - default_callback
  - result_format_callback
"""


class Output:
    """A stream that is discarded once its reader has gone, as in ``./lab setup … | head``.

    Ansible collects results in a thread that a closed pipe ends, and the playbook would wait for it forever.

    Args:
        stream: standard output or standard error.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes a text, or discards it."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            discard_output(self._stream)
            return len(text)

    def flush(self) -> None:
        """Writes what is buffered, or discards it."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            discard_output(self._stream)


def _reason(outcome: Mapping[str, Any]) -> str:
    """Why a task failed: of a command, the last line of its standard error."""
    said = str(outcome.get("stderr") or "").strip().splitlines()
    return said[-1].removeprefix("error: ") if said else str(outcome.get("msg", ""))


class CallbackModule(DefaultCallback):  # type: ignore[misc]
    """See the file's description."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "lab"
    _narrates = False
    """Whether it names each task as it begins, and says nothing when it has ended."""

    def __init__(self) -> None:
        super().__init__()
        if not isinstance(sys.stdout, Output):
            sys.stdout, sys.stderr = Output(sys.stdout), Output(sys.stderr)
        # Ansible's workers have sessions of their own. When it is killed they would work on, beside what comes next, or
        # wait forever for a process that takes their results.
        end_forks_with_this(signal.SIGTERM)
        self._narrates = "LAB_NARRATE" in os.environ
        self._brief = "LAB_OUTCOME" in os.environ and not context.CLIARGS.get("check")
        self._of_regions: list[tuple[str, tuple[str, ...], Mapping[str, Mapping[str, int]]]] = []

    @property
    def _is_brief(self) -> bool:
        return self._brief and not self._display.verbosity

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Nothing where it is brief: most plays only describe."""
        self._play = play
        if not self._is_brief:
            super().v2_playbook_on_play_start(play)

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """The task's name where its playbook is followed, which is an exercise's."""
        if self._narrates:
            self._display.display(task.get_name().strip())
        super().v2_playbook_on_task_start(task, is_conditional)

    def v2_playbook_on_include(self, included_file: Any) -> None:
        """Nothing where it is brief."""
        if not self._is_brief:
            super().v2_playbook_on_include(included_file)

    def v2_runner_on_ok(self, result: Any) -> None:
        """One line where it is brief: for the steps of a stage, and for every task that changed something."""
        host, outcome = result.host.get_name(), result.result
        self._keep_counts(host, outcome, "ok", *(["changed"] if outcome.get("changed") else []))
        if not self._is_brief:
            # The task that runs a stage has shown a line for each step and region.
            if "lab_regions" not in outcome or self._display.verbosity:
                super().v2_runner_on_ok(result)
            return
        self._handle_warnings_and_exception(result)
        if outcome.get("steps"):
            self._display.display(f"Everything is checked; the steps are {', '.join(outcome['steps'])}.")
        if outcome.get("changed", False) and "lab_regions" not in outcome and not self._narrates:
            self._display.display(f"{host}: {result.task.get_name()}", color=constants.COLOR_CHANGED)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Ansible's count for each region, without the banner above it where it is brief."""
        self._count_regions(stats)
        if not self._is_brief:
            super().v2_playbook_on_stats(stats)
            return
        for host in () if self._narrates else sorted(stats.processed):
            counts = stats.summarize(host)
            colours = {"ok": constants.COLOR_OK, "changed": constants.COLOR_CHANGED, "failed": constants.COLOR_ERROR}
            numbers = {"ok": counts["ok"], "changed": counts["changed"], "failed": counts["failures"]}
            text = " ".join(colorize(name, number, colours[name]) for name, number in numbers.items())
            self._display.display(f"{hostcolor(host, counts)} : {text}")

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """One line for each error of the kit, Ansible's dump elsewhere.

        Of an exercise's playbook there is none: its tasks are commands of the kit, whose reason the wrapper's line has.
        """
        outcome = result._result if hasattr(result, "_result") else result.result
        self._keep_counts(result.host.get_name(), outcome, "failures")
        errors: list[dict[str, Any]] = outcome.get("lab_errors") or []
        if not ignore_errors:
            for error in errors or [{"message": _reason(outcome), "wrong_use": False}]:
                self._record(error["message"], error["wrong_use"])
        for error in errors:
            self._display.display(f"error: {error['message']}", color=constants.COLOR_ERROR, stderr=True)
        if not errors and not (self._narrates and self._is_brief):
            super().v2_runner_on_failed(result, ignore_errors=ignore_errors)

    def _keep_counts(self, host: str, outcome: Mapping[str, Any], *counted: str) -> None:
        """Keeps what a task did in all regions; Ansible counts it for one host.

        Args:
            host: that one.
            outcome: the task's result.
            counted: what Ansible counts.
        """
        if "lab_regions" in outcome:
            self._of_regions.append((host, counted, outcome["lab_regions"]))

    def _count_regions(self, stats: Any) -> None:
        """Counts each step for the region that it ran in."""
        for host, counted, regions in self._of_regions:
            for what in counted:
                stats.decrement(what, host)
            for region, numbers in regions.items():
                stats.processed[region] = 1
                for what, number in numbers.items():
                    of_host = getattr(stats, what)
                    of_host[region] = of_host.get(region, 0) + number

    def _record(self, message: str, wrong_use: bool) -> None:
        path = os.environ.get("LAB_OUTCOME")
        if path:
            with Path(path).open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({"message": message, "wrong_use": wrong_use}) + "\n")
