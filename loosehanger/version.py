"""The version of this package, as installed."""

from __future__ import annotations

from importlib import metadata

PROGRAM = "mirrorproof"
"""The name of the package and of its command."""


def version() -> str:
    """The installed version; ``unknown`` where the package is not installed."""
    try:
        return metadata.version(PROGRAM)
    except metadata.PackageNotFoundError:
        return "unknown"
