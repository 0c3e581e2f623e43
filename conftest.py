"""README.md and the labs are tests, too; pytest asks here, as they lie beside and above tests/."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from scripts.sandbox import forget_bytecode
from tests.conftest import end_shared_lab
from tests.e2e.documents import collector
from tests.e2e.places import DOCUMENTS, terminal  # noqa: F401 - the fixture in which their commands run

_LANES = {
    "labs": ("README.md", "playbooks/", "tests/lab/", "tests/browser/test_console.py"),
    "kubernetes": ("tests/kubernetes/",),
    "spark": ("tests/unit/test_spark_", "tests/unit/test_job_output.py"),
}
"""What shares a lab, API servers or a Spark session, by how its tests' names begin; the longest first."""

pytest_collect_file = collector(DOCUMENTS)


def lane(name: str) -> str:
    """The lane of a test, by its name: one of the shared things, or else its file alone."""
    return next((lane for lane, begins in _LANES.items() if name.startswith(begins)), name.partition("::")[0])


class _Lanes(LoadScopeScheduling):  # type: ignore[misc]
    """Lanes, the long ones first; whichever core is free takes the next, so that none idles before the end.

    Within a lane one test comes after the other, so fixtures of the session, and their ports, stay one of each.
    """

    def _split_scope(self, nodeid: str) -> str:
        return lane(nodeid)


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
    # In the order of the tests, which is that of the lanes; not by how many tests each has.
    config.option.loadscopereorder = False
    return _Lanes(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the lanes in their order, and sees that everything is in the lane of what it shares."""
    for item in items:
        if any(map(item.get_closest_marker, ("lab", "e2e"))) and lane(item.nodeid) != "labs":
            raise pytest.UsageError(f"{item.nodeid}: needs a lab; name its place in conftest.py's _LANES")
        if item.get_closest_marker("spark") and lane(item.nodeid) not in _LANES:
            raise pytest.UsageError(f"{item.nodeid}: needs a Spark session; name its place in conftest.py's _LANES")
    order = {name: rank for rank, name in enumerate(_LANES)}
    items.sort(key=lambda item: order.get(lane(item.nodeid), len(order)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Ends the lab that tests share when its lane ends, because it would slow down what comes next."""
    yield
    if lane(item.nodeid) == "labs" and nextitem is not None and lane(nextitem.nodeid) != "labs":
        end_shared_lab(item.session)
