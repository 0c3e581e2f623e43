"""``./lab open``: which console, with what in the browser's hands, and what it says where there is no browser."""

from __future__ import annotations

import re
import webbrowser
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest

from loosehanger.cli import completion, open_console
from loosehanger.cli.command_line import COMMANDS
from loosehanger.console import neighbours
from loosehanger.errors import LabError, WrongUseError
from loosehanger.files import write_file
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.record import Lab, Region, WebConsole
from loosehanger.lab.topology import Topology
from tests.consoles import PASSWORD, Running, running, settings


@pytest.fixture(scope="module")
def europe() -> Iterator[Running]:
    with running(settings("europe")) as found:
        yield found


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What a browser is opened with; the machine has one."""
    addresses: list[str] = []
    monkeypatch.setenv("LAB_HOME", str(tmp_path))
    monkeypatch.setattr(open_console, "_has_browser", lambda: True)

    def browse(address: str) -> bool:
        addresses.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", browse)
    return addresses


def lab(url: str, *more: WebConsole) -> Lab:
    """A lab whose consoles are at one address; the control room's is called room."""
    consoles = (WebConsole("europe", url, "operator"), WebConsole("room", url, "operator"), *more)
    variables = [{"name": "CONSOLE_CONTROL_ROOM", "value": "true"}, {"name": "CONSOLE_NAME", "value": "room"}]
    spec = {"template": {"spec": {"containers": [{"env": variables}]}}}
    room = Document(
        "made up", 1, {"kind": "Deployment", "metadata": {"name": "r", "namespace": "europe"}, "spec": spec}
    )
    region = Region("europe", "europe", {}, {}, (), consoles=consoles)
    return Lab("11-plain", "local", "", {"europe": region}, topology=Topology([room]))


def run(found: Lab, console: str | None, *, only_print: bool = False) -> int:
    """Runs the command with the password of all consoles."""
    return open_console.run(found, Namespace(console=console, print=only_print), lambda *_: PASSWORD)


def test_the_browser_gets_a_file_that_signs_in_once(
    europe: Running, opened: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(lab(europe.url), "europe") == 0
    (address,) = opened
    page = Path(address.removeprefix("file://"))
    assert page.stat().st_mode & 0o777 == 0o600
    text = page.read_text()
    token = re.search(r'name="token" value="([^"]+)"', text)
    assert token
    port = europe.url.rpartition(":")[2]
    assert f'action="http://europe.localhost:{port}/sign-in/once"' in text
    said = capsys.readouterr()
    assert said.out == f"europe: http://europe.localhost:{port}\n"
    assert token[1] not in address + said.out + said.err
    assert PASSWORD not in text
    browser = europe.browser(signed_in=False)
    assert browser.post("/sign-in/once", data={"token": token[1]}, headers={"Origin": "null"}).status_code == 200
    assert browser.get("/api/session").json()["user"] == "operator"


def test_the_path_is_printed_where_one_asks_for_it(
    europe: Running, opened: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_console, "_has_browser", lambda: False)
    assert run(lab(europe.url), "europe", only_print=True) == 0
    said = capsys.readouterr()
    assert Path(said.out.strip()).is_file()
    assert said.err.startswith("open it in a browser within 30 seconds")
    assert opened == []


def test_the_console_of_all_regions_comes_first(europe: Running, opened: list[str]) -> None:
    run(lab(europe.url), None)
    assert "//room.localhost:" in Path(opened[0].removeprefix("file://")).read_text()


@pytest.mark.usefixtures("opened")
def test_a_machine_without_a_browser_gets_one_line(
    europe: Running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(open_console, "_has_browser", lambda: False)
    with pytest.raises(LabError, match=r"^this machine has no browser; ./lab status --credentials shows") as raised:
        run(lab(europe.url), "europe")
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("variables", "found"),
    [({}, False), ({"DISPLAY": ":0"}, True), ({"WAYLAND_DISPLAY": "w"}, True), ({"BROWSER": "lynx"}, True)],
)
def test_what_counts_as_a_browser_on_linux(
    variables: dict[str, str], found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.GenericBrowser("browser"))
    assert open_console._has_browser() is found

    def none() -> None:
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr(webbrowser, "get", none)
    assert not open_console._has_browser()


@pytest.mark.usefixtures("opened")
def test_a_browser_that_does_not_start_leaves_no_page(
    europe: Running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    with pytest.raises(LabError, match="the browser did not start"):
        run(lab(europe.url), "europe")
    assert list(tmp_path.rglob("*.html")) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("europ", "there is no web console 'europ'; did you mean 'europe'?"),
        ("x", "there is no web console 'x'; the consoles are: europe, room"),
        ("", "there is no web console ''; the consoles are: europe, room"),
    ],
)
@pytest.mark.usefixtures("opened")
def test_a_console_that_is_not_there(europe: Running, name: str, message: str) -> None:
    with pytest.raises(WrongUseError) as raised:
        run(lab(europe.url), name)
    assert str(raised.value) == message


def test_a_console_that_is_down_is_not_opened(opened: list[str], tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"europe does not answer at http://127\.0\.0\.1:1 .*; ./lab status shows why"):
        run(lab("http://127.0.0.1:1"), "europe")
    assert opened == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:19170", "http://europe.localhost:19170"),
        ("http://[::1]:19170", "http://europe.localhost:19170"),
        ("https://192.0.2.7:19170", "https://192.0.2.7:19170"),
        ("https://0.0.0.0:19170", "https://localhost:19170"),
    ],
)
def test_the_address_in_the_browser(url: str, address: str) -> None:
    assert open_console.browser_address(WebConsole("europe", url, "operator")) == address


def test_completion_offers_the_consoles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_HOME", str(tmp_path))
    assert completion.candidates(["open", ""]) == []
    write_file(tmp_path / "access" / "a.json", '{"consoles": [{"name": "europe", "url": "http://127.0.0.1:1"}]}')
    assert completion.candidates(["open", ""]) == [("europe", "http://127.0.0.1:1")]
    assert completion.candidates(["open", "--p"]) == [("--print", "")]


def test_command_and_console_agree() -> None:
    assert open_console.ONE_TIME == neighbours.ONE_TIME
    assert COMMANDS["open"].parse(["--print", "europe"]) == Namespace(console="europe", print=True)
