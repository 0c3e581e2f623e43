"""How a client reaches a Kafka cluster: read from Java properties or the environment, given to kafka-python or Spark.

The properties file is the one that Kafka's own command line tools take (``--command-config``), so one file serves
every client. SCRAM, PLAIN and OAUTHBEARER by client credentials, with TLS or without, TLS alone, client certificates
and plaintext are understood: what the kit's clusters and the usual real ones offer.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from loosehanger.errors import WrongUseError
from loosehanger.kafka.key_stores import (
    KEY_STORE,
    ClientCertificate,
    read_key_store,
    read_trust_store,
    trusting_context,
)
from loosehanger.kafka.oauth import ENDPOINT, ClientCredentials, read_credentials
from loosehanger.kafka.properties import (
    OAUTH_LOGIN_MODULE,
    PLAIN_LOGIN_MODULE,
    LoginModule,
    format_jaas,
    of_librdkafka,
    parse_jaas,
    read_properties,
    resolve,
    unknown_properties,
)
from loosehanger.kafka.properties import SCRAM_LOGIN_MODULE as SCRAM_LOGIN_MODULE
from loosehanger.kafka.properties import format_properties as format_properties
from loosehanger.kafka.properties import parse_properties as parse_properties

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SCRAM = ("SCRAM-SHA-512", "SCRAM-SHA-256")
_OAUTH = "OAUTHBEARER"
_PASSWORDS = (*_SCRAM, "PLAIN")
"""The mechanisms by which a user has a password."""
_MECHANISMS = (*_PASSWORDS, _OAUTH)
_MSK_IAM = "software.amazon.msk.auth.iam."
_NOT_YET = {
    "GSSAPI": "GSSAPI (Kerberos)",
    "AWS_MSK_IAM": "AWS_MSK_IAM (IAM of Amazon MSK)",
}


class HasClientFiles(Protocol):
    """The source of users' client properties: a region of the lab's record."""

    @property
    def variables(self) -> Mapping[str, str] | None:
        """The variables that placeholders in these files may name; None for the kit's own files, which have none."""

    @property
    def properties(self) -> Mapping[str, Mapping[str, str]]:
        """The client properties of users that have no file, with placeholders."""

    def client_file(self, user: str) -> Path:
        """The file of a user."""


