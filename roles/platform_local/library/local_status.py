#!/usr/bin/python
"""Ansible module: the health of everything in a region."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.platform_local.module import run_module
from ansible.module_utils.platform_local.region import Region
from ansible.module_utils.platform_local.status import status

DOCUMENTATION = """
module: local_status
short_description: The health of everything in a region
description: Changes nothing.
options:
  home: {description: The lab's home., type: path, required: true}
  checkout: {description: Where the kit's programs are., type: path, required: true}
  region: {description: The region., type: str, required: true}
  port_base: {description: The first of its ports., type: int, required: true}
"""

EXAMPLES = """
- name: Read the status
  local_status:
    home: "{{ platform_local_home }}"
    checkout: "{{ platform_local_checkout }}"
    region: "{{ inventory_hostname }}"
    port_base: "{{ platform_local_port_base }}"
  register: __status
"""

RETURN = """
resources:
  description: For each cluster, mirror and program its kind, name, healthy, state and detail.
  returned: always
  type: list
"""


def work(module: AnsibleModule, region: Region) -> dict[str, Any]:  # noqa: ARG001 (every module's work has both)
    """Reads."""
    return {"changed": False, "resources": status(region)}


if __name__ == "__main__":
    run_module(work)
