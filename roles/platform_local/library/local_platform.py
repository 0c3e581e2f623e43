#!/usr/bin/python
"""Ansible module: the local platform, which carries out Kubernetes manifests with processes of this machine."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.platform_local import entry_points

DOCUMENTATION = """
module: local_platform
short_description: Carries out Kubernetes manifests with processes of this machine
description:
  - Does for one region what Kubernetes and the Strimzi operators would do.
  - Runs in Ansible's own process where the region is on this machine; see the action plugin of the same name.
options:
  entry_point:
    description:
      - What to do. C(preflight) checks manifests, machine and ports and changes nothing; C(apply) carries manifests
        out and waits until they are ready; C(delete) deletes what they describe; C(copy_secrets) copies secrets from
        another region; C(status) reads the health of everything; C(access) records how the kit's clients reach the
        region; C(stop_clients) ends everything but the Kafka nodes, because a mirror whose cluster went first hangs on
        its way out; C(delete_region) ends every process and deletes the region's folder; C(bundle) collects manifests,
        states and logs.
    type: str
    required: true
    choices: [preflight, apply, delete, copy_secrets, status, access, stop_clients, delete_region, bundle]
  home: {description: The lab's home., type: path, required: true}
  checkout: {description: Where the kit's own programs are., type: path, required: true}
  region: {description: The region., type: str, required: true}
  port_base: {description: The first of its ports., type: int, required: true}
  manifests:
    description: For preflight, apply and delete, a list of source (a name for messages) and content (YAML).
    type: list
    elements: dict
    suboptions:
      source: {description: A name for messages., type: str, required: true}
      content: {description: The YAML., type: str, required: true}
  ready_seconds: {description: Seconds that each kind may take to get ready., type: int, default: 120}
  stop_seconds: {description: Seconds that processes may take to end before they are killed., type: int, default: 25}
  regions: {description: For preflight, how many regions there are going to be., type: int, default: 1}
  memory_mb: {description: For preflight, memory that one region takes in MiB., type: int, default: 0}
  disk_mb: {description: For preflight, disk that must be free in MiB., type: int, default: 0}
  ports: {description: For preflight, further ports to be free., type: list, elements: int, default: []}
  origin: {description: For copy_secrets, the region that has them., type: str}
  secrets: {description: For copy_secrets, their names., type: list, elements: str}
  folder: {description: For bundle, the folder to write into., type: path}
"""

EXAMPLES = """
- name: Apply the mirror
  local_platform:
    entry_point: apply
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
  description: What was made, changed, deleted or copied as kind/name; for status the health of each resource.
  returned: for apply, delete, copy_secrets and status
  type: list
"""


def main() -> None:
    """Runs the entry point."""
    module = AnsibleModule(argument_spec=entry_points.OPTIONS, supports_check_mode=True)
    result = entry_points.run(module.params, check_mode=module.check_mode)
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
