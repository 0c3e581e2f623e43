"""The releases of Kafka that a manifest may name: their lock, their class paths, and when their jars are fetched."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any, cast, get_args

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from loosehanger.errors import WrongUseError
from loosehanger.lab.manifests.loader import Manifest, read_manifests
from loosehanger.lab.manifests.resources import (
    KAFKA_VERSION,
    OLDER_KAFKA_VERSIONS,
    JvmOptions,
    KafkaVersion,
    needs_zookeeper,
)
from loosehanger.mirrorproof.jars import Jar, parse_lock
from loosehanger.paths import ROOT
from loosehanger.platforms.java import WORKER, Java, set_of
from loosehanger.platforms.kubernetes import preflight
from loosehanger.platforms.kubernetes.resources import ManifestEntry
from loosehanger.platforms.local import kafka_releases
from loosehanger.platforms.local.kafka_cluster import LocalCluster
from loosehanger.platforms.local.mirror_maker import LocalMirrorMaker
from loosehanger.platforms.local.preflight import check_clusters
from loosehanger.platforms.local.region import LocalRegion
from scripts.lock_jars import SECOND_BINDING, format_lock

MIRROR = (ROOT / "playbooks/03-broadcast/manifests/mm2-na.yaml").read_text(encoding="utf-8")
KAFKA = """\
apiVersion: kafka.strimzi.io/v1
kind: Kafka
metadata: {name: europe, namespace: europe}
spec:
  kafka:
    version: 4.3.1
    listeners: [{name: internal, port: 9098, type: internal, tls: true, authentication: {type: scram-sha-512}}]
    authorization: {type: simple}
