"""Kafka's own metrics for Prometheus: the JMX exporter's agent, in each process whose manifest has a ``metricsConfig``.

It listens on the loopback address, and asks for the password of the region's Secret ``jmx-exporter``.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from loosehanger.errors import WrongUseError
from loosehanger.files import write_file
from loosehanger.lab.manifests.loader import Manifest
from loosehanger.lab.manifests.resources import ConfigMap, ConfigMapKey, Kafka, KafkaMirrorMaker2, exporter_rules
from loosehanger.lab.record import Exporter
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.local.secret_store import read_secret, secret_file, write_secret
from loosehanger.ports import LOOPBACK

USER = "prometheus"
SECRET = "jmx-exporter"  # noqa: S105 - the name of a Secret
_CONFIGURATION = "jmx-exporter.yaml"


def check_rules(region: LocalRegion, manifests: Sequence[Manifest]) -> None:
    """Checks that every exporter of a region will have its rules.

    Args:
        region: the region.
        manifests: what will be applied there.

    Raises:
        WrongUseError: a ConfigMap, or its key, does not exist, or has no rules.
    """
    given = {m.resource.metadata.name: m.resource.data for m in manifests if isinstance(m.resource, ConfigMap)}
    for manifest in manifests:
        match manifest.resource:
            case Kafka(spec=spec):
                rules = exporter_rules(spec.kafka.metrics_config)
            case KafkaMirrorMaker2(spec=spec):
                rules = exporter_rules(spec.metrics_config)
            case _:
                continue
        if rules:
            data = given.get(rules.name) or _applied(region, rules.name)
            _read(data, rules, f"{manifest.source}: {manifest.resource.reference}")


def agent(region: LocalRegion, rules: ConfigMapKey, folder: Path, port: int) -> tuple[str, bytes]:
    """Writes the exporter's configuration, and returns Java's option that starts it, and what it depends on.

    Args:
        region: the region, which has the ConfigMap with the rules.
        rules: where they are.
        folder: the process's own folder.
        port: where the exporter listens.

    Raises:
        WrongUseError: the ConfigMap, or its key, does not exist, or has no rules.
    """
    content = _read(_applied(region, rules.name), rules, region.name)
    if not (region.secrets / SECRET).is_dir():
        write_secret(region, SECRET, {"password": secrets.token_urlsafe(24).encode()})
    password = read_secret(region, SECRET)["password"].decode()
    content |= {"httpServer": {"authentication": {"basic": {"username": USER, "password": password}}}}
    text = yaml.safe_dump(content, sort_keys=False)
    path = folder / _CONFIGURATION
    write_file(path, text)
    (jar,) = (region.home / "jars" / "agent").glob("jmx_prometheus_javaagent-*.jar")
    return f"-javaagent:{jar.resolve()}={LOOPBACK}:{port}:{path}", text.encode()


def _applied(region: LocalRegion, name: str) -> Mapping[str, str]:
    found: Mapping[str, str] = (region.resource("ConfigMap", name) or {}).get("data", {})
    return found


def _read(data: Mapping[str, str], rules: ConfigMapKey, where: str) -> dict[str, Any]:
    named = f"{where}: metricsConfig: ConfigMap/{rules.name}: {rules.key}"
    if rules.key not in data:
        raise WrongUseError(f"{named}: not found; describe the ConfigMap with the exporter's rules beside it")
    try:
        found = yaml.safe_load(data[rules.key])
    except yaml.YAMLError as error:
        raise WrongUseError(f"{named}: is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise WrongUseError(f"{named}: is not the JMX exporter's configuration, which is a mapping with 'rules'")
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
