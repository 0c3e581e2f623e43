"""How clients sign in: what a listener asks for, what a KafkaUser has, and what a mirror's end and a program show.

Everything is read from manifests that may not have been checked, in Strimzi's form: listeners of the types ``tls``,
``scram-sha-512`` and ``custom`` (SCRAM-SHA-256, PLAIN, OAUTHBEARER), or without authentication; users of the types
``tls``, ``tls-external`` and ``scram-sha-512``, or without credentials of the operator's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

SCRAM_512: Final = "SCRAM-SHA-512"
SCRAM_256: Final = "SCRAM-SHA-256"
PLAIN: Final = "PLAIN"
OAUTH: Final = "OAUTHBEARER"
MECHANISMS: Final = (SCRAM_512, SCRAM_256, PLAIN, OAUTH)
"""The SASL mechanisms that the kit knows; its own users prefer the first that a listener offers."""
TLS: Final = "tls"
TLS_EXTERNAL: Final = "tls-external"
ENABLED: Final = "sasl.enabled.mechanisms"
"""The setting of a listener of the type ``custom`` that lists its mechanisms."""
PLAIN_USERS: Final = "plain.sasl.jaas.config"
"""The setting with the users of a listener with PLAIN."""
REFERENCE: Final = re.compile(
    r"\$\{strimzisecrets:(?P<namespace>[a-z0-9][-a-z0-9]*)/(?P<secret>[a-z0-9][-a-z0-9.]*):(?P<key>[-._a-zA-Z0-9]+)\}"
)
"""A reference to a key of a Secret, as Strimzi's own pods resolve it."""
OAUTH_ENDPOINT: Final = "loosehanger-lab/token-endpoint"
OAUTH_SCOPE: Final = "loosehanger-lab/token-scope"
OAUTH_AUTHORITY: Final = "loosehanger-lab/token-authority"
"""The annotations of a Kafka that say where its users get tokens for OAUTHBEARER."""
OAUTH_VARIABLES: Final = {
    OAUTH_ENDPOINT: "kafka_cluster_token_endpoint",
    OAUTH_SCOPE: "kafka_cluster_token_scope",
    OAUTH_AUTHORITY: "kafka_cluster_token_authority",
}
"""The role's variable for each of them."""
_OF_TYPE: Final = {"scram-sha-512": SCRAM_512, "scram-sha-256": SCRAM_256, "plain": PLAIN}
Content = Mapping[str, Any]


@dataclass(frozen=True)
class SignIn:
    """How a client signs in."""

    is_encrypted: bool
    """Whether it speaks TLS."""
    mechanism: str = ""
    """The SASL mechanism; empty for none."""
    has_certificate: bool = False
    """Whether it shows a certificate of its own."""

    @property
    def security_protocol(self) -> str:
        """As in Kafka's clients."""
        return ("SASL_" if self.mechanism else "") + ("SSL" if self.is_encrypted else "PLAINTEXT")

    def __str__(self) -> str:
        kind = self.mechanism or ("a client certificate" if self.has_certificate else "no sign-in")
        return f"{kind} over {'TLS' if self.is_encrypted else 'plain text'}"


@dataclass(frozen=True)
class Tokens:
    """Where the users of a cluster get tokens: each shows the ``password`` of its secret there."""

    endpoint: str
    """The address of the identity provider's token endpoint."""
    scope: str = ""
    """The scope to ask for; empty for none."""
    authority: str = ""
    """The key of a user's secret with the endpoint's certificate authority; empty for the machine's authorities."""


USUAL: Final = SignIn(is_encrypted=True, mechanism=SCRAM_512)
"""The sign-in of the kit's scenarios."""


def mechanisms(listener: Content) -> tuple[str, ...]:
    """Returns the SASL mechanisms that a listener offers; none for client certificates, or no sign-in at all."""
    authentication = listener.get("authentication") or {}
    if authentication.get("type") != "custom":
        mechanism = _OF_TYPE.get(str(authentication.get("type")))
        return (mechanism,) if mechanism else ()
    if not authentication.get("sasl"):
        return ()
    listed = str((authentication.get("listenerConfig") or {}).get(ENABLED, ""))
    return tuple(filter(None, (part.strip().upper() for part in listed.split(","))))


