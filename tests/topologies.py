"""Small manifests for tests: regions, users and mirrors in a few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from loosehanger.lab.manifests.documents import Document, read_documents

IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


def address(region: str) -> str:
    """The address of a region's cluster."""
    return f"{region}-kafka-bootstrap.{region}.svc:9098"


def kafka(region: str) -> dict[str, Any]:
    """A cluster with the region's name."""
    listeners = [{"name": "internal", "port": 9098, "type": "internal", "tls": True}]
    return resource("kafka.strimzi.io/v1", "Kafka", region, region, {"kafka": {"listeners": listeners}})


def user(region: str, name: str, **spec: Any) -> dict[str, Any]:
    """A user without rights."""
    return resource("kafka.strimzi.io/v1", "KafkaUser", name, region, spec)


def mirror(
    name: str,
    region: str,
    target: str,
    *sources: str,
    identity: bool = True,
    **changes: Any,
) -> dict[str, Any]:
    """A mirror; users and state are named after it, aliases after the regions without hyphens.

    Args:
        name: the resource's name.
        region: where it runs.
        target: the region that it writes.
        sources: the regions that it reads.
        identity: whether topics keep their names.
        changes: fields of each entry of ``mirrors``.
    """
    config = {"replication.policy.class": IDENTITY} if identity else {}
    state = {f"{kind}StorageTopic": f"__{name}_{kind}" for kind in ("config", "offset", "status")}
    return resource(
        "kafka.strimzi.io/v1",
        "KafkaMirrorMaker2",
        name,
        region,
        {
            "replicas": 1,
            "target": {**_end(target, f"{name}-writes"), "groupId": name, **state},
            "mirrors": [
                {"source": _end(source, f"{name}-reads-{source}"), "sourceConnector": {"config": config}, **changes}
                for source in sources
            ],
        },
    )


def program(region: str, cluster: str, *secrets: str, name: str = "program") -> dict[str, Any]:
    """A program of one region that uses the cluster of another one."""
    container = {"name": name, "env": [{"name": "KAFKA_BOOTSTRAP_SERVERS", "value": address(cluster)}]}
    volumes = [{"name": secret, "secret": {"secretName": secret}} for secret in secrets]
    pod = {"containers": [container], "volumes": volumes}
    return resource("apps/v1", "Deployment", name, region, {"template": {"spec": pod}})


def resource(version: str, kind: str, name: str, region: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Any resource."""
    metadata = {"name": name, "namespace": region, "labels": {"strimzi.io/cluster": region}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def documents(*resources: dict[str, Any]) -> list[Document]:
    """The resources as they are read from a file, each with its lines."""
    return read_documents("file.yaml", yaml.safe_dump_all(resources, sort_keys=False))


def with_users(*resources: dict[str, Any], regions: Sequence[str]) -> list[Document]:
    """The resources, a cluster in each region, and the users that the mirrors name."""
    ends = [
        end
        for mirror in resources
        if mirror["kind"] == "KafkaMirrorMaker2"
        for end in (mirror["spec"]["target"], *(entry["source"] for entry in mirror["spec"]["mirrors"]))
    ]
    users = {(_region(end), end["authentication"]["username"]) for end in ends}
    return documents(*map(kafka, regions), *(user(*named) for named in sorted(users)), *resources)


def _end(region: str, name: str) -> dict[str, Any]:
    return {
        "alias": region.replace("-", ""),
        "bootstrapServers": address(region),
        "tls": {"trustedCertificates": [{"secretName": f"{region}-cluster-ca-cert", "pattern": "*.crt"}]},
        "authentication": {"username": name, "passwordSecret": {"secretName": name, "password": "password"}},
    }


def _region(end: dict[str, Any]) -> str:
    return str(end["bootstrapServers"].split(".")[1])
