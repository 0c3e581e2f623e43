"""Kafka's own metrics for Prometheus: the JMX exporter's agent, in each process whose manifest has a ``metricsConfig``.

It listens on the loopback address, and asks for the password of the region's Secret ``jmx-exporter``.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import yaml

from loosehanger.errors import LabError
from loosehanger.files import write_file
from loosehanger.lab.manifests.resources import MetricsConfig
from loosehanger.lab.record import Exporter
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.local.secret_store import read_secret, secret_file, write_secret
from loosehanger.ports import LOOPBACK

USER = "prometheus"
SECRET = "jmx-exporter"  # noqa: S105 - the name of a Secret
_CONFIGURATION = "jmx-exporter.yaml"


def agent(region: LocalRegion, metrics: MetricsConfig, folder: Path, port: int) -> tuple[str, bytes]:
    """Writes the exporter's configuration, and returns Java's option that starts it, and what it depends on.

    Args:
        region: the region, which has the ConfigMap with the rules.
        metrics: the manifest's settings.
        folder: the process's own folder.
        port: where the exporter listens.

    Raises:
        LabError: the ConfigMap, or its key, does not exist, or has no rules.
    """
    if not (region.secrets / SECRET).is_dir():
        write_secret(region, SECRET, {"password": secrets.token_urlsafe(24).encode()})
    password = read_secret(region, SECRET)["password"].decode()
    content = _rules(region, metrics) | {
        "httpServer": {"authentication": {"basic": {"username": USER, "password": password}}}
    }
    text = yaml.safe_dump(content, sort_keys=False)
    path = folder / _CONFIGURATION
    write_file(path, text)
    (jar,) = (region.home / "jars" / "agent").glob("jmx_prometheus_javaagent-*.jar")
    return f"-javaagent:{jar.resolve()}={LOOPBACK}:{port}:{path}", text.encode()


def _rules(region: LocalRegion, metrics: MetricsConfig) -> dict[str, object]:
    reference = metrics.rules
    config_map = region.resource("ConfigMap", reference.name)
    where = f"{region.name}: ConfigMap/{reference.name}: {reference.key}"
    text = (config_map or {}).get("data", {}).get(reference.key)
    if text is None:
        raise LabError(f"{where}: not found; metricsConfig.valueFrom.configMapKeyRef names it")
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise LabError(f"{where}: is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise LabError(f"{where}: is not the JMX exporter's configuration, which is a mapping with 'rules'")
    return found


def exporter(region: LocalRegion, kind: str, cluster: str, pod: str, port: int) -> Exporter:
    """Describes an exporter for the region's record.

    Args:
        region: the region.
        kind: the kind of the resource.
        cluster: its name.
        pod: the name that the process's pod has on Kubernetes.
        port: where the exporter listens.
    """
    return Exporter(kind, cluster, pod, f"{LOOPBACK}:{port}", USER, str(secret_file(region, SECRET, "password")))
