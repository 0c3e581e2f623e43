"""A scenario of one's own in which every user of two regions signs in with a token: listeners offer nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from loosehanger.kafka.oauth import ALLOWED_URLS
from loosehanger.kafka.properties import OAUTH_LOGIN_MODULE, LoginModule, format_jaas

from .identity_provider import AUDIENCE, ISSUER, SCOPE, IdentityProvider
from .sign_in_scenario import CONNECTOR, alias, rule

NAME = "97-tokens"
SOURCE, TARGET = "europe", "north-america"
USERS: Mapping[str, tuple[str, ...]] = {
    SOURCE: ("admin", "prover", f"console-{SOURCE}", "producer", f"mm2-reads-{SOURCE}"),
    TARGET: ("admin", "prover", f"console-{TARGET}", f"consumer-{alias(TARGET)}", "mm2-writes"),
}
"""The users of each region, each a client of the identity provider."""
COPIES = f"{SOURCE}.LH."
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_SCENARIO = f"""\
---
title: Tokens
teaches: An identity provider signs all clients in.
control_room: {SOURCE}
topics: [LH., {COPIES}]
stages:
  setup: {{}}
"""


def authentication(keys: str) -> dict[str, Any]:
    """A listener that takes tokens alone, by the provider's public keys."""
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "oauthbearer.sasl.server.callback.handler.class": f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": keys,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }
    return {"type": "custom", "sasl": True, "listenerConfig": settings}


def write_scenario(kit: Path, provider: IdentityProvider, authority: Path, secrets: Mapping[str, str]) -> None:
    """Puts the scenario into a copy of the kit.

    Args:
        kit: the copy.
        provider: where clients get tokens.
        authority: a file with the provider's certificate authority.
        secrets: the secret of each client.
    """
    folder = kit / "playbooks" / NAME
    (folder / "manifests").mkdir(parents=True)
    (folder / "scenario.yaml").write_text(_SCENARIO, encoding="utf-8")
    (folder / "setup.yaml").write_text(f"---\n{_setup(provider)}", encoding="utf-8")
    pem = authority.read_text(encoding="utf-8")
    found = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": region},
            "stringData": {"password": secrets[name], "identity.crt": pem},
        }
        for region, names in USERS.items()
        for name in names
    ]
    found += [*_users(), _mirror(provider, authority)]
    (folder / "manifests" / "everything.yaml").write_text(yaml.safe_dump_all(found), encoding="utf-8")


def _setup(provider: IdentityProvider) -> str:
    keys = provider.keys.as_uri()
    cluster = {
        "role": "kafka_cluster",
        "kafka_cluster_authentication": authentication(keys),
        "kafka_cluster_token_endpoint": provider.endpoint,
        "kafka_cluster_token_scope": SCOPE,
        "kafka_cluster_token_authority": "identity.crt",
        "kafka_cluster_system_properties": {ALLOWED_URLS: keys},
    }
    both = f"{SOURCE}:{TARGET}"
    plays = [
        {"name": "Clusters", "hosts": both, "roles": [cluster, "kafka_users"]},
        {"name": "A producer", "hosts": SOURCE, "roles": ["kafka_topics", "producer"]},
        {"name": "Its copies", "hosts": TARGET, "roles": ["mirror_maker", "consumer"]},
        {"name": "Consoles", "hosts": both, "roles": ["console"]},
        {"name": "Carry it out", "hosts": "regions", "any_errors_fatal": True, "roles": ["carry_out"]},
    ]
    return yaml.safe_dump(plays, sort_keys=False)


def _users() -> list[dict[str, Any]]:
    reader = f"consumer-{alias(TARGET)}"
    connector = f"mm2-{TARGET}-{SOURCE}->{alias(TARGET)}.MirrorSourceConnector-"
    writes = [
        rule("group", f"mm2-{TARGET}", "Read", prefix=False),
        rule("topic", "__mm2_", "Create", "Describe", "DescribeConfigs", "Read", "Write"),
        rule("topic", f"mm2-offset-syncs.{SOURCE}.internal", "Create", "DescribeConfigs", "Read", "Write"),
        rule("topic", COPIES, "Create", "Write", "Alter", "AlterConfigs"),
        rule("transactionalId", f"connect-cluster-mm2-{TARGET}", "Describe", "Write", prefix=False),
        rule("transactionalId", connector, "Describe", "Write"),
    ]
    return [
        _user(SOURCE, "producer", [rule("topic", "LH.", "Write")]),
        _user(SOURCE, f"mm2-reads-{SOURCE}", [rule("topic", "LH.", "Read", "DescribeConfigs")]),
        _user(TARGET, "mm2-writes", writes),
        _user(TARGET, reader, [rule("topic", COPIES, "Read"), rule("group", reader, "Read")]),
    ]


def _user(region: str, name: str, acls: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaUser",
        "metadata": {"name": name, "namespace": region, "labels": {"strimzi.io/cluster": region}},
        "spec": {"authorization": {"type": "simple", "acls": acls}},
    }


def _end(region: str, name: str, provider: IdentityProvider, authority: Path) -> dict[str, Any]:
    options = {
        "clientId": name,
        "clientSecret": f"${{strimzisecrets:{TARGET}/{name}:password}}",
        "scope": SCOPE,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
    }
    return {
        "alias": alias(region),
        "bootstrapServers": f"{region}-kafka-bootstrap.{region}.svc:9098",
        "tls": {"trustedCertificates": [{"secretName": f"{region}-cluster-ca-cert", "pattern": "*.crt"}]},
        "authentication": {
            "type": "custom",
            "sasl": True,
            "config": {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": format_jaas(LoginModule(OAUTH_LOGIN_MODULE, options)),
                "sasl.login.callback.handler.class": f"{_OAUTH}.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": provider.endpoint,
            },
        },
    }


def _mirror(provider: IdentityProvider, authority: Path) -> dict[str, Any]:
    what = ("config", "offset", "status")
    config = {f"{one}.storage.replication.factor": -1 for one in what}
    target = {
        **_end(TARGET, "mm2-writes", provider, authority),
        "groupId": f"mm2-{TARGET}",
        **{f"{one}StorageTopic": f"__mm2_{one}s" for one in what},
        "config": {**config, "exactly.once.source.support": "enabled"},
    }
    source = {
        "source": _end(SOURCE, f"mm2-reads-{SOURCE}", provider, authority),
        "topicsPattern": r"LH\..*",
        "sourceConnector": {"tasksMax": 1, "config": CONNECTOR},
    }
    java = {"javaSystemProperties": [{"name": ALLOWED_URLS, "value": provider.endpoint}]}
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaMirrorMaker2",
        "metadata": {"name": f"mm2-{TARGET}", "namespace": TARGET},
        "spec": {"replicas": 1, "target": target, "mirrors": [source], "jvmOptions": java},
    }
