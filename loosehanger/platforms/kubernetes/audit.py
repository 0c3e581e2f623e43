"""The audit on Kubernetes: its pod gets the record of the lab as files, with the users that it connects as.

The record of each region is a Secret, which Kubernetes updates in the pod within two minutes without a restart. The
audit follows no stage here: what a stage does would reach its pod too late.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from loosehanger.errors import WrongUseError
from loosehanger.lab.kit_users import ADMINISTRATOR, PROVER
from loosehanger.lab.manifests.views import Program
from loosehanger.lab.plan import Plan
from loosehanger.lab.programs import is_audit
from loosehanger.lab.progress import required_progress
from loosehanger.lab.snapshots import snapshot_files
from loosehanger.platforms.kubernetes.access import SECRET, Clients
from loosehanger.platforms.kubernetes.pods import WRITTEN, mounted_files, numbered
from loosehanger.platforms.kubernetes.resources import ManifestEntry, labelled
from loosehanger.platforms.pod_files import HOME

CONFIG_MAP: Final = "loosehanger-lab-audit"
"""The ConfigMap with the scenario and the stage that the audit watches."""


def check(plans: Mapping[str, Plan], clients: Clients, python_image: str) -> None:
    """Checks that the audit can run here, where a region has one.

    Args:
        plans: the plan of each region.
        clients: where the kit's clients run, whose Secrets the audit uses.
        python_image: the image that runs the programs in place of the kit's own; empty for none.

    Raises:
        WrongUseError: it cannot; the message says why.
    """
    for name, plan in plans.items():
        if not any(map(is_audit, plan.documents)):
            continue
        remedy = "leave out -e audit=true"
        if python_image:
            raise WrongUseError(f"{name}: the audit needs Spark, which only the kit's own image has; {remedy}")
        if name != clients.region:
            raise WrongUseError(
                f"{name}: the audit runs beside the kit's clients, which are in {clients.region}; set "
                f"platform_kubernetes_client_region to {name}, or {remedy}"
            )
        if any(other.switches for other in plans.values()):
            raise WrongUseError(
                f"{name}: on Kubernetes the audit follows no stage; remove it with ./lab setup … -e audit=false first"
            )


def with_record(home: Path, manifests: Sequence[ManifestEntry], plans: Mapping[str, Plan]) -> list[ManifestEntry]:
    """Returns the manifests with the record of the lab mounted in the audit's pod, preceded by its ConfigMap.

    Args:
        home: the lab's home on this machine.
        manifests: what is applied in a region.
        plans: the plan of each region.

    Raises:
        NothingSetUpError: no set-up has begun.
    """
    found = []
    for one in manifests:
        if one.document["kind"] != "Deployment" or not Program(one.document).is_audit:
            found.append(one)
            continue
        progress = required_progress(home)
        # It begins when the set-up is done: its Secrets are complete then.
        reached = replace(progress, stage=progress.unfinished or progress.stage, unfinished="")
        files = {"lab.json": reached.text, **snapshot_files(home)}
        metadata = {"name": CONFIG_MAP, "namespace": one.namespace}
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": numbered(files)}
        found.append(ManifestEntry("what the audit watches", labelled(config_map)))
        found.append(replace(one, document=_with_files(one.document, [*files], plans)))
    return found


def _with_files(audit: Mapping[str, Any], files: Sequence[str], plans: Mapping[str, Plan]) -> dict[str, Any]:
    changed: dict[str, Any] = copy.deepcopy(dict(audit))
    pod = changed["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    writes = any(word.startswith("--canary") for word in container["command"])
    users = (PROVER, ADMINISTRATOR) if writes else (PROVER,)
    sources: list[dict[str, Any]] = [
        mounted_files(f"{SECRET}-{name}", name, users if plan.topology.clusters(name) else ())
        for name, plan in plans.items()
        if plan.documents
    ]
    items = [{"key": str(number), "path": path} for number, path in enumerate(files)]
    sources.append({"configMap": {"name": CONFIG_MAP, "items": items}})
    pod["volumes"] += [
        {"name": "access", "projected": {"sources": sources}},
        {"name": "scratch", "emptyDir": {"sizeLimit": "2Gi"}},
    ]
    container["env"].append({"name": "LAB_HOME", "value": HOME})
    container["volumeMounts"] += [
        {"name": "access", "mountPath": f"{HOME}/access", "readOnly": True},
        *({"name": "scratch", "mountPath": path, "subPath": path.rpartition("/")[2]} for path in WRITTEN),
    ]
    return changed
