"""Adds Kafka's own metrics to manifests, by the settings that Strimzi has for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

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
        content = deepcopy(document.content)
        place = _place(document.kind, content)
        if place is None or "metricsConfig" in place:
            found.append(document)
            continue
        name, file = _FILES[document.kind]
        reference = {"name": name, "key": KEY}
        place["metricsConfig"] = {"type": "jmxPrometheusExporter", "valueFrom": {"configMapKeyRef": reference}}
        found.append(replace(document, content=content))
        config_maps[name] = _config_map(name, document.namespace, RULES / file)
    return [*config_maps.values(), *found]


def _place(kind: str, content: Mapping[str, Any]) -> dict[str, Any] | None:
    """The part of a manifest that has its metrics; None where there is none, or it is not a mapping."""
    place = content.get("spec") if kind in _FILES else None
    if kind == "Kafka" and isinstance(place, dict):
        place = place.get("kafka")
    return place if isinstance(place, dict) else None


def _config_map(name: str, namespace: str, path: Path) -> Document:
    metadata = {"name": name, "namespace": namespace}
    content = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: path.read_text("utf-8")}}
    return Document(str(path.relative_to(ROOT)), 1, content)
