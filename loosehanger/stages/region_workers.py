"""A process for each region, in which its platform works while the others do.

What a platform uses is not made for threads: the local one changes its working directory to reach a socket, and
Kubernetes' discovery of kinds sets the time-out of all new sockets. A forked process has its own of both.
"""

from __future__ import annotations

import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from loosehanger.errors import LabError, WrongUseError

_ANSWER, _REFUSED, _FAILED, _DEFECT = "answer", "refused", "failed", "defect"
Task = TypeVar("Task")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Done(Generic[Answer]):
    """What a region answered to a task, or why it failed."""

    region: str
    seconds: float
    answer: Answer | None = None
    error: LabError | None = None


class RegionWorkers(Generic[Task, Answer]):
    """The workers of some regions; made by ``region_workers``."""

    def __init__(self, connections: Mapping[str, Connection]) -> None:
        self._regions = {connection: region for region, connection in connections.items()}

    def run(self, task: Task) -> Iterator[Done[Answer]]:
        """Gives every region a task; returns what each answers, as soon as it does.

        Raises:
            RuntimeError: the work failed for another reason than a LabError; the message has the traceback.
        """
        for connection in self._regions:
            connection.send(task)
        return self._answers(time.monotonic())

    def _answers(self, began: float) -> Iterator[Done[Answer]]:
        waiting, defects = dict(self._regions), []
        while waiting:
            for ready in wait(list(waiting)):
                assert isinstance(ready, Connection)
                region = waiting.pop(ready)
                kind, value = _received(region, ready)
                seconds = time.monotonic() - began
                if kind == _DEFECT:
                    defects.append(f"{region}: {value}")
                elif kind == _ANSWER:
                    yield Done(region, seconds, answer=value)
                else:
                    error = (WrongUseError if kind == _REFUSED else LabError)(value)
                    yield Done(region, seconds, error=error)
        if defects:
            raise RuntimeError("\n".join(defects))


@contextmanager
def region_workers(
    regions: Sequence[str], work: Callable[[str, Task], Answer]
) -> Iterator[RegionWorkers[Task, Answer]]:
    """Starts a worker for each region; they end with the block.

    Args:
        regions: their names.
        work: does a task for a region, in the region's process; the answer is pickled.
    """
    fork = get_context("fork")
    connections: dict[str, Connection] = {}
    processes = []
    for region in regions:
        here, there = fork.Pipe()
        process = fork.Process(target=_serve, args=(region, there, [here, *connections.values()], work))
        process.start()
        there.close()
        connections[region] = here
        processes.append(process)
    try:
        yield RegionWorkers(connections)
    except BaseException:
        for process in processes:
            process.terminate()
        raise
    finally:
        # A worker ends when the other end of its pipe is closed.
        for connection in connections.values():
            connection.close()
        for process in processes:
            process.join()


def _serve(
    region: str, connection: Connection, of_parent: Sequence[Connection], work: Callable[[str, Any], Any]
) -> None:
    """Does tasks until the parent closes its end."""
    # Ansible's handlers, which are inherited, work in its own processes only.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    # As long as a worker holds another's end open, that one does not see the parent close it.
    for other in of_parent:
        other.close()
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        try:
            answer = (_ANSWER, work(region, task))
        except WrongUseError as error:
            answer = (_REFUSED, str(error))
        except LabError as error:
            answer = (_FAILED, str(error))
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            answer = (_FAILED, f"{region}{where}: {error.strerror or error}")
        except Exception:
            answer = (_DEFECT, traceback.format_exc())
        connection.send(answer)


def _received(region: str, connection: Connection) -> tuple[str, Any]:
    try:
        kind, value = connection.recv()
    except (EOFError, ConnectionError):
        return _FAILED, f"{region}: the process that worked on it was killed; run it again"
    return str(kind), value
