"""Generates Strimzi's custom resource definitions from the classes with which its operators read them.

The jars come from a Maven repository, as ``crds.lock`` locks them; the definitions are kept in ``.lab/kubernetes/``.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from loosehanger.errors import LabError
from loosehanger.mirrorproof.jars import parse_lock, synchronise
from loosehanger.paths import lab_home

LOCK = Path(__file__).with_name("crds.lock")
PACKAGE = "io.strimzi.api.kafka.model"
KINDS = {
    "Kafka": "kafka",
    "KafkaNodePool": "nodepool",
    "KafkaTopic": "topic",
    "KafkaUser": "user",
    "KafkaMirrorMaker2": "mirrormaker2",
}
"""The package of each kind's classes, for the kinds that the kit uses."""
# The same as in Strimzi's own build: https://github.com/strimzi/strimzi-kafka-operator, api/pom.xml.
OPTIONS = (
    *("--label", "app:strimzi", "--label", "strimzi.io/crd-install:true", "--target-kube", "1.16+"),
    *("--crd-api-version", "v1", "--api-versions", "v1", "--storage-version", "v1", "--yaml"),
)


def strimzi_definitions() -> list[dict[str, Any]]:
    """Returns a CustomResourceDefinition for each kind that the kit uses; the first time, fetches the jars.

    Raises:
        LabError: a jar cannot be fetched, or the generator fails.
    """
    text = LOCK.read_text(encoding="utf-8")
    home = lab_home() / "kubernetes"
    generated = home / f"crds-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if not generated.is_dir():
        synchronise(parse_lock(text), home / "jars")
        with tempfile.TemporaryDirectory(dir=home, prefix="generating-") as folder:
            whole = Path(folder, "whole")
            whole.mkdir()
            _generate(home / "jars/crds", whole)
            whole.rename(generated)
    return [yaml.safe_load((generated / f"{kind}.yaml").read_text(encoding="utf-8")) for kind in KINDS]


def _generate(jars: Path, folder: Path) -> None:
    outputs = [f"{PACKAGE}.{package}.{kind}={folder / kind}.yaml" for kind, package in KINDS.items()]
    command = [f"{lab_home()}/java/bin/java", "-cp", f"{jars}/*", "io.strimzi.crdgenerator.CrdGenerator", *OPTIONS]
    done = subprocess.run([*command, *outputs], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"Strimzi's custom resource definitions cannot be generated: {done.stderr.strip()[-1500:]}")
