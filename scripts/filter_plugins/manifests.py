"""Ansible filter ``manifests``: the files of a list, as the platform roles take them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from ansible.errors import AnsibleFilterError


def manifests(files: Iterable[str]) -> list[dict[str, str]]:
    """Reads manifest files on the controller.

    Args:
        files: their paths.

    Returns:
        For each its ``source`` (its path from here, for messages) and its ``content``.

    Raises:
        AnsibleFilterError: a file cannot be read.
    """
    result = []
    for file in files:
        try:
            content = Path(file).read_text(encoding="utf-8")
        except OSError as error:
            raise AnsibleFilterError(f"{file}: cannot be read ({error.strerror})") from error
        except UnicodeDecodeError as error:
            raise AnsibleFilterError(f"{file}: is not UTF-8 text ({error.reason} at byte {error.start})") from error
        result.append({"source": os.path.relpath(file), "content": content})
    return result


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """The filters of this file."""
        return {"manifests": manifests}
