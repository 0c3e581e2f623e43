"""``mirrorproof demo``: two brokers of its own, a copier that makes a mistake, and the proof that finds it."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from loosehanger.arguments import Parser
from loosehanger.errors import ExitCode, LabError
from loosehanger.paths import caller_path

if TYPE_CHECKING:
    from loosehanger.mirrorproof.demo_broker import DemoBroker
    from loosehanger.mirrorproof.demo_copier import Mistake

MISTAKES = ("lost", "changed", "doubled")
_CLUSTER_IDS = ("bWlycm9ycHJvb2ZfX29sZA", "bWlycm9ycHJvb2ZfX25ldw")
_SOURCE, _TARGET = "old", "new"
_PROOF_S = 120.0
"""A bound for one command, which takes some 15 s."""
_WAIT_S = 5
"""How long a proof waits for records that are missing."""


def add_options(parser: Parser) -> None:
    """Adds the copier's mistake, the brokers' Kafka, and whether they stay."""
    parser.add_argument("--mistake", choices=MISTAKES, default=MISTAKES[0], help="of the copier; default %(default)s")
    parser.add_argument(
        "--keep", action="store_true", help="only start the brokers, with records to try commands on, until Ctrl-C"
    )
    parser.add_argument(
        "--kafka",
        type=caller_path,
        metavar="FOLDER",
        help="an installation of Kafka 4 to take the brokers from; else 42 MB of jars are fetched once",
    )


def run(options: argparse.Namespace) -> int:
    """Runs the demo; everything that it starts and writes is gone afterwards.

    Raises:
        LabError: Spark, Java or Kafka is missing, a broker does not start, or a proof reports what it should not.
    """
    from loosehanger.mirrorproof.demo_broker import DemoBroker, broker_jars  # slow to import
    from loosehanger.mirrorproof.demo_copier import EXPECTED, copy, write_records
    from loosehanger.mirrorproof.spark import find_java, find_spark

    java = find_java()
    find_spark()  # Before anything is fetched.
    jars = broker_jars(options.kafka)
    mistake: Mistake = options.mistake
    with _ending_on_signals(), tempfile.TemporaryDirectory(prefix="mirrorproof-demo-") as text:
        folder = Path(text)
        _say(f"Starting two brokers, {_SOURCE} and {_TARGET}, on 127.0.0.1")
        source, target = brokers = [DemoBroker(name, folder, java, jars) for name in (_SOURCE, _TARGET)]
        try:
            _start(brokers)
            written = write_records(source.connection)
            counts = " and ".join(f"{count:,} records to {topic}" for topic, count in written.items())
            _say(f"Wrote {counts} at {source.name}, and copied them to {target.name}; the copier {EXPECTED[mistake]}")
            copy(source.connection, target.connection, mistake)
            if options.keep:
                _keep(folder)
            _show(folder, source, target)
        finally:
            # A second Ctrl-C must not leave half of it behind.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            for broker in brokers:
                broker.stop()
    _say("The brokers are stopped, and their files are removed.")
    return ExitCode.DONE


def _start(brokers: Sequence[DemoBroker]) -> None:
    """Starts both brokers before it waits for the first."""
    for broker, cluster_id in zip(brokers, _CLUSTER_IDS, strict=True):
        broker.start(cluster_id)
    for broker in brokers:
        broker.wait()


def _show(folder: Path, source: DemoBroker, target: DemoBroker) -> None:
    from loosehanger.mirrorproof.demo_copier import TOPICS, copy, remove_copies

    clusters = [source.properties.name, target.properties.name]
    proof = ["prove", *clusters, "--topics", ",".join(TOPICS), "--timeout", str(_WAIT_S)]
    _command(folder, ["doctor", *clusters], "can a proof run?", ExitCode.DONE)
    _command(folder, proof, "did everything arrive? It must be disproved", ExitCode.FAILED)
    _say("Deleted the copies, and copied again without the mistake")
    remove_copies(target.connection)
    copy(source.connection, target.connection, None)
    _command(folder, proof, "and now? It must be proved", ExitCode.DONE)


def _command(folder: Path, arguments: list[str], question: str, expected: ExitCode) -> None:
    """Shows a command and runs it.

    Raises:
        LabError: its exit code is not the expected one.
    """
    print(f"\n$ mirrorproof {shlex.join(arguments)}    # {question}", flush=True)
    program = [sys.executable, "-P", "-m", "loosehanger.mirrorproof.command_line", *arguments]
    child = subprocess.Popen(program, cwd=folder, stdin=subprocess.DEVNULL, env=os.environ | {"LAB_CALLED_FROM": ""})
    try:
        code = child.wait(_PROOF_S)
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{arguments[0]}: no result within {_PROOF_S:.0f} s") from error
    finally:
        if child.poll() is None:
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(10)
            child.kill()
            child.wait()
    print(f"exit code {code}", flush=True)
    if code != expected:
        raise LabError(f"{arguments[0]} returned {code} in place of {int(expected)}; see above")


def _keep(folder: Path) -> NoReturn:
    from loosehanger.mirrorproof.demo_copier import WHOLE

    clusters = " ".join(shlex.quote(str(folder / f"{name}.properties")) for name in (_SOURCE, _TARGET))
    print(
        f"\nTry, in another terminal:\n"
        f"  mirrorproof doctor {clusters}\n"
        f"  mirrorproof prove {clusters} --timeout {_WAIT_S}        # disproved\n"
        f"  mirrorproof prove {clusters} --topics {WHOLE}     # proved\n\n"
        "Ctrl-C stops the brokers, and removes their files.",
        flush=True,
    )
    threading.Event().wait()
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(f"\n{text}", flush=True)


@contextlib.contextmanager
def _ending_on_signals() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP end the demo as Ctrl-C does, so that nothing is left behind."""

    def end(number: int, _: Any) -> None:
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
