"""A lab of real brokers, mirrors, producer and consumers for the tests, set up once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from lab.sandbox import Kit, copy_kit


@pytest.fixture(scope="session")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    """The lab, set up; cleaned up when all tests are done."""
    kit = copy_kit(tmp_path_factory.mktemp("lab"), port_base=27000)
    try:
        done = kit.setup()
        assert done.returncode == 0, done.stdout + done.stderr
        yield kit
    finally:
        done = kit.run("cleanup")
        assert done.returncode == 0, done.stdout + done.stderr


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Waits until a condition holds; fails the test when it does not within the bound."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.2)


def processes(kit: Kit, region: str, what: str) -> list[psutil.Process]:
    """The processes of a region whose command line has this in it."""
    found = []
    for process in psutil.process_iter():
        try:
            folder = process.environ().get("LAB_REGION_FOLDER", "")
            if folder == str(kit.home / "regions" / region) and what in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found
