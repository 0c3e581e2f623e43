#!/usr/bin/python
"""Ansible module: applies or deletes Kubernetes manifests with processes of this machine."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.platform_local.apply import apply, delete
from ansible.module_utils.platform_local.module import MANIFESTS_OPTION, manifests_of, run_module
from ansible.module_utils.platform_local.region import Region

DOCUMENTATION = """
module: local_manifests
short_description: Applies or deletes Kubernetes manifests with processes of this machine
description:
  - Carries out what Kubernetes and the Strimzi operators would do, for one region.
  - Resources are applied in the order in which they need each other, and each kind is waited for; they are deleted the
    other way round.
options:
  manifests:
    description: What to apply, as source (a name for messages) and content (YAML).
    type: list
    elements: dict
    required: true
  state:
    description: Whether they shall be there.
    choices: [present, absent]
    default: present
    type: str
  ready_seconds: {description: Seconds that a resource may take to get ready., type: int, default: 120}
  home: {description: The lab's home., type: path, required: true}
  checkout: {description: Where the kit's programs are., type: path, required: true}
  region: {description: The region., type: str, required: true}
  port_base: {description: The first of its ports., type: int, required: true}
"""

EXAMPLES = """
- name: Apply the mirror
  local_manifests:
    home: "{{ platform_local_home }}"
    checkout: "{{ platform_local_checkout }}"
    region: "{{ inventory_hostname }}"
    port_base: "{{ platform_local_port_base }}"
    manifests:
      - source: mm2-na.yaml
        content: "{{ lookup('ansible.builtin.file', 'mm2-na.yaml') }}"
"""

RETURN = """
resources:
  description: Kind and name of each resource that was made, changed or deleted.
  returned: always
  type: list
"""


def work(module: AnsibleModule, region: Region) -> dict[str, Any]:
    """Applies or deletes."""
    manifests = manifests_of(module, region)
    if module.params["state"] == "present":
        outcome = apply(region, manifests, ready_seconds=module.params["ready_seconds"], dry_run=module.check_mode)
        diff = {"before": outcome.before, "after": outcome.after}
        return {"changed": bool(outcome.changed), "resources": outcome.changed, "diff": diff}
    if module.check_mode:
        there = [m.resource.reference for m in manifests if region.resource(m.resource.kind, m.resource.metadata.name)]
        return {"changed": bool(there), "resources": there}
    deleted = delete(region, manifests)
    return {"changed": bool(deleted), "resources": deleted}


if __name__ == "__main__":
    run_module(
        work,
        {
            "manifests": MANIFESTS_OPTION,
            "ready_seconds": {"type": "int", "default": 120},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
    )
