"""Ansible action plugin: the Kubernetes platform, which gives manifests to an API server and waits for its operators.

It runs in Ansible's own process on the controller: the API server is reached over the network from there, and a module
would start a Python of its own for each region and task, and spend more time on imports and discovery than on work.
"""

from __future__ import annotations

from loosehanger.ansible.platform_action import PlatformAction
from loosehanger.platforms.kubernetes.platform import KubernetesPlatform


class ActionModule(PlatformAction):
    """See the file's description."""

    platform = KubernetesPlatform
    options = KubernetesPlatform.options
