"""Ansible action plugin: the Kubernetes platform, which gives manifests to an API server and waits for its operators.

It runs in Ansible's own process on the controller: the API server is reached over the network from there, and a module
would start a Python of its own for each region and task, and spend more time on imports and discovery than on work.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase

_ROLES = Path(__file__).resolve().parents[2]
# What all platforms share lies with the local one: reading manifests, waiting, the record for clients.
for _role in ("platform_local", "platform_kubernetes"):
    sys.path.insert(0, str(_ROLES / _role / "module_utils"))

from platform_kubernetes import entry_points  # noqa: E402 - found by the lines above


class ActionModule(ActionBase):  # type: ignore[misc]
    """See the file's description."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Runs the entry point."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        checked = ArgumentSpecValidator(entry_points.OPTIONS).validate(self._task.args)
        if checked.error_messages:
            raise AnsibleActionFail("; ".join(checked.error_messages))
        parameters = checked.validated_parameters
        return result | entry_points.run(parameters, check_mode=self._task.check_mode, report=self._display.display)