"""


def manifests(*versions: str) -> list[Manifest]:
    """A mirror of each of these versions."""
    of_all = (MIRROR.replace("version: 4.3.1", f"version: {version}") for version in versions)
    return [manifest for text in of_all for manifest in read_manifests("file.yaml", text)]


def cluster(*edits: str) -> list[Manifest]:
    """A cluster whose version line has these in its place."""
    return read_manifests("file.yaml", KAFKA.replace("version: 4.3.1", "\n    ".join(edits)))


def region(home: Path) -> LocalRegion:
    return LocalRegion(home, ROOT, "north-america", 20_000)


def test_the_lock_has_each_older_release_whole() -> None:
    jars = parse_lock((ROOT / kafka_releases.LOCK).read_text(encoding="utf-8"))
    assert jars == sorted(jars)
    installed = parse_lock((ROOT / "jars.lock").read_text(encoding="utf-8"))
    newest = {jar.artifact for jar in installed if jar.set == "kafka"}
    of_workers = {"kafka_2.13", "connect-runtime", "connect-mirror", "connect-basic-auth-extension", "log4j-slf4j-impl"}
    for version in OLDER_KAFKA_VERSIONS:
        own = [jar for jar in jars if jar.set == set_of(version)]
        if needs_zookeeper(version):
            assert {"kafka_2.13", "zookeeper", "log4j-slf4j-impl"} <= {jar.artifact for jar in own}
            wanted = {"kafka_2.13", "log4j-slf4j-impl"}
        else:
            wanted = of_workers
        assert wanted <= newest & {jar.artifact for jar in own}
        assert {jar.version for jar in own if jar.group == "org.apache.kafka"} == {version}
        assert max(Counter(jar.path for jar in own).values()) == 1
        assert SECOND_BINDING not in {jar.artifact for jar in own}, "SLF4J would choose between two bindings"
    assert {jar.set for jar in jars} == {set_of(version) for version in OLDER_KAFKA_VERSIONS}
    assert {*OLDER_KAFKA_VERSIONS, KAFKA_VERSION} == set(get_args(KafkaVersion))


def test_each_release_has_a_class_path_of_its_own_and_only_the_installed_one_an_archive(tmp_path: Path) -> None:
    for name in ("kafka/new.jar", "kafka-4.2.0/old.jar"):
        path = tmp_path / "jars" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    old, new = Java(tmp_path, "4.2.0"), Java(tmp_path)
    assert [Path(java.environment["CLASSPATH"]).name for java in (old, new)] == ["old.jar", "new.jar"]
    commands = [java.command(WORKER, options=JvmOptions(), heap="64m", system={}) for java in (old, new)]
    assert [any("SharedArchiveFile" in word for word in command) for command in commands] == [False, True]


def test_the_version_of_a_manifest_decides_what_its_workers_run(tmp_path: Path) -> None:
    old, new = (
        LocalMirrorMaker(region(tmp_path), cast(Any, manifest.resource)) for manifest in manifests("4.2.0", "4.3.1")
    )
    assert (old.java.version, new.java.version) == ("4.2.0", "4.3.1")


def test_only_what_is_named_is_fetched() -> None:
    assert kafka_releases.named(manifests("4.3.1")) == []
    assert kafka_releases.named([*manifests("4.2.0", "4.3.1"), *cluster("version: 3.9.1")]) == ["3.9.1", "4.2.0"]


def test_metadata_that_the_nodes_cannot_read_is_refused() -> None:
    cluster("version: 3.9.1", "metadataVersion: 3.9-IV0")
    for unknown in ("4.3-IV7", "4.4", "3.8-IV0", "4.1-IV2"):
        with pytest.raises(WrongUseError, match=rf"file.yaml:7: .*metadataVersion: '{unknown}' is not possible"):
            cluster("version: 4.3.1", f"metadataVersion: {unknown}")
    with pytest.raises(WrongUseError, match=r"file.yaml:7: .*metadataVersion: '4.3' is newer than version 4.2.0"):
        cluster("version: 4.2.0", "metadataVersion: '4.3'")


def test_an_older_release_does_not_get_metadata_that_it_cannot_read(tmp_path: Path) -> None:
    def checked(*edits: str) -> str:
        (manifest,) = cluster(*edits)
        return LocalCluster(region(tmp_path), cast(Any, manifest.resource), [])._check_metadata_readable()

    assert checked("version: 4.2.0") == "4.2.0"
    assert checked("version: 4.3.1", "metadataVersion: 3.9-IV0") == "3.9-IV0"
    folder = tmp_path / "regions/north-america/kafka/europe"
    folder.mkdir(parents=True)
    (folder / "cluster.json").write_text(json.dumps({"id": "x", "nodes": [0], "metadata": "4.2.0"}))
    assert checked("version: 4.3.1") == "4.2.0", "a newer release reads it, and does not raise it"
    with pytest.raises(WrongUseError, match=r"Kafka/europe has metadata of 4\.2\.0, which 3\.9\.1 cannot read"):
        checked("version: 3.9.1")


@pytest.mark.parametrize(
    ("version", "nodes", "message"),
    [
        ("4.3.1", 1, ""),
        ("4.2.0", 1, ""),
        ("3.9.1", 1, r"Kafka/europe has metadata of 4\.2\.0, which 3\.9\.1 cannot read; run \./lab cleanup first"),
        ("4.3.1", 3, r"Kafka/europe has 1 nodes and cannot become one of 3 while it runs; run \./lab cleanup first"),
    ],
)
def test_what_nodes_that_exist_cannot_become_is_refused_before_anything_is_made(
    tmp_path: Path, version: str, nodes: int, message: str
) -> None:
    pool = f"""\
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaNodePool
metadata: {{name: nodes, namespace: europe, labels: {{strimzi.io/cluster: europe}}}}
spec: {{replicas: {nodes}, roles: [controller, broker], storage: {{type: ephemeral}}}}
"""
    given = [*cluster(f"version: {version}"), *read_manifests("file.yaml", pool)]
    check_clusters(region(tmp_path), given)
    folder = tmp_path / "regions/north-america/kafka/europe"
    folder.mkdir(parents=True)
    (folder / "cluster.json").write_text(json.dumps({"id": "x", "nodes": [0], "metadata": "4.2.0"}))
    before = sorted(tmp_path.rglob("*"))
    if message:
        with pytest.raises(WrongUseError, match=message):
            check_clusters(region(tmp_path), given)
    else:
        check_clusters(region(tmp_path), given)
    assert sorted(tmp_path.rglob("*")) == before


def test_jars_are_fetched_once_and_a_failure_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"a jar"
    jar = Jar("kafka-4.2.0", "org.example", "one", "1.0", len(content), hashlib.sha256(content).hexdigest())
    lock = tmp_path / "lock"
    other = Jar("kafka-3.9.1", "org.example", "two", "1.0", 1, "0" * 64)
    lock.write_text(format_lock([jar, other]), encoding="utf-8")
    monkeypatch.setattr(kafka_releases, "LOCK", str(lock))
    monkeypatch.setenv("LAB_MAVEN_REPOSITORY", "nowhere")
    (tmp_path / "jars").mkdir()

    kafka_releases.fetch(region(tmp_path), manifests("4.3.1"))
    with pytest.raises(WrongUseError, match=r"north-america: Kafka 4\.2\.0: LAB_MAVEN_REPOSITORY: 'nowhere' is"):
        kafka_releases.fetch(region(tmp_path), manifests("4.2.0"))

    path = tmp_path / "jars" / jar.path
    path.write_bytes(content)
    (installed := tmp_path / "jars/kafka").mkdir()
    for file in (installed / "new.jar", path.with_name("of-an-older-lock.jar")):
        file.touch()
    kafka_releases.fetch(region(tmp_path), manifests("4.2.0"))
    assert [*path.parent.iterdir()] == [path]
    assert path.read_bytes() == content
    assert [*installed.iterdir()], "the installation is not this lock's"


@pytest.mark.parametrize(
    ("given", "version"),
    [
        ({}, "4.3.1"),
        *(
            ({"migration_from": old}, new)
            for old, new in (("2.8", "2.8.2"), (2.8, "2.8.2"), ("3.9", "3.9.1"), (3.9, "3.9.1"), ("4.2", "4.2.0"))
        ),
    ],
)
def test_a_migration_begins_with_the_release_that_it_is_given(given: dict[str, Any], version: str) -> None:
    assert of_old_cluster(given) == version


def test_a_migration_from_a_release_that_is_not_carried_is_refused() -> None:
    with pytest.raises(
        WrongUseError, match=r"spec.kafka.version: '2.0' is not possible here; expected '2.8.2', '3.9.1',"
    ):
        cluster(f"version: '{of_old_cluster({'migration_from': '2.0'})}'")


def of_old_cluster(given: dict[str, Any]) -> str:
    """What the playbooks of the migration say of the old cluster's version, which all say alike."""
    loader = DataLoader()
    folder = ROOT / "playbooks/07-migration"
    plays = [
        p
        for name in ("setup", "mirror")
        for p in loader.load_from_file(str(folder / f"{name}.yaml"), trusted_as_template=True)
    ]
    found = [role for play in plays for role in play["roles"] if "kafka_cluster_version" in role]
    assert len(found) == 2
    templar = Templar(loader=loader, variables=given)
    (version,) = {str(templar.template(role["kafka_cluster_version"])) for role in found}
    return version


