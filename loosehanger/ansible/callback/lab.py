"""Ansible's default output, with one line in place of a dump where the kit knows what went wrong.

The failures are also kept in the file that ``LAB_OUTCOME`` names, for the wrapper's last line and exit code.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.plugins.callback.default import CallbackModule as DefaultCallback

from loosehanger.parents import end_forks_with_this

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
