"""Processes that end with the one that started them."""

from __future__ import annotations

import ctypes
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
