"""Ansible's default output, with one line in place of a dump where the kit knows what went wrong.

The failures are also kept in the file that ``LAB_OUTCOME`` names, for the wrapper's last line and exit code. Under the
wrapper, and without ``-v`` or ``--check``, there is one line for each region and step in place of Ansible's banners.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from ansible import constants, context
from ansible.plugins.callback.default import CallbackModule as DefaultCallback
from ansible.utils.color import colorize, hostcolor

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


class CallbackModule(DefaultCallback):  # type: ignore[misc]
    """See the file's description."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "lab"

    def __init__(self) -> None:
        super().__init__()
        # Ansible's workers have sessions of their own. When it is killed they would work on, beside what comes next, or
        # wait for ever for somebody to take their results.
        end_forks_with_this(signal.SIGTERM)
        self._brief = "LAB_OUTCOME" in os.environ and not context.CLIARGS.get("check")
        self._began: dict[tuple[str, str], float] = {}
        self._steps: list[str] = []
        self._used: set[str] = set()

    @property
    def _is_brief(self) -> bool:
        return self._brief and not self._display.verbosity

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Nothing where it is brief: most plays only describe."""
        self._play = play
        if not self._is_brief:
            super().v2_playbook_on_play_start(play)

    def v2_playbook_on_include(self, included_file: Any) -> None:
        """Nothing where it is brief."""
        if not self._is_brief:
            super().v2_playbook_on_include(included_file)

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        """Keeps when it began."""
        self._began[host.get_name(), task._uuid] = time.monotonic()
        if not self._is_brief:
            super().v2_runner_on_start(host, task)

    def v2_runner_on_ok(self, result: Any) -> None:
        """One line for a step of a region, and for whatever else changed something, where it is brief."""
        if not self._is_brief:
            super().v2_runner_on_ok(result)
            return
        self._handle_warnings_and_exception(result)
        region, outcome = result.host.get_name(), result.result
        if "steps" in outcome:
            if not self._steps and outcome["steps"]:
                self._display.display(f"Everything is checked; the steps are {', '.join(outcome['steps'])}.")
            self._steps = outcome["steps"]
            self._used |= {region} if outcome.get("lab_used") else set()
        step = outcome.get("lab_step")
        changed = outcome.get("changed", False)
        if step not in self._steps and not changed:
            return
        seconds = time.monotonic() - self._began.get((region, result.task._uuid), time.monotonic())
        if step not in self._steps:
            self._display.display(f"{region}: {result.task.get_name()}", color=constants.COLOR_CHANGED)
        elif region in self._used:
            done = f"{len(outcome['resources'])} changed" if changed and "resources" in outcome else "changed"
            text = f"[{self._steps.index(step) + 1}/{len(self._steps)}] {step:<9} {region:<16} "
            text += f"{done if changed else 'unchanged':<12} {seconds:5.1f} s"
            self._display.display(text, color=constants.COLOR_CHANGED if changed else constants.COLOR_OK)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Ansible's count for each region, without the banner above it where it is brief."""
        if not self._is_brief:
            super().v2_playbook_on_stats(stats)
            return
        for host in sorted(stats.processed):
            counts = stats.summarize(host)
            colours = {"ok": constants.COLOR_OK, "changed": constants.COLOR_CHANGED, "failed": constants.COLOR_ERROR}
            numbers = {"ok": counts["ok"], "changed": counts["changed"], "failed": counts["failures"]}
            told = " ".join(colorize(name, number, colours[name]) for name, number in numbers.items())
            self._display.display(f"{hostcolor(host, counts)} : {told}")

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """One line where the kit knows what went wrong, Ansible's dump elsewhere."""
        message = result._result.get("lab_error") if hasattr(result, "_result") else result.result.get("lab_error")
        outcome = result._result if hasattr(result, "_result") else result.result
        if not ignore_errors:
            self._record(message or str(outcome.get("msg", "")), bool(outcome.get("lab_wrong_use")))
        if message:
            self._display.display(f"error: {message}", color=constants.COLOR_ERROR, stderr=True)
        else:
            super().v2_runner_on_failed(result, ignore_errors=ignore_errors)

    def _record(self, message: str, wrong_use: bool) -> None:
        path = os.environ.get("LAB_OUTCOME")
        if path:
            with Path(path).open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({"message": message, "wrong_use": wrong_use}) + "\n")
