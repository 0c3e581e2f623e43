"""A scenario of one's own whose regions differ in how clients sign in: SCRAM-SHA-256, PLAIN over TLS, mutual TLS."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

NAME = "98-sign-ins"
SCENARIO = """\
---
title: Sign-ins
teaches: Every region signs its clients in in its own way.
control_room: europe
topics: [LH., europe.LH., northamerica.LH., southamerica.LH.]
stages:
  setup: {}
"""
LISTENERS: Mapping[str, Mapping[str, Any]] = {
    "europe": {"type": "custom", "sasl": True, "listenerConfig": {"sasl.enabled.mechanisms": "SCRAM-SHA-256"}},
    "north-america": {"type": "custom", "sasl": True, "listenerConfig": {"sasl.enabled.mechanisms": "PLAIN"}},
    "south-america": {"type": "tls"},
}
"""How the clients of each region sign in."""
_SOURCES = {"europe": "south-america", "north-america": "europe", "south-america": "north-america"}
"""Where each region's mirror copies from: a ring, in which the default policy keeps copies from going round."""
CONNECTOR = {
    "replication.factor": -1,
    "exactly.once.support": "required",
    "source.consumer.isolation.level": "read_committed",
    "refresh.topics.interval.seconds": 5,
    "sync.topic.acls.enabled": False,
    "offset-syncs.topic.location": "target",
    "offset-syncs.topic.replication.factor": -1,
}
"""The settings of a mirror's source connector."""
_CONNECT = ("config", "offset", "status")


def alias(region: str) -> str:
    """The name of a region in the mirrors."""
    return region.replace("-", "")


def setup() -> str:
    """The playbook."""
    plays: list[dict[str, object]] = [
        {
            "name": f"A cluster in {region}",
            "hosts": region,
            "roles": [{"role": "kafka_cluster", "kafka_cluster_authentication": dict(authentication)}, "kafka_users"],
        }
        for region, authentication in LISTENERS.items()
    ]
    regions = ":".join(LISTENERS)
    plays += [
        {"name": "Programs", "hosts": regions, "roles": ["kafka_topics", "producer", "mirror_maker", "consumer"]},
        {"name": "Everybody looks", "hosts": regions, "roles": ["console"]},
        {"name": "Carry it out", "hosts": "regions", "any_errors_fatal": True, "roles": ["carry_out"]},
    ]
    return yaml.safe_dump(plays, sort_keys=False)


def user(region: str, name: str, acls: list[dict[str, Any]]) -> dict[str, Any]:
    """A KafkaUser, which signs in as its region's listener asks."""
    spec: dict[str, Any] = {"authorization": {"type": "simple", "acls": acls}}
    if LISTENERS[region]["type"] == "tls":
        spec["authentication"] = {"type": "tls"}
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaUser",
        "metadata": {"name": name, "namespace": region, "labels": {"strimzi.io/cluster": region}},
        "spec": spec,
    }


def rule(kind: str, name: str, *operations: str, prefix: bool = True) -> dict[str, Any]:
    """One ACL."""
    pattern = "prefix" if prefix else "literal"
    return {"resource": {"type": kind, "name": name, "patternType": pattern}, "operations": list(operations)}


def writes_copies(source: str, target: str) -> list[dict[str, Any]]:
    """The ACLs at the target of the mirror ``mm2-TARGET``, with the default policy and exactly-once."""
    name = f"mm2-{target}"
    connector = f"{name}-{alias(source)}->{alias(target)}.MirrorSourceConnector-"
    return [
        rule("group", name, "Read", prefix=False),
        rule("topic", "__mm2_", "Create", "Describe", "DescribeConfigs", "Read", "Write"),
        rule("topic", f"mm2-offset-syncs.{alias(source)}.internal", "Create", "DescribeConfigs", "Read", "Write"),
        rule("topic", f"{alias(source)}.LH.", "Create", "Write", "Alter", "AlterConfigs"),
        rule("transactionalId", f"connect-cluster-{name}", "Describe", "Write", prefix=False),
        rule("transactionalId", connector, "Describe", "Write"),
    ]


def end(region: str, name: str) -> dict[str, Any]:
    """An end of a mirror."""
    secret = {"secretName": name, "password": "password"}
    authentication: dict[str, Any] = {
        "europe": {"type": "scram-sha-256", "username": name, "passwordSecret": secret},
        "north-america": {"type": "plain", "username": name, "passwordSecret": secret},
        "south-america": {
            "type": "tls",
            "certificateAndKey": {"secretName": name, "certificate": "user.crt", "key": "user.key"},
        },
    }[region]
    return {
        "alias": alias(region),
        "bootstrapServers": f"{region}-kafka-bootstrap.{region}.svc:9098",
        "tls": {"trustedCertificates": [{"secretName": f"{region}-cluster-ca-cert", "pattern": "*.crt"}]},
        "authentication": authentication,
    }


def mirror(target: str) -> dict[str, Any]:
    """The mirror that writes to a region."""
    name, source = f"mm2-{target}", _SOURCES[target]
    state = {f"{what}StorageTopic": f"__mm2_{what}s" for what in _CONNECT}
    factors = {f"{what}.storage.replication.factor": -1 for what in _CONNECT}
    partitions = {"offset.storage.partitions": 1, "status.storage.partitions": 1}
    config = {**factors, **partitions, "exactly.once.source.support": "enabled"}
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaMirrorMaker2",
        "metadata": {"name": name, "namespace": target},
        "spec": {
            "replicas": 1,
            "target": {**end(target, "mm2-writes"), "groupId": name, **state, "config": config},
            "mirrors": [
                {
                    "source": end(source, f"mm2-reads-{source}"),
                    "topicsPattern": r"LH\..*",
                    "sourceConnector": {"tasksMax": 1, "config": CONNECTOR},
                }
            ],
        },
    }


def resources() -> list[dict[str, Any]]:
    """The users and mirrors of all regions."""
    found = []
    for region, source in _SOURCES.items():
        copies, consumer = f"{alias(source)}.LH.", f"consumer-{alias(region)}"
        found += [
            user(region, "producer", [rule("topic", "LH.", "Write")]),
            user(region, f"mm2-reads-{region}", [rule("topic", "LH.", "Read", "DescribeConfigs")]),
            user(region, "mm2-writes", writes_copies(source, region)),
            user(
                region,
                consumer,
                [rule("topic", "LH.", "Read"), rule("topic", copies, "Read"), rule("group", consumer, "Read")],
            ),
            mirror(region),
        ]
    return found


def clusters() -> list[dict[str, Any]]:
    """The regions' clusters, as far as clients see them."""
    return [
        {
            "apiVersion": "kafka.strimzi.io/v1",
            "kind": "Kafka",
            "metadata": {"name": region, "namespace": region},
            "spec": {
                "kafka": {
                    "authorization": {"type": "simple"},
                    "listeners": [
                        {
                            "name": "internal",
                            "port": 9098,
                            "type": "internal",
                            "tls": True,
                            "authentication": dict(authentication),
                        }
                    ],
                }
            },
        }
        for region, authentication in LISTENERS.items()
    ]


def write_scenario(kit: Path) -> None:
    """Puts the scenario into a copy of the kit."""
    folder = kit / "playbooks" / NAME
    (folder / "manifests").mkdir(parents=True)
    (folder / "scenario.yaml").write_text(SCENARIO, encoding="utf-8")
    (folder / "setup.yaml").write_text(f"---\n{setup()}", encoding="utf-8")
    text = yaml.safe_dump_all(resources(), explicit_start=True, sort_keys=False)
    (folder / "manifests" / "everything.yaml").write_text(text, encoding="utf-8")
