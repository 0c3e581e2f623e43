"""Writes the record by which the kit's own clients reach a region, and which ``loosehanger.lab.record`` reads.

Clients run in pods, where service names resolve. So everything that they need is in a Secret of their namespace, and
this machine keeps only a description without passwords.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from loosehanger.errors import LabError
from loosehanger.files import remove_folder, write_file
from loosehanger.lab.kit_users import ADMINISTRATOR
from loosehanger.lab.manifests import sign_ins
from loosehanger.lab.manifests.connect_settings import REST_PORT
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.programs import ledgers
from loosehanger.lab.record import recorded_pod, region_record
from loosehanger.lab.scenario import MIRROR
from loosehanger.lab.topology import Topology
from loosehanger.platforms import web_consoles
from loosehanger.platforms.client_properties import client_file, client_properties, keys_of
from loosehanger.platforms.kubernetes import event_streams, services
from loosehanger.platforms.kubernetes.apply import RegionNamespace
from loosehanger.platforms.kubernetes.cluster import KubernetesCluster
from loosehanger.platforms.kubernetes.resources import ASKS_CONNECT, CLUSTERS, LABELS, MIRROR_PODS, content, labelled
from loosehanger.platforms.kubernetes.rights import list_own, may_read
from loosehanger.platforms.kubernetes.services import ClusterContext
from loosehanger.platforms.pod_files import HOME

SECRET: Final = "loosehanger-lab-access"  # noqa: S105 - a name
_NETWORK_POLICY: Final = "loosehanger-lab-clients"
"""The KafkaUser with full access to Event Streams' own console."""


@dataclass(frozen=True)
class Clients:
    """The kit's clients: the region and the image that they run in, and the lab's home on this machine."""

    home: Path
    """The lab's home on this machine."""
    region: str
    """The region in whose namespace they run."""
    image: str
    """The image that they run."""


def record(region: RegionNamespace, clients: Clients, documents: Sequence[Document], *, deleted: bool = False) -> bool:
    """Records how clients reach a region; True when the record changed.

    Args:
        region: which.
        clients: the clients.
        documents: the resources that were applied there.
        deleted: whether the region is deleted, so that only these documents describe it.

    Raises:
        LabError: a user's secret, or the address of a region on another cluster, does not exist.
    """
    cluster, clients_place = region.cluster, region.places[clients.region]
    files, known = _described(region, cluster, clients_place)
    if region.name == clients.region:
        # The clients' pods can mount the volumes of programs in their own region.
        kept = ledgers(Topology(documents))
        known["ledgers"] = {name: f"{HOME}/ledgers/{claim}" for (_, name), claim in kept.items()}
    connect = {
        # Connect is not reachable from another cluster, so the proof only waits for records to arrive.
        document.name: {"url": connect_url(document.name, region.name)} if clients_place == region.place else {}
        for document in documents
        if document.kind == MIRROR
    }
    secret = {**files, "region.json": region_record(region.name, documents, connect=connect, **known)}
    resources = [(clients_place.cluster(), _secret(f"{SECRET}-{region.name}", clients.region, secret))]
    if connect and not deleted:
        # A region's console runs beside its mirrors; Jobs and the control room run in the clients' region.
        askers = {region.name, clients.region} if clients_place == region.place else {region.name}
        resources.append((cluster, _network_policy(region.name, askers)))
    changed = False
    for at, document in resources:
        metadata = document["metadata"]
        was = at.get(document["apiVersion"], document["kind"], metadata["name"], metadata["namespace"])
        changed |= content(was) != content(at.apply(document))
    pod = {
        "namespace": clients.region,
        "kubeconfig": clients_place.kubeconfig,
        "context": clients_place.context,
        "image": clients.image,
        "secret": f"{SECRET}-{region.name}",
    }
    own = {"kubeconfig": region.place.kubeconfig, "context": region.place.context}
    text = region_record(region.name, documents, connect=connect, **known, pod=pod, kubernetes=own)
    return changed | write_file(clients.home / "access" / f"{region.name}.json", text)


def client_region(home: Path, inventory: Sequence[str], topology: Topology) -> str:
    """Returns the region that clients run in by default.

    It is the region where they have run so far, else that of the programs with ledgers, which the clients read: such a
    region has no cluster to lose. Else it is the first region with a cluster.

    Args:
        home: the lab's home on this machine.
        inventory: every region of the inventory, in its order; a scenario may use fewer.
        topology: all regions, in their desired state.
    """
    known = [pod.namespace for name in inventory if (pod := recorded_pod(home, name)) and pod.namespace in inventory]
    keepers = {region for region, _ in ledgers(topology)}
    keeping = [name for name in inventory if name in keepers]
    return next(iter([*known, *keeping, *(name for name in inventory if topology.clusters(name)), *inventory]))


def forget(region: RegionNamespace, home: Path, *, dry_run: bool = False) -> bool:
    """Deletes a region's record; True when there was one."""
    pod = recorded_pod(home, region.name)
    name = f"{SECRET}-{region.name}"
    path = home / "access" / f"{region.name}.json"
    # Without the record, the Secret may be in any region.
    places = {pod.namespace: ClusterContext(pod.kubeconfig, pod.context)} if pod else region.places
    found = [
        (cluster, secret)
        for namespace, place in places.items()
        if may_read(cluster := place.cluster(), namespace)
        and (secret := cluster.get("v1", "Secret", name, namespace)) is not None
    ]
    there = path.exists() or bool(found)
    if not dry_run:
        for cluster, secret in found:
            cluster.delete({"apiVersion": "v1", "kind": "Secret", **secret})
        unrecord(region, home)
    return there


