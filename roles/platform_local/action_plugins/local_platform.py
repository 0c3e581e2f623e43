"""Ansible action plugin: the local platform, in Ansible's own process.

A module would start a Python of its own for each region and task, and spend more time on imports than on work.
"""

from __future__ import annotations

from loosehanger.ansible.platform_action import PlatformAction
from loosehanger.platforms.local.platform import LocalPlatform


class ActionModule(PlatformAction):
    """See the file's description."""

    platform = LocalPlatform
    options = LocalPlatform.options
