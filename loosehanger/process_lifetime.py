"""Processes that end with the one that started them."""

from __future__ import annotations

import ctypes
import os
import sys

_LIBRARY = ctypes.CDLL(None)
"""Loaded here: between fork and exec, loading could wait for a lock for ever."""
_PR_SET_PDEATHSIG = 1


def end_with_parent(number: int) -> None:
    """Has the kernel send the calling process a signal when its parent ends, however that ends.

    Only Linux can. The wish outlives an exec, and is not inherited by children.

    Args:
        number: the signal.
    """
    if sys.platform == "linux":
        _LIBRARY.prctl(_PR_SET_PDEATHSIG, number)


def end_forks_with_this(number: int) -> None:
    """Has every process that Python forks from this one from now on sent a signal when its parent ends.

    Not those in which another program is started.

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
            os._exit(1)  # It has ended already.

    os.register_at_fork(before=before, after_in_child=after)
