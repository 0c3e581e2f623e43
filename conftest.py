"""README.md and the labs are tests, too; pytest asks here, as they lie beside and above tests/."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from scripts.sandbox import forget_bytecode
from tests.e2e.documents import collector
from tests.e2e.places import DOCUMENTS, terminal  # noqa: F401 - the fixture in which their commands run

_LABS = ("README.md", "playbooks/", "tests/lab/", "tests/browser/test_console.py")

pytest_collect_file = collector(DOCUMENTS)


class _Lanes(LoadScopeScheduling):  # type: ignore[misc]
    """Labs in one lane, everything else in the other: with two cores, one waits for brokers while the other computes.

    Within a lane one test comes after the other, so fixtures of the session, and their ports, stay one of each.
    """

    def _split_scope(self, nodeid: str) -> str:
        return "labs" if nodeid.startswith(_LABS) else "everything else"


def pytest_configure() -> None:
    """Takes Ctrl-C, which a shell has ignored by what it starts in the background: tests send it, and would wait."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _bytecode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Leaves none of the copies' bytecode, which is kept with that of the installation."""
    yield
    forget_bytecode(tmp_path_factory.getbasetemp())


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _Lanes:
    """Called for ``-n 2``."""
    return _Lanes(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sees that what needs a lab is in the lane of labs."""
    for item in items:
        needs_lab = item.get_closest_marker("lab") or item.get_closest_marker("e2e")
        if needs_lab and not item.nodeid.startswith(_LABS):
            raise pytest.UsageError(f"{item.nodeid}: needs a lab; name its place in conftest.py's _LABS")
