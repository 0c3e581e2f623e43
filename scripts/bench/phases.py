"""Runs ``mirrorproof prove`` in this Python, and writes the seconds of each of its steps and the requests that it sent.

    FOLDER/.lab/venv/bin/python scripts/bench/phases.py OUTPUT prove --config FILE …

It is a program of its own, so that it can also run in the environment of another checkout.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import resource
import runpy
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

JOB = "loosehanger.mirrorproof.flows_job"
_STEPS = (
    ("loosehanger.proof.flow_finder", "FlowFinder", "refuse_the_same_cluster"),
    ("loosehanger.proof.flow_finder", "FlowFinder", "find_flows"),
    ("loosehanger.proof.flow_finder", "FlowFinder", "leave_out_other_names"),
    ("loosehanger.proof.proof", "Proof", "_records"),
    ("loosehanger.proof.cuts", "Cuts", "freeze"),
    ("loosehanger.kafka.cluster", "Cluster", "last_records"),
    ("loosehanger.proof.cuts", "Cuts", "wait_for_mirrors"),
    ("loosehanger.proof.flow_finder", "FlowFinder", "find_hidden_topics"),
    ("loosehanger.proof.flow_finder", "FlowFinder", "find_topics_only_at_a_target"),
    ("loosehanger.proof.flow_comparer", "FlowComparer", "_freeze"),
    ("loosehanger.proof.snapshot", "OffsetSnapshot", "fetch"),
    ("loosehanger.proof.compare.comparison", "Comparison", "__init__"),
    ("loosehanger.proof.compare.comparison", "Comparison", "_read"),
    ("loosehanger.proof.compare.comparison", "Comparison", "_partitions"),
    ("loosehanger.proof.compare.comparison", "Comparison", "_behind"),
    ("loosehanger.proof.compare.comparison", "Comparison", "run"),
    ("loosehanger.proof.flow_comparer", "FlowComparer", "_look_at_offsets"),
    ("loosehanger.proof.flow_comparer", "FlowComparer", "compare_all"),
    ("loosehanger.proof.settings_comparer", "SettingsComparer", "_compare"),
    ("loosehanger.proof.settings_comparer", "SettingsComparer", "collect"),
    ("loosehanger.proof.proof", "Proof", "_finish_sampling"),
    ("loosehanger.proof.proof", "Proof", "run"),
)
"""Module, class and method; those that another version does not have are skipped."""


def main() -> None:
    """Runs the command; its second process, which makes the proof, measures itself."""
    if sys.argv[1] == "--inside":
        output, sys.argv = sys.argv[2], [JOB, *sys.argv[3:]]
        _measure(output)
        runpy.run_module(JOB, run_name="__main__", alter_sys=True)
        return
    output, arguments = sys.argv[1], sys.argv[2:]
    become = os.execve

    def measured(program: str, command: list[str], environment: dict[str, str]) -> None:
        # Absolute, for the job may run in another folder.
        become(program, [program, "-P", str(Path(__file__).absolute()), "--inside", output, *command[4:]], environment)

    os.execve = measured  # type: ignore[assignment]
    command_line = import_module("loosehanger.mirrorproof.command_line")
    sys.exit(command_line.main(arguments))


def _measure(output: str) -> None:
    output = str(Path(output).absolute())
    began = time.monotonic()
    steps: dict[str, dict[str, Any]] = {}
    requests: Counter[str] = Counter()
    lock = threading.Lock()

    def processor() -> float:
        """Returns the processor time of this process and of Java, other threads' steps included."""
        seconds = time.process_time()
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                seconds += sum(child.cpu_times()[:2])
        return seconds

    def timed(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            start, used = time.monotonic(), processor()
            try:
                return method(*arguments, **options)
            finally:
                now, spent = time.monotonic(), processor() - used
                with lock:
                    step = steps.setdefault(name, {"at": round(start - began, 2), "s": 0.0, "cpu_s": 0.0, "n": 0})
                    step["s"] += now - start
                    step["cpu_s"] += spent
                    step["n"] += 1

        return run

    for module, owner, name in _STEPS:
        try:
            found = getattr(import_module(module), owner)
            setattr(found, name, timed(f"{owner}.{name}", getattr(found, name)))
        except (ImportError, AttributeError):
            continue
    manager = import_module("kafka.net.manager").KafkaConnectionManager
    send = manager.send

    def counted(self: Any, request: Any, *arguments: Any, **options: Any) -> Any:
        with lock:
            requests[type(request).__name__] += 1
        return send(self, request, *arguments, **options)

    manager.send = counted

    def write() -> None:
        own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        found = {
            "seconds": time.monotonic() - began,
            "python_cpu_s": own.ru_utime + own.ru_stime,
            "children_cpu_s": children.ru_utime + children.ru_stime,
            "steps": steps,
            "requests": requests,
        }
        with Path(output).open("w", encoding="utf-8") as file:
            json.dump(found, file)

    atexit.register(write)


if __name__ == "__main__":
    main()
