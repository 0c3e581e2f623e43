"""Ansible filter ``strimzi_release``: the release's installation file, changed for the namespaces that the lab has."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import yaml
from ansible.errors import AnsibleFilterError

from loosehanger.platforms.kubernetes.resources import labelled

Document = dict[str, Any]
WATCHED = "STRIMZI_NAMESPACE"
SECURITY = "STRIMZI_POD_SECURITY_PROVIDER_CLASS"
"""What the operator's pods may do: as the lab's own, what Kubernetes calls restricted."""
_OF_ITSELF = "leader-election"
"""The only binding that is for the operator's own namespace, and not for those that it watches."""
_CLUSTER_WIDE = ("ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition")
"""The release names no namespace for anything else: ``kubectl apply`` chooses it."""


def strimzi_release(text: str, namespace: str, watched: Sequence[str], registry: str = "") -> list[Document]:
    """The resources to apply.

    Args:
        text: the release's installation file.
        namespace: the one that the operator is going to run in.
        watched: those whose resources it carries out. It gets rights there, and nowhere else.
        registry: takes the place of the registry in the names of images; empty to leave them.

    Returns:
        Namespaces first, the operator last, each with the kit's labels.

    Raises:
        AnsibleFilterError: the file is not what a release's is.
    """
    try:
        given = [document for document in yaml.safe_load_all(text) if document]
    except yaml.YAMLError as error:
        raise AnsibleFilterError(f"the Strimzi release is not YAML: {error}") from error
    deployments = [document for document in given if document.get("kind") == "Deployment"]
    if len(deployments) != 1 or not any(document.get("kind") == "CustomResourceDefinition" for document in given):
        raise AnsibleFilterError("the Strimzi release should have custom resource definitions and one Deployment")
    documents = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}} for n in [namespace, *watched]]
    for document in given:
        if document["kind"] == "RoleBinding" and _OF_ITSELF not in document["metadata"]["name"]:
            documents += [_in(document, namespace, into) for into in watched]
        elif document["kind"] != "Deployment":
            documents.append(_in(document, namespace, namespace))
    documents.append(_operator(_in(deployments[0], namespace, namespace), watched, registry))
    return [labelled(document) for document in documents]


def _in(document: Document, namespace: str, into: str) -> Document:
    changed = copy.deepcopy(document)
    if changed["kind"] not in _CLUSTER_WIDE:
        changed["metadata"]["namespace"] = into
    for subject in changed.get("subjects") or ():
        if "namespace" in subject:
            subject["namespace"] = namespace
    return changed


def _operator(deployment: Document, watched: Sequence[str], registry: str) -> Document:
    for container in deployment["spec"]["template"]["spec"]["containers"]:
        settings = {WATCHED: ",".join(watched), SECURITY: "restricted"}
        environment = [variable for variable in container["env"] if variable["name"] not in settings]
        container["env"] = [*environment, *({"name": name, "value": value} for name, value in settings.items())]
        if registry:
            container["image"] = container["image"].replace("quay.io", registry)
            for variable in container["env"]:
                if "value" in variable:
                    variable["value"] = variable["value"].replace("quay.io", registry)
    return deployment


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """The filters of this file."""
        return {"strimzi_release": strimzi_release}
