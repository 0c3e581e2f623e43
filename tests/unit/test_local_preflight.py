"""The ports that a region needs: another program's are refused, and the lab's own are not, whenever they came up."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from loosehanger.errors import WrongUseError
from loosehanger.platforms.local import preflight
from loosehanger.platforms.local.preflight import check_ports
from loosehanger.platforms.local.region import LocalRegion


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A program that listens on the one port that the region needs."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        monkeypatch.setattr(preflight, "_ports", lambda *_: [port])
        yield listening


def look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *own: Any) -> None:
    """Checks the port; the lab's own processes are those, look by look."""
    looks = iter(own)
    monkeypatch.setattr(preflight, "marked_processes", lambda *_: next(looks)())
    check_ports(LocalRegion(tmp_path, tmp_path, "europe", 20_000), ())


def test_a_port_of_another_program_is_refused(
    server: socket.socket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(WrongUseError, match=f"europe: port {server.getsockname()[1]} is in use by another program"):
        look(monkeypatch, tmp_path, list, list)


def test_a_port_that_an_outgoing_connection_has_is_refused(
    server: socket.socket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.create_connection(server.getsockname()) as client:
        port = client.getsockname()[1]
        monkeypatch.setattr(preflight, "_ports", lambda *_: [port])
        with pytest.raises(WrongUseError, match=f"europe: port {port} is in use by another program"):
            look(monkeypatch, tmp_path, list, list)


def test_a_program_of_the_labs_own_may_come_up_or_end_meanwhile(
    server: socket.socket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    this = psutil.Process()
    look(monkeypatch, tmp_path, lambda: [this])
    look(monkeypatch, tmp_path, list, lambda: [this])

    def end() -> list[psutil.Process]:
        server.close()
        return []

    with closing(server):
        look(monkeypatch, tmp_path, list, end)
