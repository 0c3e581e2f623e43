"""What can go wrong on the local platform, told in one line."""

from __future__ import annotations


class PlatformError(Exception):
    """The work failed: what, where, and what to do."""

    wrong_use = False


class ManifestError(PlatformError):
    """A manifest, or the machine it is for, cannot be used; nothing was changed."""

    wrong_use = True
