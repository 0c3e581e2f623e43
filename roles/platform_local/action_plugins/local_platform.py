"""Ansible action plugin: runs the platform in Ansible's own process where the region is on this machine.

A module would start a Python of its own for each region and task, and spend more time on imports than on work. Where a
region is another machine, the module of the same name goes there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "module_utils"))

from platform_local import entry_points


class ActionModule(ActionBase):  # type: ignore[misc]
    """See the file's description."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Runs the entry point, here or there."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        if self._connection.transport != "local":
            result.update(self._execute_module(task_vars=task_vars))
            return result
        checked = ArgumentSpecValidator(entry_points.OPTIONS).validate(self._task.args)
        if checked.error_messages:
            raise AnsibleActionFail("; ".join(checked.error_messages))
        return result | entry_points.run(checked.validated_parameters, check_mode=self._task.check_mode)
