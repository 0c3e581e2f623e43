#!/usr/bin/python
"""Ansible module: checks manifests, machine and ports before anything is made."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.platform_local.module import MANIFESTS_OPTION, manifests_of, run_module
from ansible.module_utils.platform_local.preflight import check_machine, check_mirrors, check_ports
from ansible.module_utils.platform_local.region import Region

DOCUMENTATION = """
module: local_preflight
short_description: Checks manifests, machine and ports before anything is made
description: Changes nothing. The manifests may be for any region; those for this one have their ports checked.
options:
  manifests:
    description: What is going to be applied, as source (a name for messages) and content (YAML).
    type: list
    elements: dict
    required: true
  regions: {description: How many regions there are going to be., type: int, required: true}
  memory_mb: {description: Memory that one region takes in MiB., type: int, required: true}
  disk_mb: {description: Disk that must be free in MiB., type: int, required: true}
  home: {description: The lab's home., type: path, required: true}
  checkout: {description: Where the kit's programs are., type: path, required: true}
  region: {description: The region., type: str, required: true}
  port_base: {description: The first of its ports., type: int, required: true}
"""

EXAMPLES = """
- name: Check everything first
  local_preflight:
    home: "{{ platform_local_home }}"
    checkout: "{{ platform_local_checkout }}"
    region: "{{ inventory_hostname }}"
    port_base: "{{ platform_local_port_base }}"
    regions: 3
    memory_mb: 900
    disk_mb: 2048
    manifests: []
"""


def work(module: AnsibleModule, region: Region) -> dict[str, Any]:
    """Checks."""
    arguments = module.params
    manifests = manifests_of(module, None)
    check_mirrors(manifests)
    check_machine(region, regions=arguments["regions"], memory_mb=arguments["memory_mb"], disk_mb=arguments["disk_mb"])
    check_ports(region, manifests)
    return {"changed": False}


if __name__ == "__main__":
    run_module(
        work,
        {
            "manifests": MANIFESTS_OPTION,
            "regions": {"type": "int", "required": True},
            "memory_mb": {"type": "int", "required": True},
            "disk_mb": {"type": "int", "required": True},
        },
    )
