"""The paths of the kit and its lab on this machine."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The checkout."""


def lab_home() -> Path:
    """Returns the folder with everything the kit installs and creates: ``LAB_HOME``, or ``.lab`` in the checkout."""
    return Path(os.environ.get("LAB_HOME") or ROOT / ".lab").absolute()


def caller_path(text: str) -> Path:
    """Resolves a path against the user's folder, because the kit's programs may run in another one."""
    return Path(os.environ.get("LAB_CALLED_FROM", ""), text).absolute()
