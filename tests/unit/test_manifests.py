"""Manifests are read strictly: what the platform cannot carry out is refused, with file, line, resource and field."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from loosehanger import java_clients
from loosehanger.errors import WrongUseError
from loosehanger.lab.manifests import connect_settings
from loosehanger.lab.manifests.documents import read_resources
from loosehanger.lab.manifests.loader import Manifest, ignored_fields, in_order, read_manifests
from loosehanger.lab.manifests.resources import KINDS, KafkaMirrorMaker2, Secret
from loosehanger.paths import ROOT, lab_home

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
            "file.yaml:10: not YAML: duplicate key 'partitions'",
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
    with pytest.raises(WrongUseError, match="no resource in this file"):
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
    rows = list(ignored_fields())
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
        (
            "  version: 4.3.1",
            "  version: 4.1.0",
            [
                "mirror-0.yaml:LINE: ",
                "spec.version: '4.1.0' is not possible here; expected '3.9.1', '4.2.0' or '4.3.1'",
            ],
        ),
        ("  replicas: 1", "  replicas: many", ["spec.replicas", "many"]),
        ("    groupId: mm2-na\n", "", ["KafkaMirrorMaker2/mm2-na", "spec.target.groupId", "is missing"]),
        (" replication.factor: -1\n", " sasl.mechanism: PLAIN\n", ["sasl.mechanism"]),
        ("kafka.strimzi.io/v1\n", "kafka.strimzi.io/v1beta2\n", ["apiVersion", "v1beta2"]),
        (
            "refresh.topics.interval.seconds: 10",
            "refresh.topic.interval.seconds: 10",
            [
                "mirror-0.yaml:LINE: ",
                "sourceConnector.config.refresh.topic.interval.seconds: 'refresh.topic.interval.seconds'",
                "did you mean 'refresh.topics.interval.seconds'",
            ],
        ),
        (
            "refresh.topics.interval.seconds: 10",
            "refresh.topics.interval.seconds: often",
            ["mirror-0.yaml:LINE: ", "config.refresh.topics.interval.seconds: 'often' is not a whole number"],
        ),
        (
            "refresh.topics.interval.seconds: 10",
            "refresh.topics.interval.seconds: [10]",
            [
                "mirror-0.yaml:LINE: ",
                "refresh.topics.interval.seconds: expected a text, a number, or true or false",
            ],
        ),
        (
            "replication.policy.class: org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
            "replication.policy.class: io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy",
            [
                "the class 'io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy' is not installed",
                "and org.apache",
            ],
        ),
    ],
)
def test_a_mistake_in_a_mirror_is_named(before: str, after: str, parts: list[str]) -> None:
    text = (BROADCAST / "mm2-na.yaml").read_text()
    assert before in text
    line = text[: text.index(before)].count("\n") + 1
    with pytest.raises(WrongUseError) as error:
        mirrors({before: after})
    for part in (*parts, "mirror-0.yaml"):
        assert part.replace("LINE", str(line)) in str(error.value)


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


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("source.consumer.fetch.min.byte", r"did you mean 'source\.consumer\.fetch\.min\.bytes'"),
        ("producer.override.compresion.type", r"did you mean 'producer\.override\.compression\.type'"),
        (
            "producer.override.fetch.min.bytes",
            r"fetch\.min\.bytes is a setting of Kafka's consumer, not of its producer",
        ),
        ("consumer.linger.ms", r"linger\.ms is a setting of Kafka's producer, not of its consumer"),
        ("target.admin.request.timeout", r"did you mean 'target\.admin\.request\.timeout\.ms'"),
        ("source.cluster.conections.max.idle.ms", r"did you mean 'source\.cluster\.connections\.max\.idle\.ms'"),
        ("source.consumer.override.isolation.level", r"is not a setting of Kafka"),
    ],
)
def test_a_slip_in_a_setting_of_a_client_is_refused(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        connect_settings.check_known(name, connect_settings.SOURCE_CONNECTOR, connect_settings.CONNECTOR_PREFIXES)


@pytest.mark.parametrize(
    "own_class",
    [
        "source.consumer.interceptor.classes",
        "producer.override.partitioner.class",
        "target.cluster.metric.reporters",
        "source.consumer.sasl.login.callback.handler.class",
        "source.cluster.security.providers",
    ],
)
def test_a_class_of_the_users_own_has_settings_of_its_own(own_class: str) -> None:
    without = {"topics", "source.consumer.isolation.level"}
    settings = without | {own_class}
    known = connect_settings.SOURCE_CONNECTOR, connect_settings.CONNECTOR_PREFIXES
    for name in ("source.consumer.confluent.monitoring.interceptor.topic", "producer.override.partitioner.weights"):
        connect_settings.check_known(name, *known, settings)
        with pytest.raises(ValueError, match="is not a setting of Kafka"):
            connect_settings.check_known(name, *known, without)
    with pytest.raises(ValueError, match=r"did you mean 'source\.consumer\.fetch\.min\.bytes'"):
        connect_settings.check_known("source.consumer.fetch.min.byte", *known, settings)
    with pytest.raises(ValueError, match="is a setting of Kafka's consumer"):
        connect_settings.check_known("producer.override.fetch.min.bytes", *known, settings)


def test_a_mirror_with_a_class_of_its_own_is_read() -> None:
    before = "sync.topic.acls.enabled: false"
    own = "producer.override.interceptor.classes: org.example.Audit\n          producer.override.audit.to: a-file"
    assert mirrors({before: f"{before}\n          {own}"})
    with pytest.raises(WrongUseError, match=r"'producer\.override\.audit\.to' is not a setting"):
        mirrors({before: f"{before}\n          {own.splitlines()[1].strip()}"})


def test_settings_of_clients_are_known_by_the_client_that_they_are_passed_to() -> None:
    for name in (
        "source.consumer.isolation.level",
        "producer.override.batch.size",
        "target.producer.linger.ms",
        "source.cluster.fetch.max.wait.ms",
        "admin.retries",
        "source.consumer.config.providers.file.class",
        "source.consumer.metrics.jmx.include",
        "producer.override.metrics.context.tenant",
        "transforms.a.whatever",
    ):
        connect_settings.check_known(name, connect_settings.SOURCE_CONNECTOR, connect_settings.CONNECTOR_PREFIXES)
    for name in ("producer.batch.size", "admin.listeners.https.ssl.client.auth", "key.converter.schemas.enable"):
        connect_settings.check_known(name, connect_settings.WORKER, connect_settings.WORKER_PREFIXES)
    with pytest.raises(ValueError, match=r"'producer\.override\.batch\.size' is not .* mean 'producer\.batch\.size'"):
        connect_settings.check_known(
            "producer.override.batch.size", connect_settings.WORKER, connect_settings.WORKER_PREFIXES
        )


@pytest.mark.parametrize("client", java_clients.SETTINGS)
def test_the_settings_of_a_client_are_those_of_its_release(client: str) -> None:
    """By the class that defines them, of the jars of the lab."""
    definition = {"consumer": "consumer.ConsumerConfig", "producer": "producer.ProducerConfig"}
    name = f"org.apache.kafka.clients.{definition.get(client, 'admin.AdminClientConfig')}"
    jars = lab_home() / "jars" / "kafka" / "*"
    command = [str(lab_home() / "java" / "bin" / "java"), "-XX:-UsePerfData", "-cp", str(jars), name]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert set(re.findall(r'href="#\w+configs_([^"]+)"', said)) == java_clients.SETTINGS[client]


@pytest.mark.parametrize(
    ("name", "possible", "impossible"),
    [
        ("sync.topic.acls.enabled", ("true", "False"), ("yes", "")),
        ("offset.lag.max", ("0", "100", " 7 "), ("1.5", "ten", "")),
        ("replication.factor", ("-1", "3"), ("0", "-2", "x")),
        ("request.timeout.ms", ("0",), ("-1",)),
        ("offset-syncs.topic.location", ("source", "target"), ("both",)),
        ("use.defaults.from", ("source", "target"), ("broker",)),
        ("exactly.once.source.support", ("enabled", "PREPARING"), ("on",)),
        ("connector.client.config.override.policy", ("All", "None"), ("Some",)),
        (
            "connector.client.config.override.policy",
            ("org.apache.kafka.connect.connector.policy.PrincipalConnectorClientConfigOverridePolicy",),
            ("org.example.PrincipalConnectorClientConfigOverridePolicy",),
        ),
        ("source.consumer.fetch.min.bytes", ("whatever",), ()),
    ],
)
def test_values_of_known_settings_are_checked(
    name: str, possible: tuple[str, ...], impossible: tuple[str, ...]
) -> None:
    for value in possible:
        connect_settings.check_value(name, value)
    for value in impossible:
        with pytest.raises(ValueError, match=r"is not|is less than"):
            connect_settings.check_value(name, value)


def test_every_setting_whose_values_are_checked_is_a_known_one() -> None:
    known = connect_settings.SOURCE_CONNECTOR | connect_settings.CHECKPOINT_CONNECTOR | connect_settings.WORKER
    checked = {
        *connect_settings._BOOLEANS,
        *connect_settings._INTEGERS,
        *connect_settings._COUNTS,
        *connect_settings._WORDS,
        *connect_settings._WORDS_IN_ANY_CASE,
        *connect_settings._CLASSES,
    }
    assert checked <= known


@pytest.mark.parametrize(
    ("policy", "setting", "refused"),
    [
        ("All", "producer.override.linger.ms", False),
        ("None", "producer.override.linger.ms", True),
        ("None", "source.consumer.fetch.min.bytes", False),
        ("Principal", "consumer.override.client.rack", True),
        ("Principal", "admin.override.sasl.mechanism", False),
        ("Allowlist", "producer.override.linger.ms", True),
        ("Allowlist\n      connector.client.config.override.allowlist: a, linger.ms",
         "producer.override.linger.ms", False),
    ],
)  # fmt: skip
def test_a_setting_that_the_workers_policy_refuses_is_named(policy: str, setting: str, refused: bool) -> None:
    edit = {
        "\n      config.storage": f"\n      connector.client.config.override.policy: {policy}\n      config.storage",
        "          producer.override.batch.size: 327680\n": "",
        "          producer.override.max.request.size: 8388608\n": "",
        "          producer.override.compression.type: lz4\n": "",
        "          refresh.topics.interval.seconds: 10": f"          {setting}: SCRAM-SHA-512",
    }
    if not refused:
        assert mirrors(edit)
        return
    with pytest.raises(WrongUseError) as error:
        mirrors(edit)
    said = f"spec.mirrors[0].sourceConnector.config.{setting}: '{setting}' is refused by the workers"
    assert said in str(error.value)


OLDER = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata:
  name: my-mirror-maker-2
spec:
  version: 4.0.0
  replicas: 1
  connectCluster: "cluster-b"
  clusters:
  - alias: "cluster-a"
    bootstrapServers: cluster-a-kafka-bootstrap:9092
  - alias: "cluster-b"
    bootstrapServers: cluster-b-kafka-bootstrap:9092
    config:
      group.id: mine
      config.storage.replication.factor: -1
  mirrors:
  - sourceCluster: "cluster-a"
    targetCluster: "cluster-b"
    sourceConnector:
      tasksMax: 1
      pause: false
    heartbeatConnector: {}
    topicsPattern: ".*"
    topicsBlacklistPattern: "x"
"""


