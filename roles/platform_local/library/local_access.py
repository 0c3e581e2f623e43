#!/usr/bin/python
"""Ansible module: writes the record by which the kit's own clients reach a region."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.platform_local.access import record
from ansible.module_utils.platform_local.module import run_module
from ansible.module_utils.platform_local.region import Region

DOCUMENTATION = """
module: local_access
short_description: Writes the record by which the kit's own clients reach a region
description: A client configuration for every user, and a description of the region, readable by their owner only.
options:
  home: {description: The lab's home., type: path, required: true}
  checkout: {description: Where the kit's programs are., type: path, required: true}
  region: {description: The region., type: str, required: true}
  port_base: {description: The first of its ports., type: int, required: true}
"""

EXAMPLES = """
- name: Record how to reach the region
  local_access:
    home: "{{ platform_local_home }}"
    checkout: "{{ platform_local_checkout }}"
    region: "{{ inventory_hostname }}"
    port_base: "{{ platform_local_port_base }}"
"""


def work(module: AnsibleModule, region: Region) -> dict[str, Any]:
    """Writes."""
    return {"changed": False if module.check_mode else record(region)}


if __name__ == "__main__":
    run_module(work)
