"""What the kit's own actions share: options that are checked, and failures in one line."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase

from loosehanger.errors import LabError, WrongUseError


class KitAction(ActionBase):  # type: ignore[misc]
    """An action that runs in Ansible's own process."""

    _supports_check_mode = True
    options: ClassVar[Mapping[str, Any]]
    """What it takes; an argument specification of Ansible."""

    @abstractmethod
    def act(self, parameters: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
        """Does the work; what Ansible calls a task's result.

        Args:
            parameters: as ``options`` has them, checked.
            variables: the task's.

        Raises:
            LabError: the work failed.
        """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Checks the options and does the work."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        checked = ArgumentSpecValidator(self.options).validate(self._task.args)
        if checked.error_messages:
            raise AnsibleActionFail("; ".join(checked.error_messages))
        try:
            return result | self.act(checked.validated_parameters, task_vars or {})
        except LabError as error:
            return result | {
                "failed": True,
                "msg": str(error),
                "lab_error": str(error),
                "lab_wrong_use": isinstance(error, WrongUseError),
            }
