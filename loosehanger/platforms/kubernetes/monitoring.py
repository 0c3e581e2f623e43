"""Alerts and dashboards beside the control room, on clusters that have the Prometheus operator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from loosehanger.platforms.kubernetes.cluster import KubernetesCluster
from loosehanger.platforms.kubernetes.resources import RULES, ManifestEntry, labelled
from loosehanger.platforms.kubernetes.rights import may_use_rules
from loosehanger.platforms.web_consoles import web_console

NAME = "loosehanger-lab-monitoring"
DASHBOARD_LABEL = {"grafana_dashboard": "1"}
"""The label by which Grafana's sidecar finds dashboards, as in its Helm chart and in kube-prometheus-stack."""


def beside_control_room(
    cluster: KubernetesCluster, checkout: Path, namespace: str, manifests: Sequence[ManifestEntry]
) -> list[ManifestEntry]:
    """Returns the rules and dashboards of ``monitoring/`` as resources.

    None where the manifests have no control room, where the cluster does not serve PrometheusRule, or where the account
    may not create one.

    Args:
        cluster: the region's cluster.
        checkout: the kit's checkout.
        namespace: the region's namespace.
        manifests: what is applied there.
    """
    consoles = [web_console(one.document) for one in manifests if one.document["kind"] == "Deployment"]
    if not any(console and console["scraper"] for console in consoles) or not may_use_rules(cluster, namespace):
        return []
    return [ManifestEntry("monitoring/", document) for document in documents(checkout / "monitoring", namespace)]


def documents(folder: Path, namespace: str) -> list[dict[str, Any]]:
    """Returns the ConfigMap with the dashboards, and the PrometheusRule with the production profile of all rules.

    Args:
        folder: the kit's ``monitoring/``.
        namespace: where they belong.
    """
    metadata = {"name": NAME, "namespace": namespace}
    dashboards = {
        path.name: path.read_text(encoding="utf-8") for path in sorted((folder / "dashboards").glob("*.json"))
    }
    files = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted((folder / "rules").glob("*.yaml"))]
    version, kind = RULES
    return [
        labelled(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {**metadata, "labels": DASHBOARD_LABEL},
                "data": dashboards,
            }
        ),
        labelled(
            {
                "apiVersion": version,
                "kind": kind,
                "metadata": metadata,
                "spec": {"groups": [group for file in files for group in file["groups"]]},
            }
        ),
    ]
