"""Processes that end with the one that started them."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from loosehanger.waiting import wait_for

FORK = """\
import os, signal
from loosehanger.process_lifetime import end_forks_with_this
end_forks_with_this(signal.SIGTERM)
if child := os.fork():
    print(child, flush=True)
else:
    os.setsid()
signal.pause()
"""


def is_there(pid: int) -> bool:
    """Whether a process runs."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can")
def test_forks_end_with_their_parent_however_it_ends() -> None:
    with subprocess.Popen([sys.executable, "-P", "-c", FORK], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            child = int(process.stdout.readline())
            assert is_there(child)
        finally:
            process.kill()
    wait_for(lambda: "it is there" if is_there(child) else None, 120, f"the end of {child}")