@dataclass(frozen=True)
class Connection:
    """One user's way into one cluster. ``password`` never shows in ``repr``."""

    bootstrap_servers: tuple[str, ...]
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    username: str | None = None
    """With OAUTHBEARER the client's id."""
    password: str | None = None
    credentials: ClientCredentials | None = None
    """For the tokens of OAUTHBEARER."""
    ca_file: Path | None = None
    ca_certificates: str | None = None
    """Certificate authorities in PEM, in place of a file."""
    certificate: ClientCertificate | None = None
    """What it shows to a broker that asks for one (mutual TLS)."""
    check_host: bool = True
    """Whether the broker's certificate must be for the name that it was reached by."""

    def __repr__(self) -> str:
        return f"Connection({','.join(self.bootstrap_servers)} as {self.username or 'anonymous'})"

    @property
    def principal(self) -> str:
        """The name by which ACLs know the user: with a client certificate its subject."""
        if self.username:
            return self.username
        return self.certificate.subject if self.certificate else "ANONYMOUS"

    @classmethod
    def from_properties(
        cls,
        path: Path,
        environment: Mapping[str, str] | None = None,
        warn: Callable[[str], object] | None = None,
    ) -> Connection:
        """Reads a client properties file.

        Args:
            path: the file.
            environment: the variables that placeholders may name. None for a file of the kit's own, which has no
                placeholders, and whose trust store is the kit's.
            warn: takes a line about each property that has no effect.

        Raises:
            WrongUseError: the file or its trust store is missing, or has a setting that cannot be used.
        """
        properties = read_properties(path)
        if environment is None:
            return cls.of_properties(properties, str(path))
        return cls.with_placeholders(properties, str(path), environment, warn)

    @classmethod
    def with_placeholders(
        cls,
        properties: Mapping[str, str],
        where: str,
        environment: Mapping[str, str],
        warn: Callable[[str], object] | None = None,
    ) -> Connection:
        """Resolves and interprets the user's own client properties, and checks their trust store.

        Args:
            properties: what was read.
            where: where they stand, for messages.
            environment: the variables that placeholders may name.
            warn: takes a line about each property that has no effect.

        Raises:
            WrongUseError: a setting cannot be used, or a variable is not set.
        """
        properties = resolve(properties, environment, where)
        connection = cls.of_properties(properties, where)
        try:
            connection.trust()
        except ssl.SSLError as error:
            raise WrongUseError(f"{where}: the trust store has no certificate in PEM that can be read") from error
        except OSError as error:
            raise WrongUseError(
                f"{where}: ssl.truststore.location: {connection.ca_file} cannot be read ({error.strerror})"
            ) from error
        for said in (*unknown_properties(properties), *_without_effect(properties)) if warn else ():
            warn(f"warning: {where}: {said}")  # type: ignore[misc]
        return connection

    @classmethod
    def parse(cls, text: str, path: str) -> Connection:
        """Interprets client properties.

        Args:
            text: the properties.
            path: where they stand, for messages.

        Raises:
            WrongUseError: a setting cannot be used.
        """
        return cls.of_properties(parse_properties(text, path), path)

    @classmethod
    def of_properties(cls, properties: Mapping[str, str], path: str) -> Connection:
        """Interprets client properties that have been read, as ``parse`` does."""
        properties = of_librdkafka(properties, path)
        servers = tuple(filter(None, (part.strip() for part in properties.get("bootstrap.servers", "").split(","))))
        if not servers:
            raise WrongUseError(
                f"{path}: bootstrap.servers is missing; Kafka's tools take it as an option, here it is in the file"
            )
        for server in servers:
            if not re.search(r":[0-9]{1,5}$", server):
                raise WrongUseError(f"{path}: bootstrap.servers: '{server}' is not HOST:PORT")
        protocol = properties.get("security.protocol", "").strip().upper() or "PLAINTEXT"
        if protocol not in _PROTOCOLS:
            raise WrongUseError(
                f"{path}: security.protocol: '{protocol}' is not one that Kafka knows ({', '.join(_PROTOCOLS)})"
            )
        mechanism = username = password = credentials = ca_file = ca_certificates = certificate = None
        check_host = True
        if protocol.startswith("SASL"):
            mechanism = _mechanism(properties, path)
            if mechanism == _OAUTH:
                credentials = read_credentials(properties, path)
                username = credentials.client_id
            else:
                username, password = _user(properties, path)
        if protocol.endswith("SSL"):
            ca_file, ca_certificates = read_trust_store(properties, path)
            certificate = read_key_store(properties, path)
            # An empty algorithm turns the verification of the broker's name off; librdkafka calls it "none".
            check_host = properties.get("ssl.endpoint.identification.algorithm", "https").strip() not in ("", "none")
        return cls(
            bootstrap_servers=servers,
            security_protocol=protocol,
            sasl_mechanism=mechanism,
            username=username,
            password=password,
            credentials=credentials,
            ca_file=ca_file,
            ca_certificates=ca_certificates,
            certificate=certificate,
            check_host=check_host,
        )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Connection:
        """Reads the environment that a Deployment of the kit gets.

        The variables are KAFKA_BOOTSTRAP_SERVERS, KAFKA_USERNAME, KAFKA_PASSWORD_FILE and KAFKA_CA_FILE; for other
        clusters than those with SCRAM-SHA-512 also KAFKA_SECURITY_PROTOCOL, KAFKA_SASL_MECHANISM, and in place of the
        password KAFKA_CERTIFICATE_FILE and KAFKA_KEY_FILE. With OAUTHBEARER user and password are the client's id and
        secret at KAFKA_TOKEN_ENDPOINT, with KAFKA_TOKEN_SCOPE and KAFKA_TOKEN_CA_FILE if they are needed.

        Raises:
            WrongUseError: a variable is missing, names a file that cannot be read, or has an impossible value.
        """
        protocol = environment.get("KAFKA_SECURITY_PROTOCOL") or "SASL_SSL"
        mechanism = environment.get("KAFKA_SASL_MECHANISM") or "SCRAM-SHA-512"
        possible = {"KAFKA_SECURITY_PROTOCOL": (protocol, _PROTOCOLS), "KAFKA_SASL_MECHANISM": (mechanism, _MECHANISMS)}
        for name, (value, values) in possible.items():
            if value not in values:
                raise WrongUseError(f"{name}: '{value}' is not possible; expected {', '.join(values)}")
        signs_in, is_encrypted = protocol.startswith("SASL"), protocol.endswith("SSL")
        has_certificate = is_encrypted and bool(environment.get("KAFKA_CERTIFICATE_FILE"))
        needed = [
            "KAFKA_BOOTSTRAP_SERVERS",
            *(["KAFKA_USERNAME", "KAFKA_PASSWORD_FILE"] if signs_in else []),
            *(["KAFKA_TOKEN_ENDPOINT"] if signs_in and mechanism == _OAUTH else []),
            *(["KAFKA_CERTIFICATE_FILE", "KAFKA_KEY_FILE"] if has_certificate else []),
            *(["KAFKA_CA_FILE"] if is_encrypted else []),
        ]
        for name in needed:
            if not environment.get(name):
                raise WrongUseError(f"{name} is not set; set it, or give --config FILE.properties")
        certificate = None
        if has_certificate:
            chain, key = (_content_of(environment, f"KAFKA_{name}_FILE") for name in ("CERTIFICATE", "KEY"))
            store = {"ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
            certificate = read_key_store(store, environment["KAFKA_CERTIFICATE_FILE"])
        user = environment["KAFKA_USERNAME"] if signs_in else None
        password = _content_of(environment, "KAFKA_PASSWORD_FILE").strip() if signs_in else None
        credentials = None
        if signs_in and mechanism == _OAUTH:
            credentials = _client_credentials(environment, str(user), str(password))
        return cls(
            bootstrap_servers=tuple(environment["KAFKA_BOOTSTRAP_SERVERS"].split(",")),
            security_protocol=protocol,
            sasl_mechanism=mechanism if signs_in else None,
            username=user,
            password=None if credentials else password,
            credentials=credentials,
            ca_file=Path(environment["KAFKA_CA_FILE"]) if is_encrypted else None,
            certificate=certificate,
        )

    def kafka_python(self) -> dict[str, Any]:
        """The keyword arguments for every kafka-python client, after patching the library."""
        # Imported here, because the installation loads this module before kafka-python is there.
        from loosehanger.kafka.patches import repair

        repair()
        arguments: dict[str, Any] = {
            "bootstrap_servers": list(self.bootstrap_servers),
            "security_protocol": self.security_protocol,
        }
        if self.security_protocol.endswith("SSL"):
            arguments["ssl_context"] = self.trust()
        if self.credentials:
            from loosehanger.kafka.token_provider import SharedTokens

            tokens = SharedTokens(self.credentials)
            arguments |= {"sasl_mechanism": self.sasl_mechanism, "sasl_oauth_token_provider": tokens}
        elif self.security_protocol.startswith("SASL"):
            arguments |= {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password,
            }
        return arguments

    def trust(self) -> ssl.SSLContext | None:
        """The TLS context, with the trusted authorities and the client certificate; None without TLS.

        Raises:
            OSError: the trust store cannot be read; ``ssl.SSLError`` where there is no certificate in it.
        """
        if not self.security_protocol.endswith("SSL"):
            return None
        context = trusting_context(self.ca_file, self.ca_certificates)
        context.check_hostname = self.check_host
        if self.certificate:
            self.certificate.load_into(context)
        return context

    def java(self) -> dict[str, str]:
        """The properties for a Java client; Spark wants each with the prefix ``kafka.``."""
        properties = {
            "bootstrap.servers": ",".join(self.bootstrap_servers),
            "security.protocol": self.security_protocol,
        }
        if self.credentials:
            properties |= self.credentials.java()
        elif self.sasl_mechanism:
            module = PLAIN_LOGIN_MODULE if self.sasl_mechanism == "PLAIN" else SCRAM_LOGIN_MODULE
            user = {"username": self.username or "", "password": self.password or ""}
            properties["sasl.mechanism"] = self.sasl_mechanism
            properties["sasl.jaas.config"] = format_jaas(LoginModule(module, user))
        if self.ca_file:
            properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca_file)}
        elif self.ca_certificates:
            properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self.ca_certificates}
        if self.certificate:
            properties |= self.certificate.java()
        if not self.check_host:
            properties["ssl.endpoint.identification.algorithm"] = ""
        return properties


