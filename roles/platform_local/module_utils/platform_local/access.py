"""The record by which the kit's own clients reach a region: see ``scripts/lab/access.py``, which reads it."""

from __future__ import annotations

import json

from .connect import REST_USER
from .deployment import Program
from .kafka_cluster import Cluster
from .mirror_maker import MirrorMaker
from .mirror_record import mirror_entries
from .models import Deployment, KafkaMirrorMaker2
from .region import Region, write_file
from .secret_store import read_secret
from .web_consoles import web_console


def record(region: Region) -> bool:
    """Writes client configurations for every user of the region, and the region's description; True when it changed."""
    folder = region.home / "access"
    own = folder / region.name
    changed = False
    clients: dict[str, str] = {}
    for user in region.resources("KafkaUser"):
        name = user["metadata"]["name"]
        cluster = Cluster.of(region, user["metadata"]["labels"]["strimzi.io/cluster"])
        changed |= write_file(own / "ca.crt", read_secret(region, f"{cluster.name}-cluster-ca-cert")["ca.crt"])
        properties = {
            "bootstrap.servers": ",".join(cluster.addresses(2)),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": read_secret(region, name)["sasl.jaas.config"].decode(),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(own / "ca.crt"),
        }
        path = own / f"{name}.properties"
        changed |= write_file(path, "".join(f"{key}={value}\n" for key, value in properties.items()))
        clients[name] = str(path)
    clusters = [kafka["metadata"]["name"] for kafka in region.resources("Kafka")]
    document = {
        "name": region.name,
        "cluster": clusters[0] if clusters else "",
        "clients": clients,
        "logs": {
            name: str(Program(region, Deployment.model_validate(deployment)).log)
            for deployment in region.resources("Deployment")
            if (name := deployment["metadata"]["name"])
        },
        "consoles": [console for deployment in region.resources("Deployment") if (console := web_console(deployment))],
        "mirrors": [
            mirror
            for resource in region.resources("KafkaMirrorMaker2")
            for mirror in mirror_entries(
                resource, _connect(MirrorMaker(region, KafkaMirrorMaker2.model_validate(resource)))
            )
        ],
    }
    return changed | write_file(folder / f"{region.name}.json", json.dumps(document, indent=1, sort_keys=True))


def _connect(mirror_maker: MirrorMaker) -> dict[str, str]:
    rest = mirror_maker.rest
    return {
        "url": rest.url,
        "username": REST_USER,
        "password_file": str(rest.password_file),
        "ca_file": str(rest.ca_file),
    }
