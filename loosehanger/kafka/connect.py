"""The REST interface of a group of Connect workers, and what it says of connectors, tasks and positions.

The program that looks after mirrors needs no more than this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import requests

from loosehanger.errors import UnreachableError
from loosehanger.stack_traces import innermost_cause
from loosehanger.waiting import wait_for

REST_USER = "operator"
_REFUSALS = (requests.codes.unauthorized, requests.codes.forbidden)
_REBALANCING = "the worker group is rebalancing"
_STARTING = "the worker is starting"


class ConnectError(UnreachableError):
    """No worker answers, or Connect refuses."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused
        """Whether the user or the password is wrong."""


class SlowError(ConnectError):
    """No answer came in time."""


class ConnectorPart(NamedTuple):
    """A connector, or a task of one."""

    name: str
    task: int | None
    """None for the connector itself."""
    state: str
    cause: str
    """Why it failed, in one line; empty unless it left a trace."""

    @property
    def label(self) -> str:
        """The connector's name, with the task's number."""
        return self.name if self.task is None else f"{self.name} task {self.task}"


@dataclass(frozen=True)
class ConnectClient:
    """Connect's REST interface, with its credentials."""

    urls: Sequence[str]
    """One for each worker; any of them answers for all."""
    username: str = ""
    """Empty where Connect needs none: on Kubernetes, network policies guard it."""
    password: str = field(default="", repr=False)
    ca_file: Path | None = None
    timeout_s: float = 15
    rebalance_s: float = 60
    """Seconds to repeat a request while the worker group is rebalancing; 0 for never."""
    patient: bool = False
    """Whether to repeat a request whose answer takes too long: a worker that has just started is busy."""

    @classmethod
    def of(cls, access: Mapping[str, str], **options: Any) -> ConnectClient:
        """From a mirror's entry in a region's record: url, and maybe other_urls, username, password_file and ca_file.

        Args:
            access: those.
            options: any of ``timeout_s``, ``rebalance_s`` and ``patient``.
        """
        urls = (access["url"], *access.get("other_urls", "").split())
        if "ca_file" not in access:
            return cls(urls, **options)
        password = Path(access["password_file"]).read_text(encoding="utf-8").strip()
        return cls(urls, access["username"], password, Path(access["ca_file"]), **options)

    def connectors(self) -> dict[str, dict[str, Any]]:
        """Lists every connector by name, with ``info`` and ``status``.

        Raises:
            ConnectError: no worker answers, or Connect refuses.
        """
        found: dict[str, dict[str, Any]] = self.call("GET", "/connectors?expand=info&expand=status")
        # One that is being deleted has only one of them.
        return {name: entry for name, entry in sorted(found.items()) if {"info", "status"} <= set(entry)}

    def statuses(self) -> dict[str, dict[str, Any]]:
        """Lists the status of every connector by name.

        Raises:
            ConnectError: no worker answers, or Connect refuses.
        """
        return {name: entry["status"] for name, entry in self.connectors().items()}

    def status(self, connector: str) -> dict[str, Any] | None:
        """A connector's status; None if there is no such connector.

        Raises:
            ConnectError: no worker answers, or Connect refuses.
        """
        found: dict[str, Any] | None = self._answer("GET", _path(connector, "status"), missing_ok=True)
        return found

    def positions(self, connector: str, alias: str) -> dict[tuple[str, int], int]:
        """Reads the offset of the last record that a source connector copied, by topic and partition.

        Args:
            connector: its name; nothing is known of one that is not there.
            alias: the source's.

        Raises:
            ConnectError: no worker answers, or Connect refuses.
        """
        found = self._answer("GET", _path(connector, "offsets"), missing_ok=True) or {"offsets": ()}
        return {
            (entry["partition"]["topic"], entry["partition"]["partition"]): entry["offset"]["offset"]
            for entry in found["offsets"]
            if entry["partition"].get("cluster") == alias and entry.get("offset")
        }

    def set_positions(self, connector: str, alias: str, positions: Mapping[tuple[str, int], int | None]) -> None:
        """Sets the offsets of a stopped source connector: the last record that it counts as copied.

        Args:
            connector: its name.
            alias: the source's.
            positions: the record's offset by topic and partition; None for a partition to copy from its beginning.

        Raises:
            ConnectError: no worker answers, or Connect refuses, as it does where the connector is not stopped.
        """
        offsets = [
            {
                "partition": {"cluster": alias, "topic": topic, "partition": partition},
                "offset": None if offset is None else {"offset": offset},
            }
            for (topic, partition), offset in positions.items()
        ]
        if offsets:
            self.call("PATCH", _path(connector, "offsets"), {"offsets": offsets})

    def act(self, connector: str, action: str) -> None:
        """Pauses, stops or resumes a connector, or restarts it, with its tasks.

        Raises:
            ConnectError: no worker answers, or Connect refuses.
        """
        if action == "restart":
            self.call("POST", _path(connector, "restart?includeTasks=true"))
        else:
            self.call("PUT", _path(connector, action))

    def restart_failed(self, connector: str) -> None:
        """Restarts a connector's failed parts.

        Raises:
            ConnectError: no worker answers, or Connect refuses.
        """
        self.call("POST", _path(connector, "restart?includeTasks=true&onlyFailed=true"))

    def configure(self, connector: str, configuration: Mapping[str, str]) -> None:
        """Creates a connector, or changes its configuration.

        Raises:
            ConnectError: no worker answers, or Connect refuses.
        """
        self.call("PUT", _path(connector, "config"), configuration)

    def objections(self, configuration: Mapping[str, str]) -> list[str]:
        """Validates a connector's configuration: a sentence for each setting that Connect would refuse.

        Raises:
            ConnectError: no worker answers.
        """
        plugin = quote(configuration["connector.class"], safe="")
        answer = self.call("PUT", f"/connector-plugins/{plugin}/config/validate", configuration)
        return [
            f"{entry['value']['name']}: {error}" for entry in answer["configs"] for error in entry["value"]["errors"]
        ]

    def described_settings(self, plugin: str) -> list[dict[str, Any]]:
        """Lists the settings that a plugin describes, each with its name, type, default and documentation.

        Args:
            plugin: a connector's class.

        Raises:
            ConnectError: no worker answers, or Connect refuses.
        """
        path = f"/connector-plugins/{quote(plugin, safe='')}/config"
        found: list[dict[str, Any]] = self._answer("GET", path, missing_ok=True) or []
        return found

    def make_stopped(self, connector: str, configuration: Mapping[str, str]) -> None:
        """Creates a connector in the state STOPPED, so that it never runs before it is resumed.

        Raises:
            ConnectError: no worker answers, or Connect refuses.
        """
        body = {"name": connector, "config": configuration, "initial_state": "STOPPED"}
        self.call("POST", "/connectors", body)

    def delete(self, connector: str) -> None:
        """Deletes a connector.

        Raises:
            ConnectError: no worker answers, or Connect refuses.
        """
        self.call("DELETE", _path(connector))

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Sends a request, and again while the worker is starting or its group is rebalancing.

        Raises:
            ConnectError: no worker answers, or Connect refuses.
        """
        return self._answer(method, path, body)

    def _answer(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, missing_ok: bool = False
    ) -> Any:
        answer: requests.Response | None = None

        def attempt() -> str | None:
            nonlocal answer
            try:
                answer = self._request(method, path, body)
            except SlowError as error:
                if not self.patient:
                    raise
                return str(error)
            return _not_ready(answer) if self.rebalance_s else None

        # Every request of the kit may be sent twice.
        wait_for(attempt, self.rebalance_s, f"Connect: {method} {path}")
        assert answer is not None
        if why := _not_ready(answer):
            raise ConnectError(f"Connect: {method} {path}: {why}; try again in a moment")
        if missing_ok and answer.status_code == requests.codes.not_found:
            return None
        if _is_there_already(answer):
            return None  # The first attempt created it.
        if not answer.ok:
            message = f"Connect: {method} {path}: {answer.status_code} {_said(answer)}"
            raise ConnectError(message, refused=answer.status_code in _REFUSALS)
        try:
            return answer.json() if answer.content else None
        except requests.JSONDecodeError as error:
            raise ConnectError(f"Connect: {method} {path}: the answer is not JSON") from error

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> requests.Response:
        """Sends a request to one worker after the other until one answers."""
        last: Exception | None = None
        for url in self.urls:
            try:
                return self._session.request(
                    method,
                    url.rstrip("/") + path,
                    json=body,
                    auth=(self.username, self.password) if self.username else None,
                    verify=str(self.ca_file) if self.ca_file else True,
                    timeout=self.timeout_s,
                )
            except (requests.RequestException, OSError) as error:
                last = error
        kind = SlowError if isinstance(last, requests.Timeout) else ConnectError
        raise kind(f"no Connect worker answers at {', '.join(self.urls)} ({type(last).__name__})") from last

    @cached_property
    def _session(self) -> requests.Session:
        session = requests.Session()
        # The environment's proxies and .netrc do not apply between the lab's own processes.
        session.trust_env = False
        return session


def parts(name: str, status: Mapping[str, Any]) -> Iterator[ConnectorPart]:
    """A connector, and then its tasks.

    Args:
        name: the connector's.
        status: as Connect or an operator reports it, with ``connector`` and maybe ``tasks``.
    """
    connector = status["connector"]
    yield ConnectorPart(name, None, connector["state"], innermost_cause(connector.get("trace")))
    for task in status.get("tasks") or ():
        yield ConnectorPart(name, task.get("id"), task["state"], innermost_cause(task.get("trace")))


def _not_ready(answer: requests.Response) -> str | None:
    """Why a worker cannot answer yet; None if it has answered.

    Its web server answers before Connect does, with a 404 page for browsers.
    """
    if answer.status_code == requests.codes.conflict and not _is_there_already(answer):
        return _REBALANCING
    is_page = answer.status_code == requests.codes.not_found and answer.text.lstrip().startswith("<")
    return _STARTING if is_page else None


def _said(answer: requests.Response) -> str:
    """Connect's reason for a request that failed."""
    try:
        said = answer.json()["message"]
    except (requests.JSONDecodeError, KeyError, TypeError):
        said = answer.reason if "<" in answer.text else answer.text
    return " ".join(str(said)[:500].split())


def _is_there_already(answer: requests.Response) -> bool:
    """Whether a connector of that name exists already: Connect answers with the code that also means a rebalance."""
    return answer.status_code == requests.codes.conflict and "already exists" in answer.text


def _path(connector: str, what: str = "") -> str:
    return f"/connectors/{quote(connector, safe='')}" + (f"/{what}" if what else "")
