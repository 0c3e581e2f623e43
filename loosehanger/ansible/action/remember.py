"""Ansible action plugin: records which stage of the scenario was begun or reached, for every command.

Options:
    home: the lab's home.
    platform: the name of the platform.
    reached: whether the stage was reached, or begins now. What has no scenario has nothing to remember.
    port_base: the number that the lab's ports on this machine follow; 0 for none.

``./lab`` names the variables to record in the environment; without it, such as in a run of ansible-playbook, the
record keeps those that it has.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from loosehanger.ansible.described import scenario_of
from loosehanger.ansible.kit_action import KitAction
from loosehanger.lab.claims.claims import recorded
from loosehanger.lab.progress import VARIABLES
from loosehanger.lab.record import Progress, read_progress
from loosehanger.lab.snapshots import archive_snapshots


class ActionModule(KitAction):
    """See the file's description."""

    options: ClassVar[Mapping[str, Any]] = {
        "home": {"type": "path", "required": True},
        "platform": {"type": "str", "required": True},
        "reached": {"type": "bool", "required": True},
        "port_base": {"type": "int", "default": 0},
    }

    def act(self, parameters: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
        """Keeps it."""
        home = Path(parameters["home"])
        scenario, stage = scenario_of(variables)
        if scenario is None or self._task.check_mode:
            return {}
        before = read_progress(home)
        if not parameters["reached"] and not (before and stage in (before.stage, before.unfinished)):
            archive_snapshots(home, stage)
        progress = Progress(
            scenario.name,
            parameters["platform"],
            str(variables["ansible_inventory_sources"][0]),
            stage=stage if parameters["reached"] else before.stage if before else "",
            unfinished="" if parameters["reached"] else stage,
            claims=recorded(scenario.claims),
            lost=scenario.stage(stage).lost,
            port_base=parameters["port_base"],
            variables=_variables(before),
        )
        # Running a stage again does not change which one is reached.
        progress.write(home)
        return {}


def _variables(before: Progress | None) -> tuple[str, ...]:
    if (given := os.environ.get(VARIABLES)) is not None:
        return tuple(json.loads(given))
    return before.variables if before else ()
