"""The record by which the kit's own clients reach a region: see ``scripts/lab/access.py``, which reads it.

Clients run in pods, where the names of services resolve. So everything that they need lies in a Secret of the namespace
that they run in, and this machine keeps only a description, without any password.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from platform_local import web_consoles
from platform_local.errors import PlatformError
from platform_local.mirror_record import mirror_entries
from platform_local.region import remove_folder, write_file

from . import event_streams, services
from .apply import Region
from .cluster import Cluster
from .resources import CLUSTERS, LABELS, content, labelled
from .rights import list_own

HOME_IN_POD: Final = "/opt/lab"
"""The lab's home in the kit's image."""
SECRET: Final = "loosehanger-lab-access"  # noqa: S105 - a name
_NETWORK_POLICY: Final = "loosehanger-lab-clients"
_REST_PORT: Final = 8083
_ADMINISTRATOR: Final = "admin"
"""The KafkaUser that sees everything in Event Streams' own console."""


def record(region: Region, home: Path, client_region: str, image: str, *, dry_run: bool = False) -> bool:
    """Records how clients reach a region; True when anything changed.

    Args:
        region: which.
        home: the lab's home on this machine.
        client_region: the region in whose namespace clients run.
        image: the image that they run in.
        dry_run: only tell whether anything would change.

    Raises:
        PlatformError: a user's secret, or the address for a region on another cluster, is not there.
    """
    cluster, clients_place = region.cluster, region.places[client_region]
    secret, description = _described(region, cluster, clients_place)
    if (lab := home / "access" / "lab.json").exists():
        secret["lab.json"] = lab.read_text(encoding="utf-8")
    resources = [(clients_place.cluster(), _secret(f"{SECRET}-{region.name}", client_region, secret))]
    if description["mirrors"] and clients_place == region.place:
        resources.append((cluster, _network_policy(region.name, client_region)))
    changed = False
    for at, document in resources:
        metadata = document["metadata"]
        was = at.get(document["apiVersion"], document["kind"], metadata["name"], metadata["namespace"])
        if dry_run and (was is None or content(was).get("data") != document.get("data")):
            return True
        changed |= content(was) != content(at.apply(document, dry_run=dry_run))
    if dry_run:
        return changed
    clients = {
        "namespace": client_region,
        "kubeconfig": clients_place.kubeconfig,
        "context": clients_place.context,
        "image": image,
        "secret": f"{SECRET}-{region.name}",
    }
    own = {"kubeconfig": region.place.kubeconfig, "context": region.place.context}
    text = json.dumps({**description, "pod": clients, "kubernetes": own}, indent=1, sort_keys=True)
    return changed | write_file(home / "access" / f"{region.name}.json", text)


def forget(region: Region, home: Path, client_region: str, *, dry_run: bool = False) -> bool:
    """Deletes a region's record; True when there was one."""
    place = region.places.get(client_region, region.place)
    name = f"{SECRET}-{region.name}"
    cluster = place.cluster()
    secret = cluster.get("v1", "Secret", name, client_region)
    path = home / "access" / f"{region.name}.json"
    there = path.exists() or secret is not None
    if not dry_run:
        if secret is not None:
            cluster.delete({"apiVersion": "v1", "kind": "Secret", **secret})
        path.unlink(missing_ok=True)
        remove_folder(home / "access" / region.name)
    return there


