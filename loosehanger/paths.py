"""Where the kit and its lab lie on this machine."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The checkout."""


def lab_home() -> Path:
    """The folder that holds everything the kit installs and makes: ``LAB_HOME``, or ``.lab`` in the checkout."""
    return Path(os.environ.get("LAB_HOME") or ROOT / ".lab").absolute()


def caller_path(text: str) -> Path:
    """A path as the user meant it: the kit's programs may run in another folder than the one it was typed in."""
    return Path(os.environ.get("LAB_CALLED_FROM", ""), text).absolute()
