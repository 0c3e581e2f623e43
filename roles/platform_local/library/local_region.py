#!/usr/bin/python
"""Ansible module: ends a region's programs, or deletes the whole region."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.platform_local.apply import delete_region, stop_clients
from ansible.module_utils.platform_local.module import run_module
from ansible.module_utils.platform_local.region import Region

DOCUMENTATION = """
module: local_region
short_description: Ends a region's programs, or deletes the whole region
description:
  - With state C(clusters_only), everything but the Kafka nodes ends. A mirror whose cluster went first hangs on its
    way out, so this is done in every region before the first one is deleted.
  - With state C(absent), every process of the region ends and its folder is deleted.
options:
  state:
    description: What shall be left.
    choices: [clusters_only, absent]
    required: true
    type: str
  timeout: {description: Seconds that processes may take to end before they are killed., type: int, default: 25}
  home: {description: The lab's home., type: path, required: true}
  checkout: {description: Where the kit's programs are., type: path, required: true}
  region: {description: The region., type: str, required: true}
  port_base: {description: The first of its ports., type: int, required: true}
"""

EXAMPLES = """
- name: Delete the region
  local_region:
    home: "{{ platform_local_home }}"
    checkout: "{{ platform_local_checkout }}"
    region: "{{ inventory_hostname }}"
    port_base: "{{ platform_local_port_base }}"
    state: absent
"""


def work(module: AnsibleModule, region: Region) -> dict[str, Any]:
    """Ends, or deletes."""
    if module.check_mode:
        return {"changed": region.folder.exists()}
    if module.params["state"] == "clusters_only":
        return {"changed": stop_clients(region)}
    return {"changed": delete_region(region, module.params["timeout"])}


if __name__ == "__main__":
    run_module(
        work,
        {
            "state": {"type": "str", "choices": ["clusters_only", "absent"], "required": True},
            "timeout": {"type": "int", "default": 25},
        },
    )
