"""Checks that users without credentials of the operator's have theirs from elsewhere.

Strimzi's User Operator makes passwords for SCRAM-SHA-512, and certificates. For SCRAM-SHA-256 and PLAIN a KafkaUser has
rights only: its secret, and the credentials in the cluster, are set up by hand. With a token endpoint the secret of a
user of the kit has the client's secret.
"""

from __future__ import annotations

from collections.abc import Iterator

from loosehanger.errors import WrongUseError
from loosehanger.lab.manifests import sign_ins
from loosehanger.lab.manifests.views import listeners_of
from loosehanger.lab.plan import Plan
from loosehanger.lab.token_sign_ins import keys_needed, lacks_secret, region_tokens, users_by_token
from loosehanger.platforms.kubernetes.apply import RegionNamespace


def check_sign_ins(region: RegionNamespace, plan: Plan) -> None:
    """Checks the listeners and the users of a region.

    Raises:
        WrongUseError: a listener with PLAIN lists no users, or a user has no secret; the message lists all of them.
    """
    if refused := list(_refused(region, plan)):
        raise WrongUseError("; ".join(refused))


def _refused(region: RegionNamespace, plan: Plan) -> Iterator[str]:
    listeners = [
        (kafka, index, listener)
        for kafka in plan.topology.of_kind("Kafka", region.name)
        for index, listener in enumerate(listeners_of(kafka.content))
    ]
    for kafka, index, listener in listeners:
        own = (listener.get("authentication") or {}).get("listenerConfig") or {}
        if sign_ins.PLAIN in sign_ins.mechanisms(listener) and sign_ins.PLAIN_USERS not in own:
            path = ("spec", "kafka", "listeners", index, "authentication", "listenerConfig", sign_ins.PLAIN_USERS)
            yield f"{kafka.where(*path)}: is missing; the operator makes no users for PLAIN, so list them here"
    secrets = {document.name for document in plan.topology.of_kind("Secret", region.name)}
    for user in plan.topology.of_kind("KafkaUser", region.name):
        sign_in = sign_ins.of_user(plan.topology.first_listener(region.name), user.content)
        if sign_ins.user_type(user.content) or sign_in.mechanism in ("", sign_ins.OAUTH) or user.name in secrets:
            continue
        if region.cluster.get("v1", "Secret", user.name, region.name) is None:
            yield (
                f"{user.where('spec', 'authentication')}: the operator makes no credentials for {sign_in.mechanism}; "
                f"create them, and the secret '{user.name}' with the key 'password' in {region.name}"
            )
    if (tokens := region_tokens(plan.topology, region.name)) is None:
        return
    for user in users_by_token(plan.topology, region.name):
        there = region.cluster.get("v1", "Secret", user.name, region.name) or {}
        has_keys = (there.get("data") or {}).keys() >= set(keys_needed(tokens))
        if user.name not in secrets and not has_keys:
            yield lacks_secret(plan.topology, user)