def test_the_older_api_is_refused_with_what_to_write_instead() -> None:
    with pytest.raises(WrongUseError) as error:
        read_manifests("file.yaml", OLDER)
    message = str(error.value)
    for part in (
        "file.yaml:1: KafkaMirrorMaker2/my-mirror-maker-2: apiVersion: ",
        "line 1: apiVersion → kafka.strimzi.io/v1;",
        "line 8: spec.connectCluster → the cluster that it names becomes spec.target;",
        "line 9: spec.clusters → spec.target and spec.mirrors[].source;",
        "line 15: spec.clusters[1].config.group.id → spec.target.groupId",
        "line 18: spec.mirrors[0].sourceCluster → spec.mirrors[].source,",
        "line 19: spec.mirrors[0].targetCluster → spec.target, so remove it;",
        "line 22: spec.mirrors[0].sourceConnector.pause → spec.mirrors[].sourceConnector.state;",
        "line 23: spec.mirrors[0].heartbeatConnector → nothing",
        "line 25: spec.mirrors[0].topicsBlacklistPattern → spec.mirrors[].topicsExcludePattern",
        "bin/v1-api-conversion.sh convert-file --file file.yaml --in-place",
    ):
        assert part in message
    assert "is missing" not in message


SERVED = """\
apiVersion: v1
kind: List
metadata:
  resourceVersion: ""
items:
- apiVersion: kafka.strimzi.io/v1
  kind: KafkaTopic
  metadata:
    annotations:
      kubectl.kubernetes.io/last-applied-configuration: "{}"
    creationTimestamp: "2026-01-01T00:00:00Z"
    finalizers: [strimzi.io/topic-operator]
    generation: 1
    labels:
      strimzi.io/cluster: europe
    managedFields: []
    name: orders
    namespace: europe
    resourceVersion: "1"
    uid: 75a2
  spec:
    partitions: 3
  status:
    observedGeneration: 1
- apiVersion: v1
  kind: ConfigMap
  metadata:
    annotations: {own: "kept"}
    name: metrics
    namespace: europe
  data: {a: b}
"""


