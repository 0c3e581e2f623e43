"""The client properties of a KafkaUser, from its sign-in and the secret that the operators make for it."""

from __future__ import annotations

from collections.abc import Mapping

from loosehanger.kafka.oauth import ALLOWED_URLS, ENDPOINT, ClientCredentials
from loosehanger.kafka.properties import (
    PLAIN_LOGIN_MODULE,
    SCRAM_LOGIN_MODULE,
    LoginModule,
    format_jaas,
    format_properties,
)
from loosehanger.lab.manifests import sign_ins
from loosehanger.lab.manifests.sign_ins import SignIn, Tokens
from loosehanger.lab.token_sign_ins import keys_needed

CERTIFICATE, KEY = "user.crt", "user.key"
"""The keys of the secret of a user with a client certificate, as Strimzi's User Operator names them."""


def jaas_of(mechanism: str, user: str, password: str) -> str:
    """Returns ``sasl.jaas.config`` for a user with a password."""
    module = PLAIN_LOGIN_MODULE if mechanism == sign_ins.PLAIN else SCRAM_LOGIN_MODULE
    return format_jaas(LoginModule(module, {"username": user, "password": password}))


def keys_of(sign_in: SignIn, *, has_jaas: bool, tokens: Tokens | None = None) -> tuple[str, ...]:
    """Returns the keys of a user's secret that ``client_properties`` needs.

    Args:
        sign_in: how the user signs in.
        has_jaas: whether an operator has made the secret, with the whole setting in it.
        tokens: where the users of its cluster get tokens; None for another sign-in.
    """
    if sign_in.mechanism == sign_ins.OAUTH:
        return keys_needed(tokens) if tokens else ()
    if sign_in.mechanism:
        return ("password", "sasl.jaas.config") if has_jaas else ("password",)
    return (CERTIFICATE, KEY) if sign_in.has_certificate else ()


def client_properties(
    sign_in: SignIn,
    user: str,
    secret: Mapping[str, str],
    servers: str,
    authority: str,
    tokens: Tokens | None = None,
) -> dict[str, str] | None:
    """Returns a user's client properties; None for one that has no credentials here.

    Args:
        sign_in: how the user signs in.
        user: the name of its KafkaUser.
        secret: the content of its secret; empty for none.
        servers: the bootstrap servers.
        authority: the path of the certificate authority of the cluster.
        tokens: where the users of the cluster get tokens; None for another sign-in.
    """
    properties = {"bootstrap.servers": servers, "security.protocol": sign_in.security_protocol}
    if sign_in.mechanism == sign_ins.OAUTH:
        if tokens is None or any(key not in secret for key in keys_of(sign_in, has_jaas=False, tokens=tokens)):
            return None
        certificates = secret[tokens.authority] if tokens.authority else None
        properties |= ClientCredentials(
            tokens.endpoint, user, secret["password"].strip(), tokens.scope, ca_certificates=certificates
        ).java()
    elif sign_in.mechanism:
        if "password" not in secret:
            return None
        jaas = secret.get("sasl.jaas.config") or jaas_of(sign_in.mechanism, user, secret["password"])
        properties |= {"sasl.mechanism": sign_in.mechanism, "sasl.jaas.config": jaas}
    if sign_in.has_certificate:
        if CERTIFICATE not in secret or KEY not in secret:
            return None
        properties |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": secret[CERTIFICATE],
            "ssl.keystore.key": secret[KEY],
        }
    if sign_in.is_encrypted:
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    return properties


def client_file(properties: Mapping[str, str]) -> str:
    """Returns the file of a user's client properties, with what Java needs besides."""
    endpoint = properties.get(ENDPOINT)
    about = f"# Java's clients need this option too: -D{ALLOWED_URLS}={endpoint}\n" if endpoint else ""
    return about + format_properties(properties)
