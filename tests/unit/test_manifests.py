"""Manifests are read strictly: what the platform cannot carry out is refused, with file, line, resource and field."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from loosehanger.errors import WrongUseError
from loosehanger.model import connect_settings
from loosehanger.model.manifests import Manifest, in_order, read_manifests, without_meaning
from loosehanger.model.resources import KINDS, KafkaMirrorMaker2, Secret
from loosehanger.paths import ROOT

BROADCAST = ROOT / "playbooks" / "03-broadcast" / "manifests"
FILES = sorted(ROOT.glob("playbooks/*/manifests/**/*.yaml"))
MIRRORS = [path for path in FILES if "kind: KafkaMirrorMaker2" in path.read_text(encoding="utf-8")]

TOPIC = """\
apiVersion: kafka.strimzi.io/v1
kind: KafkaTopic
metadata:
  name: orders
  namespace: europe
  labels:
    strimzi.io/cluster: europe
spec:
  partitions: 3
"""


def read(text: str) -> list[Manifest]:
    """Reads manifests for Europe."""
    return read_manifests("file.yaml", text, "europe")


@pytest.mark.parametrize("path", FILES, ids=[path.relative_to(ROOT / "playbooks").as_posix() for path in FILES])
def test_the_scenarios_manifests_are_carried_out_whole(path: Path) -> None:
    manifests = read_manifests(path.name, path.read_text())
    assert manifests
    for manifest in manifests:
        assert manifest.document == yaml.safe_load(yaml.safe_dump(manifest.document))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("partitions: 3", "partitions: 0", "file.yaml:9: KafkaTopic/orders: spec.partitions: "),
        ("partitions: 3", "partition: 3", "file.yaml:9: KafkaTopic/orders: spec.partition: unknown field"),
        ("partitions: 3", "partitions: [3]", "file.yaml:9: KafkaTopic/orders: spec.partitions: "),
        ("kind: KafkaTopic", "kind: KafkaBridge", "file.yaml:1: kind: 'KafkaBridge' is not one"),
        ("kafka.strimzi.io/v1", "v1", "file.yaml:1: KafkaTopic/orders: apiVersion: 'v1' is not possible"),
        ("  name: orders\n", "", "file.yaml:3: KafkaTopic: metadata.name: is missing"),
        ("namespace: europe", "namespace: asia", "'asia' is not the region's namespace 'europe'"),
        ("strimzi.io/cluster: europe", "app: x", "the label 'strimzi.io/cluster'"),
        (
            "partitions: 3",
            "partitions: 3\n  partitions: 4",
            "file.yaml:10: not YAML: the key 'partitions' stands twice",
        ),
        ("spec:", "spec: {", "not YAML"),
        ("name: orders", "name: Orders!", "metadata.name"),
    ],
)
def test_a_mistake_is_named(before: str, after: str, message: str) -> None:
    assert before in TOPIC
    with pytest.raises(WrongUseError) as error:
        read(TOPIC.replace(before, after, 1))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n---\n"])
def test_a_file_without_resources_is_refused(text: str) -> None:
    with pytest.raises(WrongUseError, match="there is no resource"):
        read(text)


@pytest.mark.parametrize("text", ["- a\n", "text\n", "42\n"])
def test_what_is_no_resource_is_refused(text: str) -> None:
    with pytest.raises(WrongUseError, match="expected a resource"):
        read(text)


def test_resources_are_applied_in_the_order_of_their_needs() -> None:
    files = ["mm2-na.yaml", "users-north-america.yaml"]
    manifests = [m for name in files for m in read_manifests(name, (BROADCAST / name).read_text())]
    kinds = [manifest.resource.kind for manifest in in_order(manifests)]
    assert kinds == sorted(kinds, key=list(KINDS).index)
    assert kinds[-1] == "KafkaMirrorMaker2"


def test_a_secrets_values_are_decoded() -> None:
    text = "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: europe}\ndata: {a: Yg==}\nstringData: {c: d}\n"
    (manifest,) = read(text)
    assert isinstance(manifest.resource, Secret)
    assert manifest.resource.values() == {"a": b"b", "c": b"d"}
    with pytest.raises(WrongUseError, match="is not base64"):
        read(text.replace("Yg==", "Yg"))


def test_every_field_without_meaning_says_why() -> None:
    rows = list(without_meaning())
    assert len(rows) > 20
    assert all(len(reason.split()) >= 3 for _, _, reason in rows)


def mirrors(*edits: dict[str, str]) -> list[Manifest]:
    """The mirror of North America, once for each set of replacements."""
    manifests = []
    for index, edit in enumerate(edits):
        text = (BROADCAST / "mm2-na.yaml").read_text()
        for before, after in edit.items():
            text = text.replace(before, after)
        manifests += read_manifests(f"mirror-{index}.yaml", text)
    return manifests


@pytest.mark.parametrize(
    ("before", "after", "parts"),
    [
        ("  version: 4.3.1", "  version: 4.2.0", ["spec.version", "4.2.0", "4.3.1"]),
        ("  replicas: 1", "  replicas: many", ["spec.replicas", "many"]),
        ("    groupId: mm2-na\n", "", ["KafkaMirrorMaker2/mm2-na", "spec.target.groupId", "is missing"]),
        (" replication.factor: -1\n", " sasl.mechanism: PLAIN\n", ["sasl.mechanism"]),
        ("kafka.strimzi.io/v1\n", "kafka.strimzi.io/v1beta2\n", ["apiVersion", "v1beta2"]),
        (
            "refresh.topics.interval.seconds: 10",
            "refresh.topic.interval.seconds: 10",
            ["'refresh.topic.interval.seconds'", "did you mean 'refresh.topics.interval.seconds'"],
        ),
    ],
)
def test_a_mistake_in_a_mirror_is_named(before: str, after: str, parts: list[str]) -> None:
    assert before in (BROADCAST / "mm2-na.yaml").read_text()
    with pytest.raises(WrongUseError) as error:
        mirrors({before: after})
    for part in (*parts, "mirror-0.yaml"):
        assert part in str(error.value)


def test_a_slip_in_a_setting_is_refused_with_the_likely_name() -> None:
    with pytest.raises(ValueError, match="did you mean 'offset\\.lag\\.max'"):
        connect_settings.check_known(
            "offset.lag.maximum", connect_settings.SOURCE_CONNECTOR, connect_settings.CONNECTOR_PREFIXES
        )
    connect_settings.check_known(
        "offset.lag.max", connect_settings.SOURCE_CONNECTOR, connect_settings.CONNECTOR_PREFIXES
    )
    connect_settings.check_known(
        "source.consumer.fetch.min.bytes", connect_settings.SOURCE_CONNECTOR, connect_settings.CONNECTOR_PREFIXES
    )


def test_connectors_of_a_mirror_must_agree_on_where_offsets_are_kept() -> None:
    checkpoint = "      checkpointConnector:\n        config:\n          offset-syncs.topic.location: source\n"
    policy = "          replication.policy.class: org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
    with pytest.raises(WrongUseError, match=r"offset-syncs\.topic\.location"):
        mirrors({"      sourceConnector:\n": f"{checkpoint}{policy}      sourceConnector:\n"})
    (manifest,) = mirrors(
        {
            "      sourceConnector:\n": f"{checkpoint}{policy}      sourceConnector:\n".replace(
                ": source\n", ": target\n"
            )
        }
    )
    assert isinstance(manifest.resource, KafkaMirrorMaker2)


@pytest.mark.parametrize("value", ['say "so"', "one\ntwo"])
def test_what_no_program_can_be_given_is_refused_before_anything_starts(value: str) -> None:
    container = {"name": "p", "image": "i", "command": ["c"], "env": [{"name": "A", "value": value}]}
    content = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "p", "namespace": "europe"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    with pytest.raises(WrongUseError, match="a quotation mark or a line break cannot be given to a program"):
        read(yaml.safe_dump(content))


@pytest.mark.parametrize("path", MIRRORS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_mirror_is_stopped_by_a_megabyte_that_was_packed_into_a_kilobyte(path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        for mirror in document["spec"]["mirrors"] if document["kind"] == "KafkaMirrorMaker2" else ():
            config = mirror["sourceConnector"]["config"]
            assert config["producer.override.max.request.size"] >= 8 * 1024 * 1024
            # Else the target refuses the batch for its size.
            assert config["producer.override.compression.type"] in ("gzip", "lz4", "snappy", "zstd")
