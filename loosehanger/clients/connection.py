"""How a client reaches a Kafka cluster: read from Java properties or the environment, given to kafka-python or Spark.

The properties file is the one that Kafka's own command line tools take (``--command-config``), so one file serves
every client. SCRAM over TLS, TLS alone and plaintext are understood: what the kit's clusters and the usual real ones
offer.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loosehanger.errors import WrongUseError

SCRAM_LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_JAAS = re.compile(
    r"^\s*(?P<module>[\w.]+)\s+required\s+"
    r'username="(?P<username>(?:[^"\\]|\\.)*)"\s+password="(?P<password>(?:[^"\\]|\\.)*)"\s*;\s*$'
)


@dataclass(frozen=True)
class Connection:
    """One user's way into one cluster. ``password`` never shows in ``repr``."""

    bootstrap_servers: tuple[str, ...]
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    username: str | None = None
    password: str | None = None
    ca_file: Path | None = None

    def __repr__(self) -> str:
        return f"Connection({','.join(self.bootstrap_servers)} as {self.username or 'anonymous'})"

    @classmethod
    def from_properties(cls, path: Path) -> Connection:
        """Reads a client properties file.

        Raises:
            WrongUseError: the file is missing, or has a setting that cannot be used.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise WrongUseError(f"{path}: cannot be read ({error.strerror})") from error
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, path: str) -> Connection:
        """Understands client properties.

        Args:
            text: the properties.
            path: where they stand, for messages.

        Raises:
            WrongUseError: a setting cannot be used.
        """
        properties = parse_properties(text)
        servers = properties.get("bootstrap.servers", "")
        if not servers:
            raise WrongUseError(f"{path}: bootstrap.servers is missing")
        username, password = None, None
        if jaas := properties.get("sasl.jaas.config"):
            match = _JAAS.match(jaas)
            if not match:
                raise WrongUseError(
                    f'{path}: sasl.jaas.config: expected \'{SCRAM_LOGIN_MODULE} required username="…" password="…";\''
                )
            username, password = (re.sub(r"\\(.)", r"\1", match[group]) for group in ("username", "password"))
        protocol = properties.get("security.protocol", "PLAINTEXT")
        if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
            raise WrongUseError(f"{path}: security.protocol: '{protocol}' is not one that Kafka knows")
        ca_file = properties.get("ssl.truststore.location")
        if ca_file and properties.get("ssl.truststore.type") != "PEM":
            raise WrongUseError(f"{path}: ssl.truststore.type: only PEM can be read; convert the trust store")
        return cls(
            bootstrap_servers=tuple(server.strip() for server in servers.split(",")),
            security_protocol=protocol,
            sasl_mechanism=properties.get("sasl.mechanism"),
            username=username,
            password=password,
            ca_file=Path(ca_file) if ca_file else None,
        )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Connection:
        """Reads the environment that a Deployment of the kit gets.

        The variables are KAFKA_BOOTSTRAP_SERVERS, KAFKA_USERNAME, KAFKA_PASSWORD_FILE and KAFKA_CA_FILE.

        Raises:
            WrongUseError: a variable is missing, or names a file that cannot be read.
        """
        values = {}
        for name in ("KAFKA_BOOTSTRAP_SERVERS", "KAFKA_USERNAME", "KAFKA_PASSWORD_FILE", "KAFKA_CA_FILE"):
            if not environment.get(name):
                raise WrongUseError(f"{name} is not set; set it, or give --config FILE.properties")
            values[name] = environment[name]
        try:
            password = Path(values["KAFKA_PASSWORD_FILE"]).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise WrongUseError(
                f"KAFKA_PASSWORD_FILE: {values['KAFKA_PASSWORD_FILE']} cannot be read ({error.strerror})"
            ) from error
        return cls(
            bootstrap_servers=tuple(values["KAFKA_BOOTSTRAP_SERVERS"].split(",")),
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-512",
            username=values["KAFKA_USERNAME"],
            password=password,
            ca_file=Path(values["KAFKA_CA_FILE"]),
        )

    def kafka_python(self) -> dict[str, Any]:
        """The keyword arguments for every kafka-python client, which is repaired by the way."""
        # Here, for the installation comes by this module before there is any kafka-python.
        from .kafka_client import repair

        repair()
        arguments: dict[str, Any] = {
            "bootstrap_servers": list(self.bootstrap_servers),
            "security_protocol": self.security_protocol,
        }
        if self.security_protocol.endswith("SSL"):
            arguments["ssl_context"] = ssl.create_default_context(cafile=str(self.ca_file) if self.ca_file else None)
        if self.security_protocol.startswith("SASL"):
            arguments |= {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password,
            }
        return arguments

    def java(self) -> dict[str, str]:
        """The properties for a Java client; Spark wants each with the prefix ``kafka.``."""
        properties = {
            "bootstrap.servers": ",".join(self.bootstrap_servers),
            "security.protocol": self.security_protocol,
        }
        if self.sasl_mechanism:
            properties["sasl.mechanism"] = self.sasl_mechanism
            properties["sasl.jaas.config"] = (
                f"{SCRAM_LOGIN_MODULE} required "
                f'username="{_quoted(self.username)}" password="{_quoted(self.password)}";'
            )
        if self.ca_file:
            properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca_file)}
        return properties


def parse_properties(text: str) -> dict[str, str]:
    """Reads Java properties: comments, ``=``, ``:`` or blank as separator, line continuation, backslash escapes."""
    properties: dict[str, str] = {}
    # A line goes on in the next one where an odd number of backslashes ends it.
    logical = re.sub(r"(?<!\\)((?:\\\\)*)\\\r?\n[ \t]*", r"\1", text)
    for line in logical.splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        match = re.match(r"((?:[^\\=:\s]|\\.)+)\s*[=:\s]?\s*(.*)$", stripped)
        if match:
            properties[_unescaped(match[1])] = _unescaped(match[2])
    return properties


def format_properties(properties: Mapping[str, str]) -> str:
    """Writes Java properties, one a line, sorted by name."""
    return "".join(f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in sorted(properties.items()))


def _unescaped(text: str) -> str:
    return re.sub(
        r"\\(u[0-9a-fA-F]{4}|.)",
        lambda m: (
            {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(m[1])
            or (chr(int(m[1][1:], 16)) if len(m[1]) == 5 else m[1])
        ),
        text,
    )


def _quoted(text: str | None) -> str:
    return (text or "").replace("\\", "\\\\").replace('"', '\\"')
