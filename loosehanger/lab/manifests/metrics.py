"""Adds Kafka's own metrics to manifests, by the settings that Strimzi has for them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.manifests.views import MIRROR
from loosehanger.paths import ROOT

RULES = ROOT / "monitoring" / "jmx"
KEY = "metrics-config.yml"
_FILES = {"Kafka": ("kafka-metrics", "kafka.yaml"), MIRROR: ("mirror-maker-2-metrics", "mirror-maker-2.yaml")}
"""The ConfigMap and the file of rules, by the kind that gets its metrics from them."""


def with_metrics(documents: Sequence[Document]) -> list[Document]:
    """Returns the resources, each Kafka and KafkaMirrorMaker2 with metrics by the JMX exporter.

    What has metrics already keeps its own.

    Args:
        documents: the resources of a region, as described.
    """
    found, config_maps = [], dict[str, Document]()
    for document in documents:
        name, file = _FILES.get(document.kind, ("", ""))
        spec = document.content.get("spec")
        place = spec.get("kafka") if document.kind == "Kafka" and isinstance(spec, dict) else spec
        if not name or not isinstance(place, dict) or "metricsConfig" in place:
            found.append(document)
            continue
        content = deepcopy(document.content)
        changed = content["spec"]["kafka"] if document.kind == "Kafka" else content["spec"]
        changed["metricsConfig"] = {
            "type": "jmxPrometheusExporter",
            "valueFrom": {"configMapKeyRef": {"name": name, "key": KEY}},
        }
        found.append(replace(document, content=content))
        config_maps[name] = _config_map(name, document.namespace, RULES / file)
    return [*config_maps.values(), *found]


def _config_map(name: str, namespace: str, path: Path) -> Document:
    metadata = {"name": name, "namespace": namespace}
    content = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: path.read_text("utf-8")}}
    return Document(str(path.relative_to(ROOT)), 1, content)