def connection_for(region: HasClientFiles, user: str) -> Connection:
    """A user's way into a region's cluster.

    Raises:
        WrongUseError: the region has no such user, or its properties cannot be used.
    """
    if user in region.properties:
        return Connection.with_placeholders(region.properties[user], "client properties", region.variables or {})
    return Connection.from_properties(region.client_file(user), region.variables)


def _client_credentials(environment: Mapping[str, str], client: str, secret: str) -> ClientCredentials:
    options = {"clientId": client, "clientSecret": secret}
    if scope := environment.get("KAFKA_TOKEN_SCOPE"):
        options["scope"] = scope
    if authority := environment.get("KAFKA_TOKEN_CA_FILE"):
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    jaas = format_jaas(LoginModule(OAUTH_LOGIN_MODULE, options))
    properties = {ENDPOINT: environment["KAFKA_TOKEN_ENDPOINT"], "sasl.jaas.config": jaas}
    return read_credentials(properties, "KAFKA_TOKEN_ENDPOINT")


def _content_of(environment: Mapping[str, str], name: str) -> str:
    """The content of the file that a variable names."""
    try:
        return Path(environment[name]).read_text(encoding="utf-8")
    except OSError as error:
        raise WrongUseError(f"{name}: {environment[name]} cannot be read ({error.strerror})") from error


