"""What Ansible says at the end of a playbook."""

from __future__ import annotations

import re


def recap(output: str) -> dict[str, int]:
    """How many things were changed, by region; without the regions where nothing was."""
    found = re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", output, re.MULTILINE)
    assert found, output
    return {host: int(changed) for host, changed in found if int(changed)}
