"""The base of the kit's actions: options are checked, and failures are one line each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase

from loosehanger.errors import LabError, WrongUseError


class RegionsFailedError(LabError):
    """What failed in some of the regions that a task works in.

    Args:
        errors: why, by region.
        result: what the task's result has besides.
    """

    def __init__(self, errors: Mapping[str, LabError], result: Mapping[str, Any] | None = None) -> None:
        super().__init__("; ".join(dict.fromkeys(map(str, errors.values()))))
        self.errors = tuple(errors.values())
        self.result = result or {}


class KitAction(ActionBase):  # type: ignore[misc]
    """An action that runs in Ansible's own process."""

    _supports_check_mode = True
    options: ClassVar[Mapping[str, Any]]
    """What it takes; an argument specification of Ansible."""

    @abstractmethod
    def act(self, parameters: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
        """Does the work; what Ansible calls a task's result.

        Args:
            parameters: validated against ``options``.
            variables: the task's.

        Raises:
            LabError: the work failed.
        """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Checks the options and does the work."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        try:
            return result | self.act(self.validated(self._task.args), task_vars or {})
        except LabError as error:
            every = error.errors if isinstance(error, RegionsFailedError) else (error,)
            return {
                **result,
                **(error.result if isinstance(error, RegionsFailedError) else {}),
                "failed": True,
                "msg": str(error),
                "lab_error": str(error),
                "lab_errors": [{"message": str(one), "wrong_use": isinstance(one, WrongUseError)} for one in every],
                "lab_wrong_use": all(isinstance(one, WrongUseError) for one in every),
            }

    def validated(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments, converted to the types that ``options`` names, with its defaults.

        Raises:
            AnsibleActionFail: they are not what ``options`` describes.
        """
        checked = ArgumentSpecValidator(self.options).validate(dict(arguments))
        if checked.error_messages:
            raise AnsibleActionFail("; ".join(checked.error_messages))
        parameters: dict[str, Any] = checked.validated_parameters
        return parameters