def _described(region: Region, cluster: Cluster, place: services.Place) -> tuple[dict[str, str], dict[str, Any]]:
    files: dict[str, str] = {}
    clients: dict[str, str] = {}
    found = list_own(cluster, region.name, (*CLUSTERS, "KafkaUser", "KafkaMirrorMaker2", "Deployment"))
    folder = f"{HOME_IN_POD}/access/{region.name}"
    for user in found["KafkaUser"]:
        name = user["metadata"]["name"]
        labels = user["metadata"]["labels"]
        of = labels.get("strimzi.io/cluster") or labels["eventstreams.ibm.com/cluster"]
        kafka = next((kafka for kind in CLUSTERS for kafka in found[kind] if kafka["metadata"]["name"] == of), None)
        if kafka is None:
            continue
        files["ca.crt"] = _secret_value(cluster, region.name, f"{of}-cluster-ca-cert", "ca.crt")
        properties = {
            "bootstrap.servers": _address(region, place, kafka),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": _secret_value(cluster, region.name, name, "sasl.jaas.config"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": f"{folder}/ca.crt",
        }
        files[f"{name}.properties"] = "".join(f"{key}={value}\n" for key, value in properties.items())
        clients[name] = f"{folder}/{name}.properties"
    clusters = [kafka["metadata"]["name"] for kind in CLUSTERS for kafka in found[kind]]
    description = {
        "name": region.name,
        "cluster": clusters[0] if clusters else "",
        "clients": clients,
        "logs": {},
        "consoles": [
            console
            for resource in (*found["EventStreams"], *found["Deployment"])
            if (console := _web_console(resource))
        ],
        "mirrors": [
            entry
            for mirror in found["KafkaMirrorMaker2"]
            # No way leads to it from another cluster; the proof then waits for what it sees arrive.
            for entry in mirror_entries(services.unresolve(mirror), _rest(mirror) if place == region.place else {})
        ],
    }
    files["region.json"] = json.dumps(description, indent=1, sort_keys=True)
    return files, description


def _web_console(resource: Mapping[str, Any]) -> dict[str, str] | None:
    if resource["kind"] == "EventStreams":
        return event_streams.web_console(resource, _ADMINISTRATOR)
    return web_consoles.web_console(resource)


def _secret_value(cluster: Cluster, namespace: str, name: str, key: str) -> str:
    secret = cluster.get("v1", "Secret", name, namespace)
    value = ((secret or {}).get("data") or {}).get(key)
    if value is None:
        raise PlatformError(f"{namespace}: there is no secret '{name}' with a key '{key}'; is its owner ready?")
    return base64.b64decode(value).decode()


def _address(region: Region, place: services.Place, kafka: Mapping[str, Any]) -> str:
    name = kafka["metadata"]["name"]
    if place != region.place:
        return services.external_address(region.cluster, region.name, name)
    spec = kafka["spec"]
    listeners = spec.get("kafka", spec.get("strimziOverrides", {}).get("kafka", {})).get("listeners") or []
    port = next((listener["port"] for listener in listeners if listener["type"] in ("internal", "cluster-ip")), None)
    if port is None:
        raise PlatformError(f"{region.name}: {kafka['kind']}/{name} has no listener within its Kubernetes cluster")
    return f"{name}-kafka-bootstrap.{region.name}.svc:{port}"


def _rest(mirror: Mapping[str, Any]) -> dict[str, str]:
    metadata = mirror["metadata"]
    return {"url": f"http://{metadata['name']}-mirrormaker2-api.{metadata['namespace']}.svc:{_REST_PORT}"}


def _secret(name: str, namespace: str, files: Mapping[str, str]) -> dict[str, Any]:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in files.items()}
    document = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}}
    return labelled({**document, "type": "Opaque", "data": data})


def _network_policy(namespace: str, client_region: str) -> dict[str, Any]:
    """Lets the kit's own clients, and nobody else, ask the mirrors' workers how far they are.

    The operator lets in itself only, for Connect's REST interface has no password on Kubernetes.
    """
    return labelled(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": _NETWORK_POLICY, "namespace": namespace},
            "spec": {
                "podSelector": {"matchLabels": {"strimzi.io/kind": "KafkaMirrorMaker2"}},
                "policyTypes": ["Ingress"],
                "ingress": [
                    {
                        "from": [
                            {
                                # A region's console is beside its mirrors.
                                "namespaceSelector": {
                                    "matchExpressions": [
                                        {
                                            "key": "kubernetes.io/metadata.name",
                                            "operator": "In",
                                            "values": sorted({namespace, client_region}),
                                        }
                                    ]
                                },
                                "podSelector": {"matchLabels": dict(LABELS)},
                            }
                        ],
                        "ports": [{"port": _REST_PORT, "protocol": "TCP"}],
                    }
                ],
            },
        }
    )
