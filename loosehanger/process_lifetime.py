"""Processes that stop with their parent."""

from __future__ import annotations

import ctypes
import os
import sys

_LIBRARY = ctypes.CDLL(None)
"""Loaded at import, because loading between fork and exec could deadlock."""
_PR_SET_PDEATHSIG = 1


def end_with_parent(number: int) -> None:
    """Makes the kernel send the calling process a signal when its parent exits for any reason.

    It works on Linux only. The setting survives an exec, and children do not inherit it.

    Args:
        number: the signal.
    """
    if sys.platform == "linux":
        _LIBRARY.prctl(_PR_SET_PDEATHSIG, number)


def end_forks_with_this(number: int) -> None:
    """Makes the kernel send every process that Python forks from now on a signal when its parent exits.

    Processes that start another program are not affected.

    Args:
        number: the signal.
    """
    parent = os.getpid()

    def before() -> None:
        nonlocal parent
        parent = os.getpid()

    def after() -> None:
        end_with_parent(number)
        if os.getppid() != parent:
            os._exit(1)  # The parent has already exited.

    os.register_at_fork(before=before, after_in_child=after)
