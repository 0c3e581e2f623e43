"""A console's settings, from its environment: where it listens, who may sign in, and which regions it shows."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from loosehanger.console.geography import MOST_NORTHERN, Coordinates
from loosehanger.errors import WrongUseError
from loosehanger.kafka.connection import Connection
from loosehanger.lab.mirrors.mirror import Mirror, read_routes
from loosehanger.ports import LOOPBACK

OPERATOR_OFF = "this console only shows the lab; to change the lab here, run ./lab setup NAME -e console_operator=true"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


@dataclass(frozen=True)
class ConnectAccess:
    """Addresses and credentials of a mirror's Connect workers. ``password`` is not in ``repr``."""

    mirror: str
    urls: tuple[str, ...]
    """One for each worker; each of them answers for all."""
    username: str = ""
    password: str = field(default="", repr=False)
    ca_file: Path | None = None


@dataclass(frozen=True)
class RegionSettings:
    """A region that the console shows, with the console's own credentials there."""

    name: str
    connection: Connection
    mirrors: tuple[ConnectAccess, ...] = ()
    place: Coordinates | None = None
    """Its place on the map; None to place it where there is room."""


@dataclass(frozen=True)
class Settings:
    """All settings of a console."""

    name: str
    username: str
    password: str = field(repr=False)
    regions: tuple[RegionSettings, ...]
    routes: tuple[Mirror, ...] = ()
    """The route and topics of every mirror of the lab, also where this console has no access to its Connect workers."""
    control_room: bool = False
    operator: bool = False
    """Whether topics, records and groups may be changed: the set-up gave its user the rights for it."""
    address: str = LOOPBACK
    port: int = 8080
    hosts: tuple[str, ...] = ()
    """Additional host names of the console."""
    certificate: Path | None = None
    key: Path | None = None
    session_minutes: int = 480
    scenario: str = ""
    """The folder of ``playbooks/`` that the control room shows; empty for none."""
    lab_home: Path | None = None
    """The lab's home, with its record and its links, where the control room can run the proof; None where it is on
    another machine."""
    shared_password: bool = False
    """Whether all consoles of the lab have this password: then each can sign a browser in to the others."""
    neighbours: Mapping[str, str] = field(default_factory=dict)
    """The addresses of the lab's other consoles by name, where no record of the lab names them."""
    metrics_token: str = field(default="", repr=False)
    """What Prometheus must send to read ``/metrics``; empty for none, and no metrics."""
    mirrors_folder: Path | None = None
    """Where Kubernetes mounts the desired state of mirrors, a file for each region; None elsewhere."""

    @property
    def by_resource(self) -> bool:
        """Whether operators keep topics and mirrors as their resources say: everywhere but on the local platform."""
        return self.lab_home is None

    @property
    def change_log(self) -> Path | None:
        """Where the change log is; None where the lab's home is on another machine."""
        return self.lab_home / "artifacts" / "console" / f"changes-{self.name}.jsonl" if self.lab_home else None

    @property
    def tokens_file(self) -> Path | None:
        """Where the tokens of scripts are; None where the lab's home is on another machine."""
        return self.lab_home / "artifacts" / "console" / f"tokens-{self.name}.json" if self.lab_home else None

    @property
    def secure(self) -> bool:
        """Whether it speaks TLS."""
        return self.certificate is not None

    @property
    def own_host(self) -> str:
        """A host name of this machine that only this console has: browsers keep cookies by name, not by port."""
        return f"{self.name}.localhost"

    @property
    def host_names(self) -> frozenset[str]:
        """The host names that a request may have; a foreign one means DNS rebinding by another site's page."""
        own = {"localhost", LOOPBACK, "::1", self.own_host, *self.hosts}
        return frozenset(own if _any_address(self.address) else {*own, self.address})

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Reads the environment that a Deployment of the kit sets; see README.md.

        Raises:
            WrongUseError: a variable is missing or invalid.
        """
        certificate, key = (_path(environment, name) for name in ("CONSOLE_CERTIFICATE_FILE", "CONSOLE_KEY_FILE"))
        if (certificate is None) != (key is None):
            raise WrongUseError("CONSOLE_CERTIFICATE_FILE and CONSOLE_KEY_FILE belong together; set both or neither")
        address = environment.get("CONSOLE_ADDRESS") or LOOPBACK
        if certificate is None and not _is_loopback(address):
            raise WrongUseError(
                f"CONSOLE_ADDRESS: {address} is not a loopback address, and passwords would cross the network "
                "unencrypted; set CONSOLE_CERTIFICATE_FILE and CONSOLE_KEY_FILE, or listen on 127.0.0.1"
            )
        names = _list(environment, "CONSOLE_REGIONS")
        if not names:
            raise WrongUseError(
                "CONSOLE_REGIONS is not set; name the regions that the console shows, separated by commas"
            )
        return cls(
            name=_required(environment, "CONSOLE_NAME"),
            username=_required(environment, "CONSOLE_USERNAME"),
            password=_secret(environment, "CONSOLE_PASSWORD_FILE"),
            regions=tuple(_region(environment, name) for name in names),
            routes=_routes(environment, "CONSOLE_ROUTES"),
            control_room=_flag(environment, "CONSOLE_CONTROL_ROOM"),
            operator=_flag(environment, "CONSOLE_OPERATOR"),
            address=address,
            port=_number(environment, "CONSOLE_PORT", 8080, 65535),
            hosts=_list(environment, "CONSOLE_HOSTS"),
            certificate=certificate,
            key=key,
            session_minutes=_number(environment, "CONSOLE_SESSION_MINUTES", 480, 7 * 24 * 60),
            scenario=environment.get("CONSOLE_SCENARIO", ""),
            lab_home=Path(environment["CONSOLE_LAB_HOME"]) if environment.get("CONSOLE_LAB_HOME") else None,
            shared_password=_flag(environment, "CONSOLE_SHARED_PASSWORD"),
            neighbours=_neighbours(environment, "CONSOLE_NEIGHBOURS"),
            metrics_token=(
                _secret(environment, "CONSOLE_METRICS_TOKEN_FILE")
                if environment.get("CONSOLE_METRICS_TOKEN_FILE")
                else ""
            ),
            mirrors_folder=Path(folder) if (folder := environment.get("CONSOLE_MIRRORS_FOLDER")) else None,
        )


def _neighbours(environment: Mapping[str, str], name: str) -> dict[str, str]:
    found = dict(word.partition("=")[::2] for word in _list(environment, name))
    for console, url in found.items():
        if not _NAME.fullmatch(console) or not url.startswith(("http://", "https://")) or not _has_host(url):
            raise WrongUseError(f"{name}: '{console}={url}' is not a console such as west=http://127.0.0.1:8080")
    return found


def _region(environment: Mapping[str, str], name: str) -> RegionSettings:
    prefix = _prefix("CONSOLE_REGIONS", name)
    own = {key.removeprefix(prefix): value for key, value in environment.items() if key.startswith(prefix)}
    try:
        connection = Connection.from_environment(own)
    except WrongUseError as error:
        raise WrongUseError(f"region {name}, variables {prefix}…: {error}") from error
    mirrors = _list(environment, f"{prefix}MIRRORS")
    connects = tuple(_connect(environment, prefix, mirror) for mirror in mirrors)
    return RegionSettings(name, connection, connects, _place(environment, f"{prefix}PLACE"))


def _connect(environment: Mapping[str, str], region: str, mirror: str) -> ConnectAccess:
    prefix = region + _prefix(f"{region}MIRRORS", mirror)
    # A service with several workers has several addresses: https://a:1,b:2.
    text = _required(environment, f"{prefix}URL")
    scheme, separator, addresses = text.partition("://")
    urls = tuple(f"{scheme}://{address.strip('/')}" for address in addresses.split(","))
    if scheme not in ("http", "https") or not separator or not all(_has_host(url) for url in urls):
        raise WrongUseError(f"{prefix}URL: '{text}' is not an address such as https://127.0.0.1:19250")
    if scheme == "http":
        return ConnectAccess(mirror, urls)
    return ConnectAccess(
        mirror,
        urls,
        username=_required(environment, f"{prefix}USERNAME"),
        password=_secret(environment, f"{prefix}PASSWORD_FILE"),
        ca_file=Path(_required(environment, f"{prefix}CA_FILE")),
    )


def _place(environment: Mapping[str, str], name: str) -> Coordinates | None:
    value = environment.get(name, "")
    if not value:
        return None
    found = re.fullmatch(r"(-?\d{1,2}(?:\.\d+)?),(-?\d{1,3}(?:\.\d+)?)", value)
    if not found or abs(float(found[1])) > MOST_NORTHERN or abs(float(found[2])) > 180:
        raise WrongUseError(
            f"{name}: '{value}' is not a place such as 50.1,8.7: degrees north (at most {MOST_NORTHERN}) and east"
        )
    return Coordinates(float(found[1]), float(found[2]))


def _routes(environment: Mapping[str, str], name: str) -> tuple[Mirror, ...]:
    try:
        return read_routes(environment.get(name, ""))
    except ValueError as error:
        raise WrongUseError(f"{name}: {error}") from error


def _has_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


def _prefix(variable: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise WrongUseError(f"{variable}: '{name}' is not a name: small letters, digits and hyphens")
    return f"{name.upper().replace('-', '_')}_"


def _is_loopback(address: str) -> bool:
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _any_address(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_unspecified
    except ValueError:
        return False


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise WrongUseError(f"{name} is not set")
    return value


def _list(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in environment.get(name, "").split(",") if word.strip()))


def _flag(environment: Mapping[str, str], name: str) -> bool:
    value = environment.get(name) or "false"
    if value not in ("true", "false"):
        raise WrongUseError(f"{name}: '{value}' is neither true nor false")
    return value == "true"


def _number(environment: Mapping[str, str], name: str, default: int, most: int) -> int:
    value = environment.get(name) or str(default)
    if not (value.isascii() and value.isdecimal() and 1 <= int(value) <= most):
        raise WrongUseError(f"{name}: '{value}' is not a whole number from 1 to {most}")
    return int(value)


def _path(environment: Mapping[str, str], name: str) -> Path | None:
    value = environment.get(name, "")
    if value and not os.access(value, os.R_OK):
        raise WrongUseError(f"{name}: {value} cannot be read")
    return Path(value) if value else None


def _secret(environment: Mapping[str, str], name: str) -> str:
    path = _required(environment, name)
    try:
        secret = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUseError(f"{name}: {path} cannot be read ({error})") from error
    if not secret:
        raise WrongUseError(f"{name}: {path} is empty")
    return secret