class Operators:
    """A cluster with Strimzi's operator, whose Deployment may or may not be listed."""

    def __init__(self, *, allowed: bool = True) -> None:
        self._allowed = allowed

    def allowed(self, _: object) -> bool:
        return self._allowed

    def list(self, _version: str, _kind: str, selector: str) -> list[dict[str, Any]]:
        assert selector == "app=strimzi"
        images = "4.10.0=registry/kafka:4.10.0\n4.2.0=registry/kafka:4.2.0\n"
        container = {"env": [{"name": "OTHER", "valueFrom": {}}, {"name": "STRIMZI_KAFKA_IMAGES", "value": images}]}
        return [{"spec": {"template": {"spec": {"containers": [container, {}]}}}}]


def entries(version: str) -> list[ManifestEntry]:
    """A mirror and a cluster of a version, and something without one."""
    documents = [
        yaml.safe_load(MIRROR.replace("version: 4.3.1", f"version: {version}")),
        yaml.safe_load(KAFKA.replace("version: 4.3.1", f"version: {version}")),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "europe"}},
    ]
    return [ManifestEntry(f"file.yaml:{line}", document) for line, document in enumerate(documents)]


def test_on_kubernetes_the_operators_own_list_decides() -> None:
    assert preflight.operator_versions(cast(Any, Operators())) == ["4.2.0", "4.10.0"]
    assert list(preflight._unsupported_versions(cast(Any, Operators()), entries("4.2.0"))) == []
    mirror, kafka = preflight._unsupported_versions(cast(Any, Operators()), entries("3.9.1"))
    assert mirror == (
        "file.yaml:0: KafkaMirrorMaker2/mm2-na: spec.version: '3.9.1' is not possible here; "
        "the operator supports 4.2.0, 4.10.0"
    )
    assert "Kafka/europe: spec.kafka.version: '3.9.1'" in kafka
    assert list(preflight._unsupported_versions(cast(Any, Operators(allowed=False)), entries("3.9.1"))) == []