def test_what_a_server_adds_is_left_out_and_named() -> None:
    topic, metrics = read(SERVED)
    assert topic.document == yaml.safe_load(TOPIC)
    assert metrics.document["metadata"]["annotations"] == {"own": "kept"}
    first, second = read_resources("file.yaml", SERVED)
    assert second.dropped == ()
    assert (first.line, set(first.dropped)) == (
        6,
        {
            "metadata.creationTimestamp",
            "metadata.finalizers",
            "metadata.generation",
            "metadata.managedFields",
            "metadata.resourceVersion",
            "metadata.uid",
            "metadata.annotations.kubectl.kubernetes.io/last-applied-configuration",
            "status",
        },
    )
    with pytest.raises(WrongUseError, match=r"file\.yaml:22: KafkaTopic/orders: spec\.partition: "):
        read(SERVED.replace("partitions: 3", "partition: 3"))


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


@pytest.mark.parametrize("path", MIRRORS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_mirror_is_stopped_by_a_megabyte_that_was_packed_into_a_kilobyte(path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        for mirror in document["spec"]["mirrors"] if document["kind"] == "KafkaMirrorMaker2" else ():
            config = mirror["sourceConnector"]["config"]
            assert config["producer.override.max.request.size"] >= 8 * 1024 * 1024
            # Else the target refuses the batch for its size.
            assert config["producer.override.compression.type"] in ("gzip", "lz4", "snappy", "zstd")


@pytest.mark.parametrize("key", ["/abs/x", "../../x", "..", ".", "a/b", "", "a\n", "..data", "x" * 254])
def test_a_secrets_key_is_a_name_and_leads_nowhere_else(key: str) -> None:
    document = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "europe"}}
    for field in ("data", "stringData"):
        with pytest.raises(WrongUseError, match="Secret/s: "):
            read(yaml.safe_dump({**document, field: {key: ""}}))
        assert read(yaml.safe_dump({**document, field: {"tls.crt": "", "A_b-1": ""}}))


@pytest.mark.parametrize("value", ["1\nsuper.users=User:x", "1\r", "a\x00b", "\x85", "\u2028"])
def test_a_setting_has_no_line_break_that_would_make_it_two(value: str) -> None:
    for config in ({"retention.ms": value}, {f"retention.ms{value}": 1}):
        document = yaml.safe_load(TOPIC)
        document["spec"]["config"] = config
        with pytest.raises(WrongUseError, match=r"KafkaTopic/orders: spec\.config"):
            read(yaml.safe_dump(document))


@pytest.mark.parametrize(
    "text",
    [
        "a: \x07",
        "a: 2026-13-45",
        "a: !!int x",
        "a: !!float x",
        "a: &x [*x]",
        "&x {? *x : 1}",
        "a: !!timestamp 7",
        "? [1]\n: 2",
        "a: " + "[" * 5000 + "]" * 5000,
        "kind: KafkaTopic\nmetadata: x",
        "kind: KafkaTopic\nmetadata: [x]",
        "1: 2",
    ],
)
def test_whatever_the_yaml_is_it_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(WrongUseError, match=r"^file\.yaml") as error:
        read(text)
    assert len(str(error.value)) < 1000
