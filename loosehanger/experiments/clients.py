"""Starts the process of an experiment's clients and sends it commands: see ``client``."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import asdict
from queue import Empty, SimpleQueue
from typing import Any

from loosehanger.errors import LabError
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.links import CLIENT

NAME = "experiment"
"""The name by which links recognise an experiment's clients."""
_ANSWER_S = 60


class ClientProcess:
    """A process with clients; leaving the context kills it."""

    def __init__(self) -> None:
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 (closed with the process)
        # In a session of its own, so that Ctrl-C reaches only this process, which then kills that one.
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "loosehanger.experiments.client"],
            env={**os.environ, CLIENT: NAME},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            start_new_session=True,
        )
        self._answers: SimpleQueue[str] = SimpleQueue()
        self._taking = threading.Thread(target=self._take, daemon=True)
        self._taking.start()

    def _take(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def send(self, do: str, **wanted: Any) -> None:
        """Sends a command, whose answer must be taken."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, **wanted}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise self._gone() from error

    def answer(self, bound: float = _ANSWER_S) -> Any:
        """The answer to the oldest command that has none yet.

        Args:
            bound: seconds to wait at most.

        Raises:
            LabError: the command failed, or has no answer.
        """
        try:
            line = self._answers.get(timeout=bound)
        except Empty as error:
            raise LabError(f"the experiment's clients did not answer within {bound:.0f} seconds") from error
        if not line:
            raise self._gone()
        answer = json.loads(line)
        if "error" in answer:
            raise LabError(f"the experiment's clients: {answer['error']}")
        return answer

    def ask(self, do: str, **wanted: Any) -> Any:
        """Sends a command and returns its answer."""
        self.send(do, **wanted)
        return self.answer()

    def _gone(self) -> LabError:
        self._said.seek(0)
        last = self._said.read().strip().splitlines()[-1:]
        return LabError(f"the experiment's clients ended: {''.join(last) or 'they did not say why'}")

    def __enter__(self) -> ClientProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._taking.join()
        for stream in (self.process.stdin, self.process.stdout, self._said):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def access(connection: Connection) -> Mapping[str, Any]:
    """A connection as a command carries it, over a pipe that only this process writes."""
    return {
        "bootstrap_servers": list(connection.bootstrap_servers),
        "security_protocol": connection.security_protocol,
        "sasl_mechanism": connection.sasl_mechanism,
        "username": connection.username,
        "password": connection.password,
        "ca_file": str(connection.ca_file) if connection.ca_file else None,
        "certificate": asdict(connection.certificate) if connection.certificate else None,
    }
