"""The settings that a console accepts, and those that it refuses."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from loosehanger.console.__main__ import listen
from loosehanger.console.geography import Coordinates
from loosehanger.console.settings import Settings
from loosehanger.errors import LabError, WrongUseError
from loosehanger.lab.mirrors.mirror import routes_text
from tests.consoles import route, secret


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What the role gives to North America's console."""
    return {
        "CONSOLE_NAME": "north-america",
        "CONSOLE_USERNAME": "operator",
        "CONSOLE_PASSWORD_FILE": secret(tmp_path, "sign-in", "a sign-in password\n"),
        "CONSOLE_PORT": "19270",
        "CONSOLE_REGIONS": "north-america",
        "NORTH_AMERICA_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:19202,127.0.0.1:19210",
        "NORTH_AMERICA_KAFKA_USERNAME": "console-north-america",
        "NORTH_AMERICA_KAFKA_PASSWORD_FILE": secret(tmp_path, "kafka", "a kafka password"),
        "NORTH_AMERICA_KAFKA_CA_FILE": secret(tmp_path, "ca.crt", ""),
        "NORTH_AMERICA_MIRRORS": "mm2-na",
        "NORTH_AMERICA_MM2_NA_URL": "https://127.0.0.1:19250,127.0.0.1:19251",
        "NORTH_AMERICA_MM2_NA_USERNAME": "operator",
        "NORTH_AMERICA_MM2_NA_PASSWORD_FILE": secret(tmp_path, "connect", "a connect password"),
        "NORTH_AMERICA_MM2_NA_CA_FILE": secret(tmp_path, "connect.crt", ""),
    }


def test_everything_is_read(environment: dict[str, str]) -> None:
    settings = Settings.from_environment(environment)
    (region,) = settings.regions
    (mirror,) = region.mirrors
    assert (settings.name, settings.port, settings.password) == ("north-america", 19270, "a sign-in password")
    assert region.connection.bootstrap_servers == ("127.0.0.1:19202", "127.0.0.1:19210")
    assert region.connection.username == "console-north-america"
    assert mirror.urls == ("https://127.0.0.1:19250", "https://127.0.0.1:19251")
    assert mirror.password == "a connect password"
    assert not settings.secure
    assert not settings.control_room
    assert settings.mirrors_folder is None
    on_kubernetes = Settings.from_environment(environment | {"CONSOLE_MIRRORS_FOLDER": "/etc/console/mirrors"})
    assert on_kubernetes.mirrors_folder == Path("/etc/console/mirrors")
    assert settings.metrics_token == ""


def test_the_token_of_scrapers_is_read(environment: dict[str, str], tmp_path: Path) -> None:
    token = secret(tmp_path, "scraper", "a scraper's token\n")
    settings = Settings.from_environment(environment | {"CONSOLE_METRICS_TOKEN_FILE": token})
    assert settings.metrics_token == "a scraper's token"
    assert "scraper's" not in repr(settings)
    with pytest.raises(WrongUseError, match=r"CONSOLE_METRICS_TOKEN_FILE: .* is empty"):
        Settings.from_environment(environment | {"CONSOLE_METRICS_TOKEN_FILE": secret(tmp_path, "empty", "\n")})


def test_routes_and_places_are_read(environment: dict[str, str]) -> None:
    mirror = route("mm2-na", "north-america", "north-america", "europe")
    settings = Settings.from_environment(
        environment | {"CONSOLE_ROUTES": routes_text([mirror]), "NORTH_AMERICA_PLACE": "39.0,-77.5"}
    )
    assert settings.routes == (mirror,)
    assert settings.regions[0].place == Coordinates(39.0, -77.5)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("CONSOLE_ROUTES", "name=mm2-na", "CONSOLE_ROUTES: 'name=mm2-na' is not a list of mirrors"),
        ("CONSOLE_ROUTES", "north", "CONSOLE_ROUTES: 'north' is not a list of mirrors"),
        ("NORTH_AMERICA_PLACE", "far out", "NORTH_AMERICA_PLACE: 'far out' is not a place such as 50.1,8.7"),
        ("NORTH_AMERICA_PLACE", "50,181", "NORTH_AMERICA_PLACE: '50,181' is not a place such as 50.1,8.7"),
    ],
)
def test_routes_and_places_that_are_none_are_refused(
    environment: dict[str, str], name: str, value: str, said: str
) -> None:
    with pytest.raises(WrongUseError, match=said):
        Settings.from_environment(environment | {name: value})


