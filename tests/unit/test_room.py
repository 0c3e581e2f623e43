"""A room's progress: what a learner shares, over real TLS and real sockets, and what an intruder gets from it."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import requests
import urllib3

from loosehanger.cli import learn
from loosehanger.cli.command_line import COMMANDS
from loosehanger.console.__main__ import listen
from loosehanger.errors import LabError, WrongUseError
from loosehanger.learn.invitation import Invitation, read_code, read_room_url
from loosehanger.learn.progress import Attempt, Learner
from loosehanger.learn.reporting import MOST_NAME, JoinedRoom, join, leave, read_joined, report_of, send
from loosehanger.paths import ROOT
from loosehanger.room.collector import MOST_BODY
from loosehanger.room.credentials import RoomCredentials, room_credentials
from loosehanger.room.reports import MOST_LEARNERS, FullError, LearnerReport, Room, TooSoonError
from loosehanger.room.server import PORT, RoomServer, read_address
from tests.consoles import HOSTILE

ID = "0123456789abcdef" * 2


@dataclass
class RunningRoom:
    """A collector that is running."""

    port: int
    credentials: RoomCredentials
    room: Room

    @property
    def url(self) -> str:
        """What a learner types."""
        return f"https://127.0.0.1:{self.port}/{self.credentials.invitation.code}"

    def request(self, method: str, path: str, **more: Any) -> requests.Response:
        """A request over TLS, as from any client."""
        with requests.Session() as session:
            session.trust_env = False
            return session.request(
                method, f"https://127.0.0.1:{self.port}{path}", timeout=20,
                **{"verify": str(self.credentials.certificate), **more},
            )  # fmt: skip

    def report(self, document: Any, code: str = "", **more: Any) -> requests.Response:
        """A report, as an intruder may write it."""
        secret = code or self.credentials.invitation.secret.hex()
        data = document if isinstance(document, bytes) else json.dumps(document).encode()
        return self.request("POST", "/report", data=data, headers={"Authorization": f"Bearer {secret}"}, **more)

    def page(self, password: str = "") -> requests.Response:
        """The page of the trainer."""
        return self.request("GET", "/", auth=("room", password or self.credentials.password))


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> RoomCredentials:
    """Those of a room."""
    return room_credentials(tmp_path_factory.mktemp("front"), "127.0.0.1")


@pytest.fixture
def room(credentials: RoomCredentials) -> Iterator[RunningRoom]:
    """A room on a port of its own."""
    listener = listen("127.0.0.1", 0)
    room = Room()
    server = RoomServer(credentials, room)
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]), daemon=True)
    thread.start()
    yield RunningRoom(listener.getsockname()[1], credentials, room)
    server.stop()
    thread.join(timeout=15)
    listener.close()
    assert not thread.is_alive()


def a_learner() -> Learner:
    """A learner who does not get on."""
    found = Learner("03-broadcast/3")
    found.steps["03-broadcast/2"] = Attempt(started=time.time() - 600, done=time.time() - 300, checks=1, said="old")
    found.steps["03-broadcast/3"] = Attempt(
        started=time.time() - 120, checks=4, hints=1, said="mm2-sa has the 30 seconds", before={"status": {"secret": 1}}
    )
    return found


def a_report(**changes: Any) -> dict[str, Any]:
    """A report that is taken."""
    return {**report_of(JoinedRoom("", ID, "Kim"), a_learner(), time.time()), **changes}


def test_a_learner_joins_and_is_seen_by_the_person_in_front(room: RunningRoom, tmp_path: Path) -> None:
    joined = join(tmp_path, room.url.lower(), " Kim  Müller ", a_learner())
    assert stat.S_IMODE((tmp_path / "learn-report.json").stat().st_mode) == 0o600
    assert read_joined(tmp_path) == joined
    html = room.page().text
    assert '<th scope="row">Kim Müller <span class="state bad">seems stuck</span></th>' in html
    assert "03-broadcast/3 (begun)" in html
    assert "mm2-sa has the 30 seconds" in html
    assert "1 of 1" in html
    assert leave(tmp_path)
    assert read_joined(tmp_path) is None
    assert not leave(tmp_path)


def test_a_report_has_no_name_but_the_given_one_and_no_document() -> None:
    found = json.dumps(report_of(JoinedRoom("https://x/CODE", ID), a_learner(), time.time()))
    assert "secret" not in found
    assert socket.gethostname() not in found
    assert "CODE" not in found
    assert json.loads(found)["name"] == ""
    assert "old" not in found


def test_a_learner_without_a_name_is_a_number(room: RunningRoom, tmp_path: Path) -> None:
    join(tmp_path, room.url, "", Learner())
    assert '<th scope="row">learner 1</th>' in room.page().text


@pytest.mark.parametrize("answered", [True, False])
def test_another_server_gets_neither_the_code_nor_the_report(tmp_path: Path, answered: bool) -> None:
    mine = room_credentials(tmp_path / "mine", "127.0.0.1")
    theirs = room_credentials(tmp_path / "theirs", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(theirs.certificate, theirs.key)
    got: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError), listener.accept()[0] as plain, context.wrap_socket(plain, server_side=True) as one:
                got.append(one.recv(1000))

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/{mine.invitation.code}"
        given = JoinedRoom(url, ID, "Kim")
        with pytest.raises(LabError, match=r"is not the room of this join code.*nothing was sent"):
            send(given, a_learner()) if answered else join(tmp_path, url, "Kim", a_learner())
        thread.join(timeout=10)
    assert got in ([], [b""])
    assert read_joined(tmp_path) is None


@pytest.mark.parametrize(
    ("document", "status"),
    [
        (b"", 422),
        (b"{", 422),
        (b"[]", 422),
        (b"\xff\xfe", 422),
        (b'{"learner": ' + b"[" * 30_000, 422),
        (a_report(learner="x"), 422),
        (a_report(learner=ID.upper()), 422),
        (a_report(name="x" * (MOST_NAME + 1)), 422),
        (a_report(more="field"), 422),
        (a_report(current="../../etc"), 422),
        (a_report(exercises=[{"id": "a/1", "state": "root", "checks": 1, "hints": 1, "minutes": 1}]), 422),
        (a_report(exercises=[{"id": "a/1", "state": "done", "checks": -1, "hints": 1, "minutes": 1}]), 422),
        (a_report(exercises=[{"id": "a/1", "state": "done", "checks": "1", "hints": 1, "minutes": 1}]), 422),
        (a_report(exercises=[{"id": "a/1", "state": "done", "checks": 1, "hints": 1, "minutes": 1}] * 201), 422),
        (b"x" * (MOST_BODY + 1), 413),
    ],
)
def test_a_forged_or_oversized_report_is_refused(room: RunningRoom, document: Any, status: int) -> None:
    assert room.report(document).status_code == status
    assert room.room.seats() == []


def test_an_endless_body_is_cut_off(room: RunningRoom) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(2000):
            yield b"x" * 8192

    with pytest.raises((requests.ConnectionError, AssertionError)):  # either the answer or a closed connection
        assert room.request(
            "POST", "/report", data=endless(),
            headers={"Authorization": f"Bearer {room.credentials.invitation.secret.hex()}"},
        ).status_code != 413  # fmt: skip
    assert room.report(a_report()).status_code == 200


def test_a_wrong_code_is_refused_and_many_of_them_delay_nobody_else(room: RunningRoom) -> None:
    def guess(number: int) -> int:
        return room.report(a_report(), code=f"{number:010x}").status_code

    with ThreadPoolExecutor(max_workers=30) as threads:
        guesses = [threads.submit(guess, number) for number in range(60)]
        began = time.monotonic()
        assert room.report(a_report()).status_code == 200
        assert room.page().status_code == 200
        took = time.monotonic() - began
        assert {one.result() for one in guesses} <= {401, 429}
    assert took < 5
    assert len(room.room.seats()) == 1


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic eDp5", "Bearer é", "Bearer " + "x" * 5000])
def test_a_code_of_another_form_is_refused(room: RunningRoom, header: str) -> None:
    headers = {"Authorization": header.encode("latin-1")} if header else {}
    found = room.request("POST", "/report", data=b"{}", headers=headers)
    assert found.status_code == 401


def test_the_page_is_for_the_person_in_front(room: RunningRoom) -> None:
    room.report(a_report())
    for path in ("/", "/learners"):
        stranger = room.request("GET", path)
        assert (stranger.status_code, "Kim" in stranger.text) == (401, False)
        assert stranger.headers["www-authenticate"].startswith("Basic")
        code = room.request("GET", path, auth=("room", room.credentials.invitation.secret.hex()))
        assert code.status_code == 401  # a learner's code does not open it
    assert room.request("GET", "/", headers={"Authorization": "Basic %%%"}).status_code == 401
    assert room.report(a_report(), code=room.credentials.password).status_code == 401
    found = room.page()
    assert "script-src 'self'" in found.headers["content-security-policy"]
    assert found.headers["cache-control"] == "no-store"
    assert room.request("GET", "/static/room/room.js").status_code == 200
    for path in ("/static/../server.py", "/static/room/%2e%2e/server.py", "/report", "/docs"):
        assert room.request("GET", path).status_code in (404, 405)


def test_what_learners_send_is_shown_as_text(room: RunningRoom) -> None:
    exercise = {"id": "03-broadcast/3", "state": "begun", "checks": 1, "hints": 0, "minutes": 1, "said": HOSTILE}
    assert room.report(a_report(name="<script>x</script>", exercises=[exercise])).status_code == 200
    html = room.page().text
    assert "<script>x" not in html
    assert "<script>document" not in html
    assert "\x1b" not in html


def test_without_tls_nothing_is_said(room: RunningRoom) -> None:
    with socket.create_connection(("127.0.0.1", room.port), timeout=20) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with suppress(ConnectionError):
            assert b"HTTP" not in plain.recv(1000)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(("127.0.0.1", room.port), timeout=20) as plain, pytest.raises(ssl.SSLError):
        context.wrap_socket(plain)


def test_many_idle_connections_do_not_keep_a_learner_out(room: RunningRoom) -> None:
    context = ssl.create_default_context(cafile=str(room.credentials.certificate))
    idle: list[socket.socket] = []
    try:
        for number in range(300):
            plain = socket.create_connection(("127.0.0.1", room.port), timeout=20)
            idle.append(plain if number % 3 else context.wrap_socket(plain, server_hostname="127.0.0.1"))
        assert room.report(a_report()).status_code == 200
    finally:
        for one in idle:
            one.close()


def test_a_room_takes_so_many_learners_and_those_who_are_there_stay() -> None:
    now = [100.0]
    room = Room(lambda: now[0])
    for number in range(MOST_LEARNERS):
        room.take(LearnerReport.model_validate(a_report(learner=f"{number:032x}")))
    with pytest.raises(FullError):
        room.take(LearnerReport.model_validate(a_report(learner="f" * 32)))
    with pytest.raises(TooSoonError):
        room.take(LearnerReport.model_validate(a_report(learner=f"{0:032x}")))
    now[0] += 1
    room.take(LearnerReport.model_validate(a_report(learner=f"{0:032x}", name="first")))
    assert len(room.seats()) == MOST_LEARNERS
    assert next(seat.number for seat, _, _ in room.seats() if seat.report.name == "first") == 1


def test_who_is_stuck_comes_first() -> None:
    now = [100.0]
    room = Room(lambda: now[0])
    fine = {"id": "03-broadcast/3", "state": "begun", "checks": 1, "hints": 0, "minutes": 1}
    room.take(LearnerReport.model_validate(a_report(learner="1" * 32, name="quick", exercises=[fine])))
    room.take(LearnerReport.model_validate(a_report(learner="2" * 32, name="slow", exercises=[{**fine, "checks": 3}])))
    assert [(seat.name, stuck) for seat, stuck, _ in room.seats()] == [("slow", True), ("quick", False)]
    now[0] += 9 * 60
    assert all(stuck for _, stuck, _ in room.seats())


def test_a_code_is_read_as_people_type_it() -> None:
    given = Invitation(bytes(range(10)), bytes(range(5)))
    assert len(given.code) == 29
    assert read_code(given.code.lower().replace("-", " ")) == given
    assert read_code(given.code.replace("O", "0").replace("I", "1").replace("B", "8")) == given
    assert given.secret.hex() not in repr(given)


@pytest.mark.parametrize(
    "url",
    [
        "http://x:1/CODE",
        "https://x/CODE",
        "https://x:1",
        "https://x:1/AAAA",
        "https://x:99999/A",
        "https://u@x:1/A",
        "x",
    ],
)
def test_an_address_of_another_form_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(WrongUseError):
        join(tmp_path, url, "", Learner())
    with pytest.raises(WrongUseError):
        read_room_url(url)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("192.168.1.5", ("192.168.1.5", PORT)),
        ("192.168.1.5:8443", ("192.168.1.5", 8443)),
        ("[::1]", ("::1", PORT)),
        ("[::1]:8443", ("::1", 8443)),
    ],
)
def test_an_address_to_listen_on_is_read(text: str, found: tuple[str, int]) -> None:
    assert read_address(text) == found
    for wrong in ("", "x:y", "x:0", "x:70000", ":1"):
        with pytest.raises(WrongUseError):
            read_address(wrong)


def test_a_rooms_secrets_are_its_owners_and_stay_until_a_new_code_is_wanted(tmp_path: Path) -> None:
    first = room_credentials(tmp_path, "localhost")
    for path in (tmp_path / "room").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert room_credentials(tmp_path, "localhost") == first
    assert first.password not in repr(first)
    second = room_credentials(tmp_path, "localhost", new=True)
    assert second.invitation != first.invitation


def test_a_room_that_is_away_is_a_note_and_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(learn, "lab_home", lambda: tmp_path)
    code = Invitation(bytes(10), bytes(5)).code
    joined = JoinedRoom(f"https://127.0.0.1:1/{code}", ID)
    (tmp_path / "learn-report.json").write_text(json.dumps(joined.__dict__), encoding="utf-8")
    assert learn.run(COMMANDS["learn"].parse(["hint", "03-broadcast/2"])) == 0
    said = capsys.readouterr()
    assert "1 of 2 hints" in said.out
    assert said.err.startswith("note: not shared: the room at 127.0.0.1:1 does not answer (")
    with pytest.raises(LabError, match="does not answer"):
        learn.run(COMMANDS["learn"].parse(["--report-to", replace(joined).url]))
    assert learn.run(COMMANDS["learn"].parse(["--report-to", "off"])) == 0
    assert not (tmp_path / "learn-report.json").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--report-to", "x", "--collect", "y"],
        ["--report-to", "x", "check"],
        ["--name", "Kim"],
        ["--new-code"],
        ["--collect", "x", "list", "--json"],
    ],
)
def test_options_that_do_not_fit_together_are_refused(words: list[str]) -> None:
    with pytest.raises(WrongUseError):
        COMMANDS["learn"].parse(words)


def test_the_command_collects_until_it_is_interrupted(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "loosehanger.cli", "learn", "--collect", f"127.0.0.1:{port}"],
        cwd=ROOT, env={**os.environ, "LAB_HOME": str(tmp_path / "front"), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout
        said = process.stdout.readline()
        url = said.split("--report-to ")[1].split()[0]
        join(tmp_path, url, "Kim", a_learner())
        password = (tmp_path / "front" / "room" / "password").read_text(encoding="ascii")
        with requests.Session() as session:
            session.trust_env = False
            certificate = str(tmp_path / "front" / "room" / "certificate.pem")
            page = session.get(f"https://127.0.0.1:{port}/", auth=("room", password), verify=certificate, timeout=20)
        assert "Kim" in page.text
        assert password not in said
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, ""), out


def test_an_unknown_certificate_is_not_taken_by_a_browser(room: RunningRoom) -> None:
    with pytest.raises((requests.exceptions.SSLError, urllib3.exceptions.SSLError)):
        room.request("GET", "/", verify=True)
