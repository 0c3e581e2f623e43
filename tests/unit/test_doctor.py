"""What ``./lab doctor`` finds on a machine: made-up files and folders, and real ports and servers on loopback."""

from __future__ import annotations

import http.server
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from loosehanger.cli import doctor
from loosehanger.cli.port_base import region_ports
from loosehanger.errors import ExitCode, WrongUseError
from loosehanger.lab.progress import Progress
from loosehanger.paths import ROOT


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a lab, where everything is installed and nothing is set up."""
    folder = tmp_path / "home"
    python = folder / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    monkeypatch.setenv("LAB_HOME", str(folder))
    return folder


@pytest.fixture
def port() -> Iterator[int]:
    """A port that is in use."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


@pytest.mark.parametrize(("kilobytes", "enough"), [(8_000_000, True), (1_000_000, False)])
def test_memory_that_is_short_has_a_remedy(tmp_path: Path, kilobytes: int, enough: bool) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemTotal: 9 kB\nMemAvailable: {kilobytes} kB\n", encoding="ascii")
    found = doctor.memory(meminfo)
    assert (found.remedy == "") == enough
    assert f"{kilobytes * 1024 / doctor.GB:.1f} GB available" in found.line


def test_memory_is_not_known_everywhere(tmp_path: Path) -> None:
    assert doctor.memory(tmp_path / "none").line == "ok       memory      not known on this system"


def test_a_full_disk_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2 * doctor.GB))
    assert doctor.disk(tmp_path / "not" / "there", installed=True).remedy == ""
    assert "set LAB_HOME" in doctor.disk(tmp_path / "not" / "there", installed=False).line


def test_a_port_in_use_is_named(port: int) -> None:
    # The first that is looked at: on a busy machine others may be in use, and five are named.
    found = doctor.ports(port - 100)
    assert found.line.startswith("PROBLEM  ports       in use: ")
    assert str(port) in found.line
    assert "LAB_PORT_BASE" in found.remedy


@pytest.mark.parametrize(
    ("given", "reserved", "remedy"),
    [
        ("32768\t60999", "", None),
        ("19250\t60999", "", "set LAB_PORT_BASE to a number below 18250, or reserve the ports: sysctl -w "),
        ("1024\t65535", "8080,9000-9100", "reserve the ports: sysctl -w net.ipv4.ip_local_reserved_ports=19100-19499"),
        ("1024\t65535", "8080,19000-20000", None),
        ("", "", None),
    ],
)
def test_ports_that_an_outgoing_connection_may_take_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, reserved: str, remedy: str | None
) -> None:
    monkeypatch.setattr(doctor, "is_taken", lambda _: False)
    (tmp_path / "ip_local_port_range").write_text(f"{given}\n", encoding="ascii")
    (tmp_path / "ip_local_reserved_ports").write_text(f"{reserved}\n", encoding="ascii")
    found = doctor.ports(None, tmp_path)
    assert found.line.startswith("ok       ports " if remedy is None else "warning  ports ")
    if remedy:
        assert remedy in found.remedy
        assert "LAB_PORT_BASE" in found.remedy
        assert "outgoing connections may take {} to {}".format(*given.split()) in found.found


def test_a_warning_is_not_a_failure(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home.exists()
    warning = doctor.Check("ports", "at risk", "move them", only_warns=True)
    monkeypatch.setattr(doctor, "machine", lambda *_: iter([warning]))
    assert doctor.examine(None, {}) == ExitCode.DONE


def test_the_ports_are_those_of_the_local_inventory() -> None:
    folder = ROOT / "inventories" / "local"
    variables = yaml.safe_load((folder / "group_vars" / "all.yaml").read_text(encoding="utf-8"))
    regions = yaml.safe_load((folder / "regions.yaml").read_text(encoding="utf-8"))["regions"]["hosts"]
    assert "'19000'" in variables["lab_port_base"]
    assert region_ports(None) == range(19100, 19100 + 100 * len(regions))
    assert region_ports(29000)[0] == 29100
    assert region_ports(65300)[-1] == 65535


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server that answers every question with an error."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_address[1]}/"
        found.shutdown()


def test_a_server_that_answers_is_reachable_whatever_it_answers(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", server)
    monkeypatch.setenv("LAB_MAVEN_REPOSITORY", server)
    (found,) = doctor.network()
    assert (found.found, found.remedy) == ("packages and jars are reachable", "")


def test_each_server_out_of_reach_has_a_remedy_and_shows_no_password(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = "http://user:secret@127.0.0.1:1/simple"
    monkeypatch.setenv("UV_DEFAULT_INDEX", nowhere)
    monkeypatch.setenv("LAB_MAVEN_REPOSITORY", nowhere)
    index, maven = doctor.network()
    assert index.found.startswith("127.0.0.1:1: cannot be reached (")
    assert "PIP_INDEX_URL" in index.remedy
    assert "LAB_MAVEN_REPOSITORY" in maven.remedy
    assert "secret" not in index.line + maven.line
    monkeypatch.setenv("LAB_MAVEN_REPOSITORY", server)
    (only,) = doctor.network()
    assert only.line == index.line


def test_what_an_earlier_lab_left_is_a_problem(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    monkeypatch.setattr(doctor, "memory", lambda _: doctor.Check("memory", "enough"))
    (home / "regions").mkdir()
    environment = {"LAB_PORT_BASE": str(port - 150), "HTTPS_PROXY": "http://user:secret@proxy.example/"}
    assert doctor.examine(None, environment) == ExitCode.FAILED
    shown = capsys.readouterr().out
    assert f"PROBLEM  remains     {home} has regions; run ./lab cleanup\n" in shown
    assert "HTTPS_PROXY is set" in shown
    assert "secret" not in shown


def test_the_ports_of_a_lab_that_is_set_up_are_its_own(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert home.exists()
    assert doctor.examine(Progress("05-switching", "local", "inventories/local", "setup"), {}) == ExitCode.DONE
    assert " ports " not in capsys.readouterr().out


def test_a_port_base_that_is_none_is_wrong_use(home: Path) -> None:
    assert home.exists()
    with pytest.raises(WrongUseError, match="LAB_PORT_BASE=abc: not a number"):
        doctor.examine(None, {"LAB_PORT_BASE": "abc"})
