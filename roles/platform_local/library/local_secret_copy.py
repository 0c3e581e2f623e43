#!/usr/bin/python
"""Ansible module: copies secrets from one region to another."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.platform_local.module import run_module
from ansible.module_utils.platform_local.region import Region
from ansible.module_utils.platform_local.secret_store import read_secret, write_secret

DOCUMENTATION = """
module: local_secret_copy
short_description: Copies secrets from one region to another
description: The values never leave the module, so there is nothing to hide in Ansible's output.
options:
  names: {description: The secrets., type: list, elements: str, required: true}
  origin: {description: The region that has them., type: str, required: true}
  home: {description: The lab's home., type: path, required: true}
  checkout: {description: Where the kit's programs are., type: path, required: true}
  region: {description: The region that gets them., type: str, required: true}
  port_base: {description: The first of its ports., type: int, required: true}
"""

EXAMPLES = """
- name: Copy the mirror's credentials to its region
  local_secret_copy:
    home: "{{ platform_local_home }}"
    checkout: "{{ platform_local_checkout }}"
    region: north-america
    port_base: 19200
    origin: europe
    names: [mm2-europe, europe-cluster-ca-cert]
"""


def work(module: AnsibleModule, region: Region) -> dict[str, Any]:
    """Copies."""
    origin = Region(region.home, region.checkout, module.params["origin"], 0)
    changed = []
    for name in module.params["names"]:
        data = read_secret(origin, name)
        present = (region.secrets / name).is_dir() and read_secret(region, name) == data
        if not present:
            changed.append(name)
            if not module.check_mode:
                write_secret(region, name, data)
    return {"changed": bool(changed), "secrets": changed}


if __name__ == "__main__":
    run_module(
        work,
        {
            "names": {"type": "list", "elements": "str", "required": True},
            "origin": {"type": "str", "required": True},
        },
    )
