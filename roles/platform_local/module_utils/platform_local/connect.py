"""The REST interface of a group of Connect workers. The program that looks after mirrors needs no more than this."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import requests

from .errors import PlatformError
from .waiting import wait_for

REST_USER = "operator"


class Rest(NamedTuple):
    """Connect's REST interface, with its credentials."""

    url: str
    password_file: Path
    ca_file: Path

    def get(self, path: str) -> Any:
        """What is there.

        Raises:
            PlatformError: it does not answer, or refuses.
        """
        return self.call("GET", path)

    def call(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        """Sends a request, and again while the worker group is rebalancing.

        Raises:
            PlatformError: it does not answer, or refuses.
        """
        answer: requests.Response | None = None

        def attempt() -> str | None:
            nonlocal answer
            answer = self._request(method, path, body)
            return "the worker group is rebalancing" if answer.status_code == requests.codes.conflict else None

        wait_for(attempt, 60, f"Connect: {method} {path}")
        assert answer is not None
        if not answer.ok:
            raise PlatformError(f"Connect: {method} {path}: {answer.status_code} {answer.text[:500]}")
        return answer.json() if answer.content else None

    def _request(self, method: str, path: str, body: Mapping[str, str] | None) -> requests.Response:
        try:
            with requests.Session() as session:
                session.trust_env = False  # a proxy has no business between a program and its own machine
                return session.request(
                    method,
                    self.url + path,
                    json=body,
                    auth=(REST_USER, self.password_file.read_text()),
                    verify=str(self.ca_file),
                    timeout=15,
                )
        except requests.RequestException as error:
            raise PlatformError(f"Connect at {self.url} does not answer ({type(error).__name__})") from error