def test_no_password_shows(environment: dict[str, str]) -> None:
    shown = repr(Settings.from_environment(environment))
    assert [word for word in ("a sign-in password", "a kafka password", "a connect password") if word in shown] == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"CONSOLE_NAME": ""}, "CONSOLE_NAME is not set"),
        ({"CONSOLE_REGIONS": ""}, "CONSOLE_REGIONS is not set"),
        ({"CONSOLE_REGIONS": "North America"}, "'North America' is not a name"),
        (
            {"CONSOLE_REGIONS": "north-america,europe"},
            "region europe, variables EUROPE_…: KAFKA_BOOTSTRAP_SERVERS is not",
        ),
        ({"CONSOLE_PORT": "0"}, "CONSOLE_PORT: '0' is not a whole number from 1 to 65535"),
        ({"CONSOLE_PORT": "٣"}, "CONSOLE_PORT: '٣' is not a whole number"),
        ({"CONSOLE_CONTROL_ROOM": "yes"}, "CONSOLE_CONTROL_ROOM: 'yes' is neither true nor false"),
        ({"CONSOLE_PASSWORD_FILE": "/nowhere"}, "CONSOLE_PASSWORD_FILE: /nowhere cannot be read"),
        ({"CONSOLE_CERTIFICATE_FILE": "/dev/null"}, "CONSOLE_CERTIFICATE_FILE and CONSOLE_KEY_FILE belong together"),
        ({"NORTH_AMERICA_MM2_NA_URL": "127.0.0.1:1"}, "NORTH_AMERICA_MM2_NA_URL: '127.0.0.1:1' is not an address"),
        ({"NORTH_AMERICA_MM2_NA_URL": "https://a:b"}, "NORTH_AMERICA_MM2_NA_URL: 'https://a:b' is not an address"),
        ({"NORTH_AMERICA_MM2_NA_USERNAME": ""}, "NORTH_AMERICA_MM2_NA_USERNAME is not set"),
    ],
)
def test_what_cannot_be_used_is_refused(environment: dict[str, str], changes: dict[str, str], message: str) -> None:
    with pytest.raises(WrongUseError) as refused:
        Settings.from_environment(environment | changes)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_empty_password_is_refused(environment: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(WrongUseError, match="is empty"):
        Settings.from_environment(environment | {"CONSOLE_PASSWORD_FILE": secret(tmp_path, "empty", "\n")})


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "example.org"])  # noqa: S104 - it is refused
def test_without_a_certificate_it_listens_on_the_loopback_address_only(
    environment: dict[str, str], tmp_path: Path, address: str
) -> None:
    with pytest.raises(WrongUseError, match="is not a loopback address"):
        Settings.from_environment(environment | {"CONSOLE_ADDRESS": address})
    files = {"CONSOLE_CERTIFICATE_FILE": secret(tmp_path, "c", "-"), "CONSOLE_KEY_FILE": secret(tmp_path, "k", "-")}
    assert Settings.from_environment(environment | files | {"CONSOLE_ADDRESS": address}).secure


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_loopback_addresses_need_no_certificate(environment: dict[str, str], address: str) -> None:
    assert Settings.from_environment(environment | {"CONSOLE_ADDRESS": address}).address == address


def test_connect_without_tls_needs_no_user(environment: dict[str, str]) -> None:
    plain = {name: value for name, value in environment.items() if "MM2_NA" not in name}
    settings = Settings.from_environment(plain | {"NORTH_AMERICA_MM2_NA_URL": "http://mm2-na:8083"})
    assert settings.regions[0].mirrors[0].urls == ("http://mm2-na:8083",)


def test_the_neighbours_are_read_or_refused(environment: dict[str, str]) -> None:
    found = Settings.from_environment(
        environment | {"CONSOLE_NEIGHBOURS": "west=http://127.0.0.1:8090,room=http://127.0.0.1:8081",
                       "CONSOLE_SHARED_PASSWORD": "true"}
    )  # fmt: skip
    assert found.neighbours == {"west": "http://127.0.0.1:8090", "room": "http://127.0.0.1:8081"}
    assert found.shared_password
    for wrong in ("west", "West=http://127.0.0.1:1", "west=ftp://127.0.0.1:1", "west=http://"):
        with pytest.raises(WrongUseError, match=r"CONSOLE_NEIGHBOURS: .* is not a console such as"):
            Settings.from_environment(environment | {"CONSOLE_NEIGHBOURS": wrong})


def test_a_port_that_is_in_use_is_named() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(LabError, match=f"port {port} on 127.0.0.1 is in use by another program; .*LAB_PORT_BASE"):
            listen("127.0.0.1", port)


def test_a_region_may_sign_its_console_in_by_another_mechanism(environment: dict[str, str]) -> None:
    own = {"NORTH_AMERICA_KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "NORTH_AMERICA_KAFKA_SASL_MECHANISM": "PLAIN"}
    (region,) = Settings.from_environment(environment | own).regions
    assert region.connection.sasl_mechanism == "PLAIN"
    with pytest.raises(WrongUseError, match=r"region north-america, variables NORTH_AMERICA_…: KAFKA_SASL_MECHANISM:"):
        Settings.from_environment(environment | own | {"NORTH_AMERICA_KAFKA_SASL_MECHANISM": "GSSAPI"})
