"""A scenario of one's own in which every user of two regions signs in with a token: listeners offer nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from loosehanger.kafka.oauth import ALLOWED_URLS

from .identity_provider import SCOPE, IdentityProvider
from .sign_in_scenario import CONNECTOR, alias, rule, writes_copies

NAME = "97-tokens"
SOURCE, TARGET = "europe", "north-america"
USERS: Mapping[str, tuple[str, ...]] = {
    SOURCE: ("admin", "prover", f"console-{SOURCE}", "producer", f"mm2-reads-{SOURCE}"),
    TARGET: ("admin", "prover", f"console-{TARGET}", f"consumer-{alias(TARGET)}", "mm2-writes"),
}
"""The users of each region, each a client of the identity provider."""
COPIES = f"{SOURCE}.LH."
_SCENARIO = f"""\
---
title: Tokens
teaches: An identity provider signs all clients in.
control_room: {SOURCE}
topics: [LH., {COPIES}]
stages:
  setup: {{}}
"""


def write_scenario(kit: Path, provider: IdentityProvider, secrets: Mapping[str, str]) -> None:
    """Puts the scenario into a copy of the kit.

    Args:
        kit: the copy.
        provider: where clients get tokens.
        secrets: the secret of each client.
    """
    folder = kit / "playbooks" / NAME
    (folder / "manifests").mkdir(parents=True)
    (folder / "scenario.yaml").write_text(_SCENARIO, encoding="utf-8")
    (folder / "setup.yaml").write_text(f"---\n{_setup(provider)}", encoding="utf-8")
    pem = provider.authority.read_text(encoding="utf-8")
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
    found += [*_users(), _mirror(provider)]
    (folder / "manifests" / "everything.yaml").write_text(yaml.safe_dump_all(found), encoding="utf-8")


def _setup(provider: IdentityProvider) -> str:
    cluster = {
        "role": "kafka_cluster",
        "kafka_cluster_authentication": provider.listener(),
        "kafka_cluster_token_endpoint": provider.endpoint,
        "kafka_cluster_token_scope": SCOPE,
        "kafka_cluster_token_authority": "identity.crt",
        "kafka_cluster_system_properties": {ALLOWED_URLS: provider.keys.as_uri()},
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
    return [
        _user(SOURCE, "producer", [rule("topic", "LH.", "Write")]),
        _user(SOURCE, f"mm2-reads-{SOURCE}", [rule("topic", "LH.", "Read", "DescribeConfigs")]),
        _user(TARGET, "mm2-writes", writes_copies(SOURCE, TARGET)),
        _user(TARGET, reader, [rule("topic", COPIES, "Read"), rule("group", reader, "Read")]),
    ]


def _user(region: str, name: str, acls: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaUser",
        "metadata": {"name": name, "namespace": region, "labels": {"strimzi.io/cluster": region}},
        "spec": {"authorization": {"type": "simple", "acls": acls}},
    }


def _end(region: str, name: str, provider: IdentityProvider) -> dict[str, Any]:
    return {
        "alias": alias(region),
        "bootstrapServers": f"{region}-kafka-bootstrap.{region}.svc:9098",
        "tls": {"trustedCertificates": [{"secretName": f"{region}-cluster-ca-cert", "pattern": "*.crt"}]},
        "authentication": provider.mirror(name, f"${{strimzisecrets:{TARGET}/{name}:password}}"),
    }


def _mirror(provider: IdentityProvider) -> dict[str, Any]:
    what = ("config", "offset", "status")
    config = {f"{one}.storage.replication.factor": -1 for one in what}
    target = {
        **_end(TARGET, "mm2-writes", provider),
        "groupId": f"mm2-{TARGET}",
        **{f"{one}StorageTopic": f"__mm2_{one}s" for one in what},
        "config": {**config, "exactly.once.source.support": "enabled"},
    }
    source = {
        "source": _end(SOURCE, f"mm2-reads-{SOURCE}", provider),
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
