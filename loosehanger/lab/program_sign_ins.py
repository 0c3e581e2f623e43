"""Completes the environment of programs whose cluster asks for another sign-in than the kit's usual one.

A Deployment names a cluster, a user, and the folder of the user's secret. How that user signs in follows from the
listener and the KafkaUser, which may belong to another region; so it is filled in once all of them are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from loosehanger.errors import WrongUseError
from loosehanger.lab.manifests import sign_ins
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.token_sign_ins import region_tokens
from loosehanger.lab.topology import Topology

_SERVERS = "KAFKA_BOOTSTRAP_SERVERS"
_ENDPOINT = "KAFKA_TOKEN_ENDPOINT"


def with_sign_ins(
    described: Mapping[str, Iterable[Document]], recorded: Mapping[str, Iterable[Document]]
) -> dict[str, list[Document]]:
    """Returns the described resources, each program with the variables by which its clients sign in.

    Args:
        described: what the roles describe, by region.
        recorded: what was applied before, by region; it counts where nothing newer is described.

    Raises:
        WrongUseError: the user of a program cannot sign in at its cluster.
    """
    found = {region: list(documents) for region, documents in described.items()}
    known = Topology([document for documents in (*found.values(), *recorded.values()) for document in documents])
    return {region: [_completed(document, known) for document in documents] for region, documents in found.items()}


def _completed(document: Document, topology: Topology) -> Document:
    if document.kind != "Deployment":
        return document
    content = deepcopy(document.content)
    pod = ((content.get("spec") or {}).get("template") or {}).get("spec") or {}
    containers = [one for one in pod.get("containers") or () if isinstance(one, dict)]
    for container in containers:
        if isinstance(container.get("env"), list):
            for prefix, sign_in, tokens in list(_unusual(document, container["env"], topology)):
                _complete(pod, container, prefix, sign_in, tokens)
    return document if content == document.content else replace(document, content=content)


def _unusual(
    document: Document, environment: Sequence[Mapping[str, Any]], topology: Topology
) -> Iterator[tuple[str, sign_ins.SignIn, sign_ins.Tokens | None]]:
    """Yields the clients of a program that do not sign in as usual.

    Each with the prefix of its variables, how it signs in, and where it gets tokens, if its cluster says so.
    """
    variables = {str(one.get("name")): str(one.get("value", "")) for one in environment}
    for name, address in variables.items():
        prefix, listener = name.removesuffix(_SERVERS), topology.listener(address)
        if not name.endswith(_SERVERS) or listener is None:
            continue
        region = topology.address(address, document.where()).region
        user = topology.user(region, variables.get(f"{prefix}KAFKA_USERNAME", ""))
        tokens = region_tokens(topology, region)
        sign_in = sign_ins.of_user(listener, user.content if user else None, tokens)
        if sign_in == sign_ins.USUAL and not sign_ins.why_refused(listener, sign_in):
            continue
        if refused := sign_ins.why_refused(listener, sign_in):
            where = user.where("spec", "authentication", "type") if user else document.where()
            raise WrongUseError(f"{where}: {document.reference} cannot sign in: {refused}")
        has_own = bool(variables.get(f"{prefix}{_ENDPOINT}"))
        if sign_in.mechanism == sign_ins.OAUTH and not has_own and tokens is None:
            where = user.where("spec", "authentication") if user else document.where()
            raise WrongUseError(
                f"{where}: {document.reference} cannot sign in with {sign_ins.OAUTH} without {prefix}{_ENDPOINT}; set "
                f"{sign_ins.OAUTH_VARIABLES[sign_ins.OAUTH_ENDPOINT]} of {region} (producer_token_endpoint, "
                f"consumer_token_endpoint for these alone), or offer {sign_ins.SCRAM_512} beside it in "
                f"{sign_ins.ENABLED}, and give the user the type scram-sha-512"
            )
        yield prefix, sign_in, None if has_own else tokens


def _complete(
    pod: dict[str, Any],
    container: dict[str, Any],
    prefix: str,
    sign_in: sign_ins.SignIn,
    tokens: sign_ins.Tokens | None,
) -> None:
    """Writes the variables of one client, in place of the file with a password where it has none."""
    password = f"{prefix}KAFKA_PASSWORD_FILE"
    folder = next((str(one.get("value", "")) for one in container["env"] if one.get("name") == password), "")
    folder = folder.rpartition("/")[0]
    added = {"KAFKA_SECURITY_PROTOCOL": sign_in.security_protocol}
    if sign_in.mechanism:
        added["KAFKA_SASL_MECHANISM"] = sign_in.mechanism
        if tokens and sign_in.mechanism == sign_ins.OAUTH:
            added |= {_ENDPOINT: tokens.endpoint} | ({"KAFKA_TOKEN_SCOPE": tokens.scope} if tokens.scope else {})
            added |= {"KAFKA_TOKEN_CA_FILE": f"{folder}/{tokens.authority}"} if tokens.authority else {}
    else:
        container["env"] = [one for one in container["env"] if one.get("name") != password]
    if sign_in.has_certificate:
        added |= {"KAFKA_CERTIFICATE_FILE": f"{folder}/user.crt", "KAFKA_KEY_FILE": f"{folder}/user.key"}
    elif not sign_in.mechanism:
        _unmount(pod, container, folder)
    own = {one.get("name") for one in container["env"]}
    container["env"] += [
        {"name": f"{prefix}{name}", "value": value} for name, value in added.items() if f"{prefix}{name}" not in own
    ]


def _unmount(pod: dict[str, Any], container: dict[str, Any], folder: str) -> None:
    """Removes the volume that is mounted at a folder: such a user has no secret."""
    gone = {one.get("name") for one in container.get("volumeMounts") or () if one.get("mountPath") == folder}
    container["volumeMounts"] = [one for one in container.get("volumeMounts") or () if one.get("name") not in gone]
    pod["volumes"] = [one for one in pod.get("volumes") or () if one.get("name") not in gone]
