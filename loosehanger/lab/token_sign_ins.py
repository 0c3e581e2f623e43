"""Regions whose users sign in with tokens (OAUTHBEARER): where they get them, and what each needs for it.

A Kafka names the token endpoint in an annotation. The kit's own users and programs of its region follow it, and so do
those programs whose user has rights only.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from loosehanger.errors import WrongUseError
from loosehanger.lab.kit_users import ADMINISTRATOR, PROVER
from loosehanger.lab.manifests import sign_ins
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.manifests.resources import SECRET_KEY
from loosehanger.lab.manifests.sign_ins import OAUTH_AUTHORITY, OAUTH_ENDPOINT, OAUTH_SCOPE, OAUTH_VARIABLES, Tokens
from loosehanger.lab.manifests.views import Program, listeners_of
from loosehanger.lab.topology import Topology

_SERVERS, _USER = "KAFKA_BOOTSTRAP_SERVERS", "KAFKA_USERNAME"


def region_tokens(topology: Topology, region: str) -> Tokens | None:
    """Returns where the users of a region's cluster get tokens; None if it does not say."""
    return next((sign_ins.tokens_of(kafka.content) for kafka in topology.of_kind("Kafka", region)), None)


def keys_needed(tokens: Tokens) -> tuple[str, ...]:
    """Returns the keys of a user's secret that a client needs for tokens."""
    return ("password", *([tokens.authority] if tokens.authority else []))


def check_tokens(topology: Topology) -> None:
    """Checks what clusters say of tokens.

    Raises:
        WrongUseError: the endpoint has no address of http(s), no listener takes tokens, or a secret lacks a key.
    """
    for kafka in topology.of_kind("Kafka"):
        annotations = (kafka.content.get("metadata") or {}).get("annotations") or {}
        named = [name for name in (OAUTH_SCOPE, OAUTH_AUTHORITY) if annotations.get(name)]
        tokens = sign_ins.tokens_of(kafka.content)
        if tokens is None:
            if named:
                raise WrongUseError(_refusal(kafka, named[0], f"needs {OAUTH_VARIABLES[OAUTH_ENDPOINT]} beside it"))
            continue
        parts = urlsplit(tokens.endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            why = f"'{tokens.endpoint}' is not the http(s) address of a token endpoint"
            raise WrongUseError(_refusal(kafka, OAUTH_ENDPOINT, why))
        if not any(sign_ins.OAUTH in sign_ins.mechanisms(listener) for listener in listeners_of(kafka.content)):
            why = (
                f"no listener offers {sign_ins.OAUTH}; add it to {sign_ins.ENABLED} (kafka_cluster_authentication), "
                "or remove the endpoint"
            )
            raise WrongUseError(_refusal(kafka, OAUTH_ENDPOINT, why))
        if tokens.authority and (not SECRET_KEY.fullmatch(tokens.authority) or tokens.authority.startswith(".")):
            why = f"'{tokens.authority}' is not the key of a secret: letters, digits, '-', '_' and '.'"
            raise WrongUseError(_refusal(kafka, OAUTH_AUTHORITY, why))
        _check_keys(topology, kafka, tokens)


def _check_keys(topology: Topology, kafka: Document, tokens: Tokens) -> None:
    needed = keys_needed(tokens)
    users = {user.name for user in users_by_token(topology, kafka.namespace)}
    for secret in topology.of_kind("Secret", kafka.namespace):
        given = {**(secret.content.get("data") or {}), **(secret.content.get("stringData") or {})}
        if secret.name in users and (missing := [key for key in needed if key not in given]):
            raise WrongUseError(
                f"{secret.where('stringData')}: KafkaUser/{secret.name} gets tokens at {tokens.endpoint}; add the key "
                f"{' and '.join(missing)}"
            )


def users_by_token(topology: Topology, region: str) -> list[Document]:
    """Returns the users of a region that need a secret for tokens: the kit's own, and those of its programs.

    Mirrors name their secrets themselves, and a program with an endpoint of its own does not follow the region.
    """
    tokens, listener = region_tokens(topology, region), topology.first_listener(region)
    if tokens is None:
        return []
    names = {ADMINISTRATOR, PROVER} | _users_of_programs(topology, region)
    return [
        user
        for user in topology.of_kind("KafkaUser", region)
        if user.name in names and sign_ins.of_user(listener, user.content, tokens).mechanism == sign_ins.OAUTH
    ]


def _users_of_programs(topology: Topology, region: str) -> set[str]:
    found = set()
    for document in topology.of_kind("Deployment"):
        variables = Program(document.content).variables
        for name, address in variables.items():
            prefix = name.removesuffix(_SERVERS)
            if not name.endswith(_SERVERS) or topology.listener(address) is None:
                continue
            if topology.address(address, document.where()).region == region:
                found.add(variables.get(f"{prefix}{_USER}", ""))
    return found


def lacks_secret(topology: Topology, user: Document) -> str:
    """Says that a user has nothing to show for a token, and what to do."""
    tokens = region_tokens(topology, user.namespace)
    keys = ["'password' (the client's secret)"]
    if tokens and tokens.authority:
        keys.append(f"'{tokens.authority}' (the endpoint's certificate authority)")
    return (
        f"{user.where('spec', 'authentication')}: {user.reference} gets tokens at {tokens.endpoint if tokens else ''}, "
        f"and {user.namespace} has no secret '{user.name}' with {' and '.join(keys)}; add a Secret of that name to the "
        "manifests"
    )


def _refusal(kafka: Document, annotation: str, why: str) -> str:
    return f"{kafka.where('metadata', 'annotations', annotation)} ({OAUTH_VARIABLES[annotation]}): {why}"
