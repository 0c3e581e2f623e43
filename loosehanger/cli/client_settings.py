"""Settings with which the user's own clients reach a cluster of the lab: ``./lab client``."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from loosehanger.errors import ExitCode, WrongUseError
from loosehanger.files import write_file
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.oauth import ClientCredentials
from loosehanger.lab.record import Lab, Region
from loosehanger.suggestions import did_you_mean

_OLD_LIBRDKAFKA = """\
# librdkafka 2.6.1 or later: earlier releases cannot sign in to Kafka 4 with SCRAM. Debian 12's kcat has an earlier one.
"""


def run(lab: Lab, options: argparse.Namespace) -> int:
    """Writes the settings into a file that only its owner can read, and prints its path or its content.

    Raises:
        WrongUseError: the region has no cluster or no such user, or its clients run in a pod.
    """
    region = lab.region(options.region)
    path = client_file(region, options.user, options.kind)
    if options.show:
        print(path.read_text(encoding="utf-8"), end="")
    else:
        print(path)
    return ExitCode.DONE


def client_file(region: Region, user: str, kind: str) -> Path:
    """The file with a user's settings for one kind of client: ``java``, ``librdkafka``, ``python`` or ``env``.

    Raises:
        WrongUseError: the region has no cluster or no such user, or its clients run in a pod.
    """
    properties = properties_file(region, user)
    if kind == "java":
        return properties
    ending, render = _KINDS[kind]
    path = properties.with_name(f"{user}.{ending}")
    connection = Connection.from_properties(properties)
    certificate = properties.with_name(f"{user}.crt") if connection.certificate else None
    if certificate and connection.certificate:
        write_file(certificate, connection.certificate.chain)
        write_file(certificate.with_suffix(".key"), connection.certificate.key)
    if connection.credentials:
        connection = _with_authority_in_file(connection, connection.credentials, properties)
    write_file(path, render(connection, certificate))
    return path


def _with_authority_in_file(connection: Connection, credentials: ClientCredentials, properties: Path) -> Connection:
    """Writes the authority of a token endpoint into a file of its own, which other clients than Java's want."""
    if not credentials.ca_certificates:
        return connection
    path = properties.with_suffix(".identity.crt")
    write_file(path, credentials.ca_certificates)
    return replace(connection, credentials=replace(credentials, ca_file=path, ca_certificates=None))


def properties_file(region: Region, user: str) -> Path:
    """The properties with which a user's Java clients and Kafka's own tools reach the region's cluster.

    Raises:
        WrongUseError: the region has no cluster or no such user, or its clients run in a pod.
    """
    if region.pod is not None:
        raise WrongUseError(
            f"{region.name}: its cluster is reachable only from within Kubernetes; the user's name and password are in "
            f"the secret '{user}': kubectl -n {region.pod.namespace} get secret {user} -o yaml"
        )
    if not region.clients:
        raise WrongUseError(f"{region.name} has no cluster of its own")
    if user not in region.clients:
        hint = did_you_mean(user, region.clients) or f"; its users are: {', '.join(sorted(region.clients))}"
        raise WrongUseError(f"{region.name} has no user '{user}'{hint}")
    return region.clients[user]


def _librdkafka(connection: Connection, certificate: Path | None) -> str:
    settings = {
        "bootstrap.servers": ",".join(connection.bootstrap_servers),
        "security.protocol": connection.security_protocol,
        "sasl.mechanism": connection.sasl_mechanism,
        **(_oidc(tokens) if (tokens := connection.credentials) else {"sasl.username": connection.username}),
        "sasl.password": connection.password,
        "ssl.ca.location": str(connection.ca_file) if connection.ca_file else None,
        "ssl.certificate.location": str(certificate) if certificate else None,
        "ssl.key.location": str(certificate.with_suffix(".key")) if certificate else None,
    }
    # Not Java's format: librdkafka has no escapes in values.
    return _OLD_LIBRDKAFKA + "".join(f"{name}={value}\n" for name, value in _given(settings).items())


def _oidc(tokens: ClientCredentials) -> dict[str, str | None]:
    """librdkafka's settings of client credentials."""
    return {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": tokens.client_id,
        "sasl.oauthbearer.client.secret": tokens.client_secret,
        "sasl.oauthbearer.token.endpoint.url": tokens.endpoint,
        "sasl.oauthbearer.scope": tokens.scope or None,
        "https.ca.location": str(tokens.ca_file) if tokens.ca_file else None,
    }


def _python(connection: Connection, certificate: Path | None) -> str:
    if connection.credentials:
        raise WrongUseError(
            f"the user '{connection.username}' signs in with OAUTHBEARER, for which kafka-python needs a program of "
            "yours that gets tokens; use --java, --librdkafka or --env"
        )
    settings: dict[str, object] = {
        "bootstrap_servers": list(connection.bootstrap_servers),
        "security_protocol": connection.security_protocol,
        "sasl_mechanism": connection.sasl_mechanism,
        "sasl_plain_username": connection.username,
        "sasl_plain_password": connection.password,
        "ssl_cafile": str(connection.ca_file) if connection.ca_file else None,
        "ssl_certfile": str(certificate) if certificate else None,
        "ssl_keyfile": str(certificate.with_suffix(".key")) if certificate else None,
    }
    lines = [f"    {name!r}: {value!r},\n" for name, value in settings.items() if value is not None]
    about = '"""Keyword arguments of kafka-python, as in KafkaConsumer("LH.ORDERS", **SETTINGS)."""'
    return f"{about}\n\nSETTINGS = {{\n{''.join(lines)}}}\n"


def _environment(connection: Connection, certificate: Path | None) -> str:
    tokens = connection.credentials
    settings = {
        "KAFKA_BOOTSTRAP_SERVERS": ",".join(connection.bootstrap_servers),
        "KAFKA_SECURITY_PROTOCOL": connection.security_protocol,
        "KAFKA_SASL_MECHANISM": connection.sasl_mechanism,
        "KAFKA_USERNAME": connection.username,
        "KAFKA_PASSWORD": tokens.client_secret if tokens else connection.password,
        "KAFKA_TOKEN_ENDPOINT": tokens.endpoint if tokens else None,
        "KAFKA_TOKEN_SCOPE": (tokens.scope or None) if tokens else None,
        "KAFKA_TOKEN_CA_FILE": str(tokens.ca_file) if tokens and tokens.ca_file else None,
        "KAFKA_CA_FILE": str(connection.ca_file) if connection.ca_file else None,
        "KAFKA_CERTIFICATE_FILE": str(certificate) if certificate else None,
        "KAFKA_KEY_FILE": str(certificate.with_suffix(".key")) if certificate else None,
    }
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in _given(settings).items())


def _given(settings: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if value is not None}


_KINDS: Mapping[str, tuple[str, Callable[[Connection, Path | None], str]]] = {
    "librdkafka": ("librdkafka.properties", _librdkafka),
    "python": ("kafka_python.py", _python),
    "env": ("env", _environment),
}
"""Kinds of clients other than Java's, each with the suffix of its file."""