def _mechanism(properties: Mapping[str, str], path: str) -> str:
    mechanism = properties.get("sasl.mechanism", "").strip()
    handlers = (properties.get(f"sasl.{kind}.callback.handler.class", "") for kind in ("login", "client"))
    if any(handler.strip().startswith(_MSK_IAM) for handler in handlers):
        mechanism = "AWS_MSK_IAM"
    if mechanism in _MECHANISMS:
        return mechanism
    instead = f"use a user with {', '.join(_MECHANISMS[:-1])} or {_MECHANISMS[-1]}"
    if not mechanism:
        raise WrongUseError(f"{path}: sasl.mechanism is missing, which means GSSAPI (Kerberos) to Kafka; {instead}")
    if mechanism in _NOT_YET:
        raise WrongUseError(f"{path}: sasl.mechanism: {_NOT_YET[mechanism]} is not supported yet; {instead}")
    raise WrongUseError(f"{path}: sasl.mechanism: '{mechanism}' is unknown; {instead}")


def _user(properties: Mapping[str, str], path: str) -> tuple[str, str]:
    jaas, where = properties.get("sasl.jaas.config", ""), f"{path}: sasl.jaas.config"
    if not jaas.strip():
        raise WrongUseError(
            f"{where} is missing; user and password must be in this file, a JAAS file of a JVM's is not read"
        )
    options = parse_jaas(jaas, where).options
    if missing := [name for name in ("username", "password") if name not in options]:
        raise WrongUseError(f"{where}: {' and '.join(missing)} missing")
    if options.get("tokenauth", "").lower() == "true":
        raise WrongUseError(f"{where}: delegation tokens (tokenauth) are not supported yet")
    return options["username"], options["password"]


def _without_effect(properties: Mapping[str, str]) -> list[str]:
    """The settings that the security protocol leaves unused, although they were probably meant."""
    protocol = properties.get("security.protocol", "").strip().upper() or "PLAINTEXT"
    given = "" if properties.get("security.protocol") else ", Kafka's default"
    unused = []
    if properties.get("sasl.jaas.config") and not protocol.startswith("SASL"):
        unused.append("sasl.jaas.config")
    if not protocol.endswith("SSL"):
        stores = ("ssl.truststore.location", "ssl.truststore.certificates", *KEY_STORE)
        unused += [name for name in stores if properties.get(name)]
    return [f"{name} has no effect, as security.protocol is {protocol}{given}" for name in unused]
