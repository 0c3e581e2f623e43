"""A real Prometheus and Alertmanager beside a lab, with the lab's configuration, for tests and benchmarks."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import requests

from loosehanger.errors import LabError
from loosehanger.ports import free_ports
from scripts.sandbox import Kit

PROGRAMS = ("prometheus", "prometheus-alertmanager")
INSTALLED = all(map(shutil.which, PROGRAMS))
NOT_INSTALLED = f"{' and '.join(PROGRAMS)} are not both installed"
_FOLLOWED = ("token", "targets")
"""The files that change with the lab."""
_READY_S = 60.0
_LOOK_S = 0.2


@dataclass(frozen=True)
class Notification:
    """A notification that Alertmanager sent to the receiver: an alert is firing, or it is resolved."""

    at: float
    """When, on the monotonic clock."""
    alert: str
    firing: bool
    labels: Mapping[str, str]


@dataclass
class Monitoring:
    """Prometheus, Alertmanager, and the receiver of a test."""

    folder: Path
    """The configuration: a copy of the lab's, with links to its token and its targets, which change."""
    prometheus: str
    alertmanager: str
    notices: list[Notification] = field(default_factory=list)
    acknowledged: set[str] = field(default_factory=set)
    """The alerts that were silenced: that of a loss is never resolved."""

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Evaluates an expression; returns its samples.

        Raises:
            LabError: Prometheus refuses the expression.
        """
        answer = requests.get(f"{self.prometheus}/api/v1/query", params={"query": expression}, timeout=30).json()
        if answer["status"] != "success":
            raise LabError(f"{expression}: {answer.get('error')}")
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def fired(self, seconds: float) -> set[str]:
        """Returns the alerts that fired at any time within the last seconds."""
        expression = f'count by (alertname) (count_over_time(ALERTS{{alertstate="firing"}}[{seconds:.0f}s]))'
        return {sample["metric"]["alertname"] for sample in self.query(expression)}

    def wait_for(self, alert: str, *, firing: bool, since: float, bound: float, **labels: str) -> float:
        """Waits until the receiver is notified that an alert is firing, or that it is resolved.

        Args:
            alert: its name.
            firing: whether it must be firing; otherwise it must be resolved.
            since: a moment of the monotonic clock; earlier notifications do not count.
            bound: seconds after which waiting fails.
            labels: labels that the alert must have.

        Returns:
            The seconds from that moment until the notification arrived.

        Raises:
            LabError: it did not arrive in time.
        """
        deadline = since + bound
        while True:
            for notice in tuple(self.notices):
                if (
                    (notice.alert, notice.firing) == (alert, firing)
                    and notice.at >= since
                    and labels.items() <= notice.labels.items()
                ):
                    return notice.at - since
            what = "fired" if firing else "been resolved"
            if time.monotonic() > deadline:
                raise LabError(f"{alert} {labels} has not {what} within {bound:.0f} s: {self.now()}")
            time.sleep(_LOOK_S)

    def now(self) -> list[str]:
        """Returns the alerts that are firing or pending, except those that were acknowledged."""
        metrics = [sample["metric"] for sample in self.query("ALERTS")]
        return [json.dumps(one, sort_keys=True) for one in metrics if one["alertname"] not in self.acknowledged]

    def silence(self, alert: str) -> None:
        """Acknowledges an alert: a silence of an hour in Alertmanager."""
        now = time.time()
        begun, ends = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now + after)) for after in (-1, 3600))
        document = {
            "matchers": [{"name": "alertname", "value": alert, "isRegex": False, "isEqual": True}],
            "startsAt": begun,
            "endsAt": ends,
            "createdBy": "a test",
            "comment": "acknowledged",
        }
        requests.post(f"{self.alertmanager}/api/v2/silences", json=document, timeout=30).raise_for_status()
        self.acknowledged.add(alert)

    def suppressed(self, alert: str) -> list[bool]:
        """Returns whether it is silenced, for each active alert of this name."""
        found = requests.get(f"{self.alertmanager}/api/v2/alerts", timeout=30).json()
        return [one["status"]["state"] == "suppressed" for one in found if one["labels"]["alertname"] == alert]


@contextmanager
def monitoring(kit: Kit, folder: Path) -> Iterator[Monitoring]:
    """Starts Prometheus and Alertmanager for a lab, on free ports of the loopback interface.

    Args:
        kit: a kit whose lab is set up. It may be cleaned up and set up again meanwhile.
        folder: where to keep their configuration and data; a folder that does not exist.

    Raises:
        LabError: a program is not installed, or does not start.
    """
    if not INSTALLED:
        raise LabError(NOT_INSTALLED)
    done = kit.run("monitoring", "--json")
    if done.returncode:
        raise LabError(done.stderr.strip())
    made = Path(json.loads(done.stdout)["folder"])
    shutil.copytree(made, folder, ignore=shutil.ignore_patterns(*_FOLLOWED))
    for name in _FOLLOWED:
        (folder / name).symlink_to(made / name)
    ports = free_ports(2)
    addresses = [f"http://127.0.0.1:{port}" for port in ports]
    found = Monitoring(folder, addresses[0], addresses[1])
    receiver = _receiver(found.notices)
    _change(folder / "alertmanager.yml", "http://127.0.0.1:9099/", f"http://127.0.0.1:{receiver.server_port}/")
    _change(folder / "prometheus.yml", "127.0.0.1:9093", f"127.0.0.1:{ports[1]}")
    commands = {
        found.prometheus: [
            *("prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"),
            f"--web.listen-address=127.0.0.1:{ports[0]}",
        ],
        found.alertmanager: [
            *("prometheus-alertmanager", f"--config.file={folder / 'alertmanager.yml'}"),
            *(f"--storage.path={folder / 'alerts'}", f"--web.listen-address=127.0.0.1:{ports[1]}"),
            "--cluster.listen-address=",
        ],
    }
    with ExitStack() as stack:
        thread = threading.Thread(target=receiver.serve_forever)
        thread.start()
        stack.callback(thread.join)
        stack.callback(receiver.server_close)
        stack.callback(receiver.shutdown)
        for address, command in commands.items():
            log = stack.enter_context((folder / f"{command[0]}.log").open("wb"))
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            stack.callback(_stop, process)
            _wait_ready(address, process, Path(log.name))
        yield found


def _change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise LabError(f"{path}: expected {old} exactly once, and found it {text.count(old)} times")
    path.write_text(text.replace(old, new), encoding="utf-8")


def _receiver(notices: list[Notification]) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            at = time.monotonic()
            for one in body["alerts"]:
                labels = dict(one["labels"])
                notices.append(Notification(at, labels.pop("alertname"), one["status"] == "firing", labels))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


def _wait_ready(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _READY_S
    while True:
        try:
            if requests.get(f"{address}/-/ready", timeout=5).ok:
                return
        except requests.RequestException:
            pass
        if process.poll() is not None or time.monotonic() > deadline:
            raise LabError(f"{address} is not ready: {log.read_text(encoding='utf-8')}")
        time.sleep(_LOOK_S)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout=20)
