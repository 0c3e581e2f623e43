"""A lab of real brokers, mirrors, producer and consumers for the tests, set up once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.sandbox import Kit, copy_kit


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