def unrecord(region: RegionNamespace, home: Path) -> None:
    """Deletes a region's record on this machine."""
    (home / "access" / f"{region.name}.json").unlink(missing_ok=True)
    remove_folder(home / "access" / region.name)


def _described(
    region: RegionNamespace, cluster: KubernetesCluster, place: services.ClusterContext
) -> tuple[dict[str, str], dict[str, Any]]:
    """Returns the files that clients need, and the parts of the record that only the cluster knows."""
    files: dict[str, str] = {}
    clients: dict[str, str] = {}
    found = list_own(cluster, region.name, (*CLUSTERS, "KafkaUser", "Deployment"))
    folder = f"{HOME}/access/{region.name}"
    for user in found["KafkaUser"]:
        name = user["metadata"]["name"]
        labels = user["metadata"]["labels"]
        of = labels.get("strimzi.io/cluster") or labels["eventstreams.ibm.com/cluster"]
        kafka = next((kafka for kind in CLUSTERS for kafka in found[kind] if kafka["metadata"]["name"] == of), None)
        if kafka is None:
            continue
        files["ca.crt"] = _secret_value(cluster, region.name, f"{of}-cluster-ca-cert", "ca.crt")
        tokens = sign_ins.tokens_of(kafka)
        sign_in = sign_ins.of_user(next(iter(_listeners(kafka)), {}), user, tokens)
        keys = keys_of(sign_in, has_jaas=bool(sign_ins.user_type(user)), tokens=tokens)
        # A user whose credentials no operator makes is a client of the kit only if it has a secret.
        made = sign_ins.user_type(user) not in ("", sign_ins.TLS_EXTERNAL)
        there = cluster.get("v1", "Secret", name, region.name) if keys and not made else None
        if not made and keys and there is None:
            continue
        if tokens and there is not None and not (there.get("data") or {}).keys() >= set(keys):
            continue  # A secret of a mirror's, say, which names its keys itself.
        secret = {key: _secret_value(cluster, region.name, name, key) for key in keys}
        authority = f"{folder}/ca.crt"
        properties = client_properties(sign_in, name, secret, _address(region, place, kafka), authority, tokens)
        if properties is None:
            continue
        files[f"{name}.properties"] = client_file(properties)
        clients[name] = f"{folder}/{name}.properties"
    consoles = [
        console for resource in (*found["EventStreams"], *found["Deployment"]) if (console := _web_console(resource))
    ]
    return files, {"clients": clients, "logs": {}, "consoles": consoles}


def _web_console(resource: Mapping[str, Any]) -> dict[str, str] | None:
    if resource["kind"] == "EventStreams":
        return event_streams.web_console(resource, ADMINISTRATOR)
    return web_consoles.web_console(resource)


def _secret_value(cluster: KubernetesCluster, namespace: str, name: str, key: str) -> str:
    secret = cluster.get("v1", "Secret", name, namespace)
    value = ((secret or {}).get("data") or {}).get(key)
    if value is None:
        raise LabError(f"{namespace}: the secret '{name}' has no key '{key}'; check that its owner is ready")
    return base64.b64decode(value).decode()


def _address(region: RegionNamespace, place: services.ClusterContext, kafka: Mapping[str, Any]) -> str:
    name = kafka["metadata"]["name"]
    if place != region.place:
        return services.external_address(region.cluster, region.name, name)
    port = next(
        (listener["port"] for listener in _listeners(kafka) if listener["type"] in ("internal", "cluster-ip")), None
    )
    if port is None:
        raise LabError(f"{region.name}: {kafka['kind']}/{name} has no listener within its Kubernetes cluster")
    return f"{name}-kafka-bootstrap.{region.name}.svc:{port}"


def _listeners(kafka: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    spec = kafka["spec"]
    return spec.get("kafka", spec.get("strimziOverrides", {}).get("kafka", {})).get("listeners") or []


def connect_url(mirror: str, namespace: str) -> str:
    """Returns the address of a mirror's Connect REST interface, within its Kubernetes cluster."""
    return f"http://{mirror}-mirrormaker2-api.{namespace}.svc:{REST_PORT}"


def _secret(name: str, namespace: str, files: Mapping[str, str]) -> dict[str, Any]:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in files.items()}
    document = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}}
    return labelled({**document, "type": "Opaque", "data": data})


def _network_policy(namespace: str, askers: Collection[str]) -> dict[str, Any]:
    """Returns the policy that admits only the kit's consoles and proofs of some namespaces to the mirrors' workers.

    The operator's own policy admits the operator only, because Connect's REST interface has no password on Kubernetes:
    a pod that reaches it can change connectors, and read their configuration. So the labels of all pods of the kit do
    not suffice.
    """
    return labelled(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": _NETWORK_POLICY, "namespace": namespace},
            "spec": {
                "podSelector": {"matchLabels": dict(MIRROR_PODS)},
                "policyTypes": ["Ingress"],
                "ingress": [
                    {
                        "from": [
                            {
                                "namespaceSelector": {
                                    "matchExpressions": [
                                        {
                                            "key": "kubernetes.io/metadata.name",
                                            "operator": "In",
                                            "values": sorted(askers),
                                        }
                                    ]
                                },
                                "podSelector": {"matchLabels": {**LABELS, **ASKS_CONNECT}},
                            }
                        ],
                        "ports": [{"port": REST_PORT, "protocol": "TCP"}],
                    }
                ],
            },
        }
    )
