"""Shares a learner's progress with the room that they have joined: off by default, and never in the way of an exercise.

A report has the learner's exercises with their states, and the name that the learner gave, if any. It has no name of
the machine or its user, and no document of the lab.
"""

from __future__ import annotations

import http.client
import json
import secrets
import ssl
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loosehanger.errors import LabError, WrongUseError
from loosehanger.files import write_file
from loosehanger.learn.invitation import RoomAddress, read_room_url
from loosehanger.learn.progress import Learner

FILE = "learn-report.json"
PATIENCE_S = 3.0
"""How long a collector may take to answer; the learner waits meanwhile."""
MOST_NAME, MOST_SAID = 40, 300
MOST_ANSWER = 4096


@dataclass(frozen=True)
class JoinedRoom:
    """The content of the file: the room that a learner reports to."""

    url: str
    """With the join code."""
    learner: str
    """A random id, so that all reports of one machine are one line of the page."""
    name: str = ""
    """As the learner gave it; empty for none."""


def read_joined(home: Path) -> JoinedRoom | None:
    """Returns the room that was joined; None if there is none.

    Raises:
        WrongUseError: the file cannot be used.
    """
    path = home / FILE
    try:
        return JoinedRoom(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise WrongUseError(f"{path} cannot be read; delete the file, and join the room again") from error


def join(home: Path, url: str, name: str, learner: Learner) -> JoinedRoom:
    """Joins a room, and sends the first report.

    Raises:
        WrongUseError: the address or the name cannot be used.
        LabError: the room does not answer or does not know the code; nothing was changed.
    """
    name = " ".join(name.split())
    if len(name) > MOST_NAME or not name.isprintable():
        raise WrongUseError(f"--name: give at most {MOST_NAME} printable characters")
    read_room_url(url)
    before = read_joined(home)
    room = JoinedRoom(url, before.learner if before else secrets.token_hex(16), name or (before.name if before else ""))
    send(room, learner)
    write_file(home / FILE, json.dumps(asdict(room), indent=1) + "\n")
    return room


def leave(home: Path) -> bool:
    """Stops reporting; False if no room was joined."""
    path = home / FILE
    if not path.exists():
        return False
    path.unlink()
    return True


def report_of(room: JoinedRoom, learner: Learner, now: float) -> dict[str, Any]:
    """Returns what is sent: all of a learner's progress, so that a lost report does not matter."""
    exercises = [
        {
            "id": name,
            "state": step.state,
            "checks": min(step.checks, 9999),
            "hints": min(step.hints, 99),
            "minutes": max(0, round(((step.done or now) - step.started) / 60)) if step.started else None,
            "said": "" if step.done else step.said[:MOST_SAID],
        }
        for name, step in learner.steps.items()
        if step.state != "open" or step.checks or step.hints
    ]
    return {"learner": room.learner, "name": room.name, "current": learner.current, "exercises": exercises[-200:]}


def send(room: JoinedRoom, learner: Learner) -> None:
    """Sends a report to the room, over TLS to the certificate that the join code names.

    Raises:
        WrongUseError: the room's address cannot be used.
        LabError: the room does not answer, or refuses the report.
    """
    address = read_room_url(room.url)
    where = f"{address.host}:{address.port}"
    body = json.dumps(report_of(room, learner, time.time())).encode()
    headers = {"Authorization": f"Bearer {address.invitation.secret.hex()}", "Content-Type": "application/json"}
    try:
        status, answer = _post(address, body, headers)
    except (OSError, http.client.HTTPException) as error:
        raise LabError(f"the room at {where} does not answer ({error or type(error).__name__})") from error
    if status != 200:
        reason = str(answer.get("detail", ""))[:200] or f"status {status}"
        raise LabError(f"the room at {where} refused the report: {reason}")


def _post(address: RoomAddress, body: bytes, headers: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # The join code identifies the certificate itself: an authority and a host name would add nothing.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(address.host, address.port, timeout=PATIENCE_S, context=context)
    try:
        connection.connect()
        assert isinstance(connection.sock, ssl.SSLSocket)
        if not address.invitation.recognises(connection.sock.getpeercert(binary_form=True)):
            raise LabError(
                f"{address.host}:{address.port} is not the room of this join code: it has another certificate; "
                "nothing was sent"
            )
        connection.request("POST", "/report", body, dict(headers))
        answer = connection.getresponse()
        text = answer.read(MOST_ANSWER)
    finally:
        connection.close()
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    return answer.status, document if isinstance(document, dict) else {}