def asks_certificate(listener: Content) -> bool:
    """Whether a listener asks its clients for a certificate."""
    return (listener.get("authentication") or {}).get("type") == TLS


def security_protocol(listener: Content) -> str:
    """Returns the security protocol of a listener."""
    return SignIn(bool(listener.get("tls")), "SASL" if mechanisms(listener) else "").security_protocol


def tokens_of(kafka: Content) -> Tokens | None:
    """Returns where the users of a Kafka get tokens; None if it does not say."""
    annotations = (kafka.get("metadata") or {}).get("annotations") or {}
    found = [str(annotations.get(name, "")) for name in (OAUTH_ENDPOINT, OAUTH_SCOPE, OAUTH_AUTHORITY)]
    return Tokens(*found) if found[0] else None


def of_user(listener: Content, user: Content | None, tokens: Tokens | None = None) -> SignIn:
    """Returns how a user signs in at a listener.

    Args:
        listener: an entry of ``spec.kafka.listeners``.
        user: the KafkaUser; None for one that no manifest describes, which signs in as the listener prefers.
        tokens: where the cluster's users get tokens: those without credentials of the operator's do then.
    """
    is_encrypted = bool(listener.get("tls"))
    match user_type(user):
        case "scram-sha-512":
            return SignIn(is_encrypted, SCRAM_512)
        case "tls" | "tls-external":
            return SignIn(is_encrypted, has_certificate=True)
        case _ if tokens and OAUTH in mechanisms(listener):
            return SignIn(is_encrypted, OAUTH)
        case _:
            # The operator's credentials are for SCRAM-SHA-512; a user with rights only has others.
            possible = MECHANISMS if user is None else MECHANISMS[1:]
            offered = mechanisms(listener)
            certificate = user is None and asks_certificate(listener)
            return SignIn(is_encrypted, next((one for one in possible if one in offered), ""), certificate)


def user_type(user: Content | None) -> str:
    """Returns the type of a KafkaUser's authentication; empty for a user with rights only."""
    return str((((user or {}).get("spec") or {}).get("authentication") or {}).get("type", ""))


def type_for(listener: Content, tokens: Tokens | None = None) -> str:
    """Returns the type that a user of the kit needs to sign in at a listener; empty for rights only."""
    if tokens and OAUTH in mechanisms(listener):
        return ""
    if asks_certificate(listener):
        return TLS
    return "scram-sha-512" if SCRAM_512 in mechanisms(listener) else ""


def of_end(end: Content) -> SignIn:
    """Returns how a mirror signs in at one of its ends."""
    authentication = end.get("authentication") or {}
    kind, is_encrypted = str(authentication.get("type", "")), end.get("tls") is not None
    if kind == "custom":
        mechanism = str((authentication.get("config") or {}).get("sasl.mechanism", ""))
        return SignIn(is_encrypted, mechanism if authentication.get("sasl") else "")
    return SignIn(is_encrypted, _OF_TYPE.get(kind, ""), has_certificate=kind == TLS)


def user_of(end: Content) -> str:
    """Returns the KafkaUser that a mirror's end signs in as; empty for one that it does not name."""
    authentication = end.get("authentication") or {}
    return str(authentication.get("username") or (authentication.get("certificateAndKey") or {}).get("secretName", ""))


def principal(name: str, user: Content | None) -> str:
    """Returns the name that ACLs have for a KafkaUser: a certificate's subject for those that show one."""
    return f"CN={name}" if user_type(user) in (TLS, TLS_EXTERNAL) else name


def why_refused(listener: Content, client: SignIn) -> str:
    """Returns why a listener refuses a client, whatever its password or certificate; empty if it does not.

    Args:
        listener: an entry of ``spec.kafka.listeners``.
        client: how the client signs in.
    """
    offered = mechanisms(listener)
    if bool(listener.get("tls")) != client.is_encrypted:
        speaks = "TLS" if listener.get("tls") else "plain text"
        return f"the listener '{listener.get('name')}' speaks {speaks}"
    if asks_certificate(listener) and not client.has_certificate:
        return f"the listener '{listener.get('name')}' asks for a client certificate (type tls)"
    if offered and client.mechanism not in offered:
        return f"the listener '{listener.get('name')}' offers {' and '.join(offered)}, and not {client}"
    if not offered and client.mechanism:
        return f"the listener '{listener.get('name')}' has no {client.mechanism}"
    return ""
