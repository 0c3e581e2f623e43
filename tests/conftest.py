"""A lab of real brokers, mirrors, producer and consumers for the tests, set up once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.sandbox import Kit, copy_kit

_SHARED = pytest.StashKey[Kit]()


@pytest.fixture(scope="session")
def kit(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    """The lab, set up; cleaned up when all tests that share it are done."""
    kit = request.session.stash[_SHARED] = copy_kit(tmp_path_factory.mktemp("lab"), port_base=27000)
    try:
        done = kit.setup()
        assert done.returncode == 0, done.stdout + done.stderr
        yield kit
    finally:
        end_shared_lab(request.session)


@pytest.fixture(scope="module")
def operator_kit(kit: Kit) -> Iterator[Kit]:
    """The shared lab, whose consoles may change it for the tests of one file."""
    done = kit.setup("-e", "console_operator=true")
    assert done.returncode == 0, done.stdout + done.stderr
    yield kit
    done = kit.setup("-e", "console_operator=false")
    assert done.returncode == 0, done.stdout + done.stderr


def end_shared_lab(session: pytest.Session) -> None:
    """Cleans the lab up, if it is there: no test of this session needs it any more."""
    kit = session.stash.get(_SHARED, None)
    if kit is None:
        return
    del session.stash[_SHARED]
    done = kit.run("cleanup")
    assert done.returncode == 0, done.stdout + done.stderr
