"""The dialects of IBM Event Streams: what becomes of each field of Strimzi's v1, and what is refused."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from loosehanger.errors import WrongUseError
from loosehanger.paths import ROOT
from loosehanger.platforms.kubernetes.event_streams import (
    API_VERSIONS,
    FIELDS,
    SAME,
    V1,
    V1BETA2,
    EventStreams,
    differences,
    to_event_streams,
    web_console,
)

SETTINGS = EventStreams(accept_license=True, license="L-TEST", license_use="EventAutomationNonProduction")
OLDER = replace(SETTINGS, version="12.3.1")
OF_VERSION = {V1: SETTINGS, V1BETA2: OLDER}
in_each_dialect = pytest.mark.parametrize("api_version", API_VERSIONS)
CERTIFICATES = {"trustedCertificates": [{"secretName": "europe-cluster-ca-cert", "pattern": "*.crt"}]}
PASSWORD = {
    "type": "scram-sha-512",
    "username": "mm2",
    "passwordSecret": {"secretName": "mm2", "password": "password"},
}


def resource(kind: str, **spec: Any) -> dict[str, Any]:
    """A resource of Strimzi's v1."""
    metadata: dict[str, Any] = {"name": "sample", "namespace": "europe"}
    if kind == "KafkaNodePool":
        metadata = {"name": "nodes", "namespace": "europe", "labels": {"strimzi.io/cluster": "sample"}}
    return {"apiVersion": "kafka.strimzi.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def mirror_maker(**spec: Any) -> dict[str, Any]:
    """The smallest mirror, and further fields."""
    smallest = {"target": {"alias": "america"}, "mirrors": [{"source": {"alias": "europe"}}]}
    return resource("KafkaMirrorMaker2", **smallest | spec)


def convert(*documents: dict[str, Any], settings: EventStreams = SETTINGS) -> list[dict[str, Any]]:
    """The converted resources, from a file ``sample.yaml``."""
    return [document for _, document in to_event_streams([("sample.yaml:1", d) for d in documents], settings)]


def convert_one(document: dict[str, Any], api_version: str = V1) -> dict[str, Any]:
    """One converted resource; a Kafka comes with a node pool and a node pool with a Kafka."""
    settings = OF_VERSION[api_version]
    if document["kind"] == "Kafka":
        (converted,) = convert(document, resource("KafkaNodePool"), settings=settings)
    elif document["kind"] == "KafkaNodePool":
        (converted,) = convert(resource("Kafka"), document, settings=settings)
    else:
        (converted,) = convert(document, settings=settings)
    return converted


def at(document: Any, path: str) -> Any:
    """What stands at a path: names and list positions, separated by slashes; None where nothing does."""
    for part in path.split("/"):
        try:
            document = document[int(part)] if isinstance(document, list) else document[part]
        except (KeyError, IndexError):
            return None
    return document


def sample(kind: str, path: str, value: Any) -> dict[str, Any]:
    """A resource with a value at a path; ``[]`` is the first of a list."""
    document = mirror_maker() if kind == "KafkaMirrorMaker2" else resource(kind)
    here: Any = document
    *folders, name = path.replace("[]", "/0").split("/")
    for folder in folders:
        here = here[int(folder)] if isinstance(here, list) else here.setdefault(folder, {})
    here[name] = value
    return document


OVERRIDES = "spec/strimziOverrides"
POOL = f"{OVERRIDES}/nodePools/0"
# In a mirror whose aliases are america and europe, the target comes first.
TARGET, SOURCE = "spec/clusters/0", "spec/clusters/1"

# Every field that differs: kind, field, value; where it is found afterwards, and what then stands there. In both:
DIFFERENT: list[tuple[str, str, Any, str, Any]] = [
    *(
        ("Kafka", f"spec/kafka/{name}", {"some": "thing"}, f"{OVERRIDES}/kafka/{name}", {"some": "thing"})
        for name in (
            *("config", "authorization", "livenessProbe", "readinessProbe", "jvmOptions", "jmxOptions"),
            *("metricsConfig", "logging", "template", "tieredStorage", "quotas"),
        )
    ),
    ("Kafka", "spec/kafka/metadataVersion", "4.2", f"{OVERRIDES}/kafka/metadataVersion", "4.2"),
    ("Kafka", "spec/kafka/image", "an-image", f"{OVERRIDES}/kafka/image", "an-image"),
    ("Kafka", "spec/kafka/brokerRackInitImage", "an-image", f"{OVERRIDES}/kafka/brokerRackInitImage", "an-image"),
    ("Kafka", "spec/kafka/rack/topologyKey", "zone", f"{OVERRIDES}/kafka/rack/topologyKey", "zone"),
    ("Kafka", "spec/kafka/listeners", [{"type": "route"}], f"{OVERRIDES}/kafka/listeners", [{"type": "route"}]),
    *(
        ("Kafka", f"spec/{name}", {"some": "thing"}, f"{OVERRIDES}/{name}", {"some": "thing"})
        for name in ("entityOperator", "clusterCa", "clientsCa", "cruiseControl", "kafkaExporter")
    ),
    ("Kafka", "spec/maintenanceTimeWindows", ["* * 0"], f"{OVERRIDES}/maintenanceTimeWindows", ["* * 0"]),
    ("KafkaNodePool", "spec/replicas", 3, f"{POOL}/replicas", 3),
    ("KafkaNodePool", "spec/roles", ["broker"], f"{POOL}/roles", ["broker"]),
    *(
        ("KafkaNodePool", f"spec/{name}", {"some": "thing"}, f"{POOL}/{name}", {"some": "thing"})
        for name in ("storage", "resources", "jvmOptions", "template")
    ),
]
# In v1 besides:
DIFFERENT_IN_V1: list[tuple[str, str, Any, str, Any]] = [
    ("Kafka", f"spec/kafka/rack/{name}", "x", f"{OVERRIDES}/kafka/rack/{name}", "x") for name in ("type", "envVarName")
]
# In v1beta2 besides:
DIFFERENT_IN_V1BETA2: list[tuple[str, str, Any, str, Any]] = [
    ("KafkaMirrorMaker2", "spec/target/alias", "america", "spec/connectCluster", "america"),
    ("KafkaMirrorMaker2", "spec/target/alias", "america", f"{TARGET}/alias", "america"),
    ("KafkaMirrorMaker2", "spec/target/alias", "america", "spec/mirrors/0/targetCluster", "america"),
    ("KafkaMirrorMaker2", "spec/target/bootstrapServers", "a:9098", f"{TARGET}/bootstrapServers", "a:9098"),
    ("KafkaMirrorMaker2", "spec/target/tls", CERTIFICATES, f"{TARGET}/tls", CERTIFICATES),
    ("KafkaMirrorMaker2", "spec/target/tls", {}, f"{TARGET}/tls", {}),
    ("KafkaMirrorMaker2", "spec/target/authentication", PASSWORD, f"{TARGET}/authentication", PASSWORD),
    ("KafkaMirrorMaker2", "spec/target/config", {"a.b": 1}, f"{TARGET}/config", {"a.b": 1}),
    ("KafkaMirrorMaker2", "spec/target/groupId", "mm2-na", f"{TARGET}/config/group.id", "mm2-na"),
    ("KafkaMirrorMaker2", "spec/target/configStorageTopic", "c", f"{TARGET}/config/config.storage.topic", "c"),
    ("KafkaMirrorMaker2", "spec/target/offsetStorageTopic", "o", f"{TARGET}/config/offset.storage.topic", "o"),
    ("KafkaMirrorMaker2", "spec/target/statusStorageTopic", "s", f"{TARGET}/config/status.storage.topic", "s"),
    ("KafkaMirrorMaker2", "spec/mirrors[]/source/alias", "asia", f"{SOURCE}/alias", "asia"),
    ("KafkaMirrorMaker2", "spec/mirrors[]/source/alias", "asia", "spec/mirrors/0/sourceCluster", "asia"),
    ("KafkaMirrorMaker2", "spec/mirrors[]/source/bootstrapServers", "e:9098", f"{SOURCE}/bootstrapServers", "e:9098"),
    ("KafkaMirrorMaker2", "spec/mirrors[]/source/tls", CERTIFICATES, f"{SOURCE}/tls", CERTIFICATES),
    ("KafkaMirrorMaker2", "spec/mirrors[]/source/authentication", PASSWORD, f"{SOURCE}/authentication", PASSWORD),
    ("KafkaMirrorMaker2", "spec/mirrors[]/source/config", {"a.b": 1}, f"{SOURCE}/config", {"a.b": 1}),
]
# What stays behind, for a reason that the table of the role's README gives.
LEFT_OUT = [("Kafka", "spec/kafka/version", "4.3.1"), ("KafkaMirrorMaker2", "spec/version", "4.3.1")]
# What no dialect has: kind, field, value, and what the message says after the resource's name.
REFUSED: list[tuple[str, str, Any, str]] = [
    ("KafkaUser", "spec/authentication/validityDays", 1, "spec.authentication.validityDays: is not possible with"),
    ("KafkaUser", "spec/authentication/renewalDays", 1, "spec.authentication.renewalDays: is not possible with"),
]
# What v1 has, and v1beta2 has not:
REFUSED_IN_V1BETA2: list[tuple[str, str, Any, str]] = [
    ("Kafka", "spec/kafka/rack/type", "topology-label", "spec.kafka.rack.type: is not possible with Event Streams"),
    ("Kafka", "spec/kafka/rack/envVarName", "X", "spec.kafka.rack.envVarName: is not possible with Event Streams"),
    ("KafkaMirrorMaker2", "spec/rack/type", "topology-label", "spec.rack.type: is not possible with Event Streams"),
    ("KafkaMirrorMaker2", "spec/rack/envVarName", "X", "spec.rack.envVarName: is not possible with Event Streams"),
    *(
        (
            "KafkaMirrorMaker2",
            f"spec/mirrors[]/{connector}/version",
            "1",
            f"spec.mirrors[0].{connector}.version: is not possible with Event Streams",
        )
        for connector in ("sourceConnector", "checkpointConnector")
    ),
]
# Values that no dialect has, in fields that it has; and fields that none has.
WRONG_VALUES: list[tuple[str, str, Any, str]] = [
    ("Kafka", "spec/kafka/listeners", [{"name": "x", "type": "tlsroute"}], "spec.kafka.listeners: the type 'tlsroute'"),
    ("Kafka", "spec/kafka/listener", [], "spec.kafka.listener: unknown field"),
    ("Kafka", "spec/kafka", "text", "spec.kafka: expected a mapping"),
    ("KafkaNodePool", "spec/replica", 1, "spec.replica: unknown field"),
    ("KafkaTopic", "spec/partition", 1, "spec.partition: unknown field"),
    ("KafkaUser", "spec/acls", [], "spec.acls: unknown field"),
    ("KafkaMirrorMaker2", "spec/connectCluster", "a", "spec.connectCluster: unknown field"),
    ("KafkaMirrorMaker2", "spec/mirrors[]/topics", "a", r"spec.mirrors[0].topics: unknown field"),
    (
        "Kafka",
        "spec/kafka/listeners",
        [{"name": "x", "type": "route", "configuration": {"perBrokerLabelsTemplate": {}}}],
        "spec.kafka.listeners: configuration.perBrokerLabelsTemplate of x is not possible",
    ),
]
# Values that only v1 has:
WRONG_VALUES_IN_V1BETA2: list[tuple[str, str, Any, str]] = [
    (
        "KafkaMirrorMaker2",
        "spec/mirrors[]/source/authentication",
        {"type": "custom"},
        "spec.mirrors[0].source.authentication: the type 'custom' is not possible",
    ),
    (
        "KafkaMirrorMaker2",
        "spec/mirrors[]/source/alias",
        "america",
        "spec.mirrors[0].source.alias: is also the alias of the target",
    ),
]


def in_dialects(common: list[Any], **own: list[Any]) -> list[Any]:
    """The rows of a table, each with the dialect that it holds of: those of all, and those of one."""
    rows = [(version, *row) for version in API_VERSIONS for row in common]
    return rows + [(f"eventstreams.ibm.com/{version}", *row) for version, more in own.items() for row in more]


@pytest.mark.parametrize(
    ("api_version", "kind", "path", "value", "new_path", "expected"),
    in_dialects(DIFFERENT, v1=DIFFERENT_IN_V1, v1beta2=DIFFERENT_IN_V1BETA2),
)
def test_a_field_that_differs_moves(
    api_version: str, kind: str, path: str, value: Any, new_path: str, expected: Any
) -> None:
    before = sample(kind, path, value)
    untouched = copy.deepcopy(before)
    assert at(convert_one(before, api_version), new_path) == expected
    assert before == untouched, "conversion changes what it is given"


@pytest.mark.parametrize(("api_version", "kind", "path", "value"), in_dialects(LEFT_OUT))
def test_a_field_that_the_operator_decides_is_left_out(api_version: str, kind: str, path: str, value: Any) -> None:
    assert value not in yaml.safe_dump(convert_one(sample(kind, path, value), api_version))


@in_each_dialect
def test_an_older_kafka_than_the_operators_own_is_refused(api_version: str) -> None:
    message = (
        r"sample\.yaml:1: Kafka/sample: spec\.kafka\.version: '3\.9\.1' is not possible: the operator runs the release"
    )
    with pytest.raises(WrongUseError, match=message):
        convert_one(sample("Kafka", "spec/kafka/version", "3.9.1"), api_version)


@pytest.mark.parametrize(
    ("api_version", "kind", "path", "value", "message"),
    in_dialects(REFUSED + WRONG_VALUES, v1beta2=REFUSED_IN_V1BETA2 + WRONG_VALUES_IN_V1BETA2),
)
def test_what_the_dialect_does_not_have_is_refused(
    api_version: str, kind: str, path: str, value: Any, message: str
) -> None:
    name = "nodes" if kind == "KafkaNodePool" else "sample"
    with pytest.raises(WrongUseError) as caught:
        convert_one(sample(kind, path, value), api_version)
    assert str(caught.value).startswith(f"sample.yaml:1: {kind}/{name}: {message}")


@pytest.mark.parametrize(
    ("api_version", "kind", "path"),
    [
        (version, kind, path)
        for version, kinds in FIELDS.items()
        for kind, rules in kinds.items()
        for path, rule in rules.items()
        if rule == SAME
    ],
)
def test_other_fields_are_the_same(api_version: str, kind: str, path: str) -> None:
    converted = convert_one(sample(kind, path, {"some": "thing"}), api_version)
    assert at(converted, path.replace("[]", "/0")) == {"some": "thing"}


@in_each_dialect
def test_the_tables_above_are_complete(api_version: str) -> None:
    own = [*DIFFERENT_IN_V1] if api_version == V1 else [*DIFFERENT_IN_V1BETA2, *REFUSED_IN_V1BETA2]
    tested = {(row[0], row[1].replace("/", ".")) for row in [*DIFFERENT, *LEFT_OUT, *REFUSED, *own]}
    assert tested == {(kind, field) for kind, field, _, _ in differences(api_version)}


@pytest.mark.parametrize(
    ("version", "api_version"), [("13.0.0", V1), ("13.0", V1), ("13.2.1", V1), ("12.3.1", V1BETA2), ("12.0", V1BETA2)]
)
def test_the_version_decides_on_the_dialect(version: str, api_version: str) -> None:
    documents = convert(
        *(resource(kind) for kind in ("Kafka", "KafkaNodePool", "KafkaTopic", "KafkaUser")),
        mirror_maker(),
        settings=replace(SETTINGS, version=version),
    )
    assert {document["apiVersion"] for document in documents} == {api_version}
    assert len(documents) == 4


@pytest.mark.parametrize("version", ["latest", "11.8.0", "14.0.0", "13", "", None])
def test_a_version_of_another_dialect_is_refused(version: Any) -> None:
    with pytest.raises(WrongUseError, match=rf"event_streams_version: '{version}' is not .*13\.0\.0.*12\.3\.1"):
        convert(resource("KafkaTopic"), settings=replace(SETTINGS, version=version))


def test_a_mirror_is_in_v1_what_it_is_for_strimzi() -> None:
    before = yaml.safe_load((ROOT / "playbooks/03-broadcast/manifests/mm2-na.yaml").read_text(encoding="utf-8"))
    (converted,) = convert(before)
    del before["spec"]["version"]
    assert converted == before | {"apiVersion": V1}


@in_each_dialect
def test_what_selects_by_a_label_of_strimzis_selects_by_the_dialects(api_version: str) -> None:
    def term(prefix: str) -> dict[str, Any]:
        expression = {"key": f"{prefix}name", "operator": "In", "values": ["a"]}
        selector = {"matchLabels": {f"{prefix}cluster": "a"}, "matchExpressions": [expression]}
        return {
            "affinity": {
                "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": selector}]},
                # Of the nodes, whose labels are not renamed.
                "nodeAffinity": {
                    "required": [{"matchExpressions": [{"key": "strimzi.io/pool", "operator": "Exists"}]}]
                },
            },
            "topologySpreadConstraints": [{"labelSelector": selector}],
        }

    def listeners(prefix: str) -> list[dict[str, Any]]:
        return [{"name": "x", "networkPolicyPeers": [{"podSelector": {"matchLabels": {f"{prefix}kind": "Kafka"}}}]}]

    theirs, ours = "strimzi.io/", "eventstreams.ibm.com/"
    kafka = convert_one(resource("Kafka", kafka={"listeners": listeners(theirs)}), api_version)
    assert at(kafka, f"{OVERRIDES}/kafka/listeners") == listeners(ours)
    pool = convert_one(resource("KafkaNodePool", template={"pod": term(theirs)}), api_version)
    assert at(pool, f"{POOL}/template/pod") == term(ours)
    mirror = convert_one(mirror_maker(template={"pod": term(theirs)}), api_version)
    assert at(mirror, "spec/template/pod") == term(ours)
    field = {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['strimzi.io/cluster']"}}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}}
    deployment |= {"spec": {"template": {"spec": term(theirs) | {"containers": [{"env": [field]}]}}}}
    (converted,) = convert(deployment, settings=OF_VERSION[api_version])
    own = at(converted, "spec/template/spec")
    assert (
        own.pop("containers")[0]["env"][0]["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.labels['{ours}cluster']"
    )
    assert own == term(ours)


@in_each_dialect
def test_the_kinds_and_labels_are_the_dialects(api_version: str) -> None:
    topic = resource("KafkaTopic", partitions=1)
    topic["metadata"]["labels"] = {"strimzi.io/cluster": "sample", "app": "shop"}
    topic["metadata"]["annotations"] = {"strimzi.io/pause-reconciliation": "true"}
    assert convert_one(topic, api_version) == {
        "apiVersion": api_version,
        "kind": "KafkaTopic",
        "metadata": {
            "name": "sample",
            "namespace": "europe",
            "labels": {"eventstreams.ibm.com/cluster": "sample", "app": "shop"},
            "annotations": {"eventstreams.ibm.com/pause-reconciliation": "true"},
        },
        "spec": {"partitions": 1},
    }


def test_other_resources_stay_as_they_are() -> None:
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "producer"},
        "spec": {"replicas": 1},
    }
    assert convert(deployment) == [deployment]


@in_each_dialect
def test_a_kafka_and_its_pools_become_one_event_streams(api_version: str) -> None:
    second = resource("KafkaNodePool", replicas=1)
    second["metadata"] |= {"name": "more", "annotations": {"strimzi.io/next-node-ids": "[5-10]"}}
    second["metadata"]["labels"]["team"] = "shop"
    documents = [resource("KafkaNodePool", replicas=3), second, resource("Kafka", clusterCa={})]
    (converted,) = convert(*documents, settings=OF_VERSION[api_version])
    assert converted == {
        "apiVersion": api_version,
        "kind": "EventStreams",
        "metadata": {"name": "sample", "namespace": "europe"},
        "spec": {
            "version": "latest",
            "license": {"accept": True, "license": "L-TEST", "use": "EventAutomationNonProduction"},
            "adminApi": {},
            "adminUI": {"authentication": [{"type": "scram-sha-512"}]},
            "strimziOverrides": {
                "clusterCa": {},
                "nodePools": [
                    {"name": "nodes", "replicas": 3},
                    {
                        "name": "more",
                        "annotations": {"eventstreams.ibm.com/next-node-ids": "[5-10]"},
                        "labels": {"team": "shop"},
                        "replicas": 1,
                    },
                ],
            },
        },
    }


def test_the_parts_of_event_streams_are_for_the_settings_to_say() -> None:
    settings = replace(SETTINGS, admin_ui=False, rest_producer=True)
    (converted,) = convert(resource("Kafka"), resource("KafkaNodePool"), settings=settings)
    assert {"adminUI", "adminApi", "restProducer"} & set(converted["spec"]) == {"restProducer"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (EventStreams(False, "L-TEST", "x"), r"spec\.license\.accept: .*=L-TEST.* event_streams_accept_license"),
        (EventStreams(True, "", "x"), r"spec\.license\.license: set event_streams_license"),
        (EventStreams(True, "L-TEST", ""), r"spec\.license\.use: set event_streams_license_use"),
    ],
)
def test_nothing_is_accepted_for_the_user(settings: EventStreams, message: str) -> None:
    with pytest.raises(WrongUseError, match=rf"sample\.yaml:1: Kafka/sample: {message}"):
        convert(resource("Kafka"), resource("KafkaNodePool"), settings=settings)
    convert(mirror_maker(), settings=settings)


def test_the_operator_says_where_the_console_is() -> None:
    (converted,) = convert(resource("Kafka"), resource("KafkaNodePool"))
    assert web_console(converted, "admin") is None
    converted["status"] = {"adminUiUrl": "https://admin.example.com"}
    assert web_console(converted, "admin") == {
        "name": "sample",
        "url": "https://admin.example.com",
        "username": "admin",
    }


def test_what_belongs_together_has_to_come_together() -> None:
    with pytest.raises(WrongUseError, match=r"Kafka/sample: .* no KafkaNodePool of this cluster"):
        convert(resource("Kafka"))
    with pytest.raises(WrongUseError, match=r"KafkaNodePool/nodes: .* its Kafka is not among"):
        convert(resource("KafkaNodePool"))
    elsewhere = resource("Kafka")
    elsewhere["metadata"]["namespace"] = "asia"
    with pytest.raises(WrongUseError, match="its Kafka is not among"):
        convert(elsewhere, resource("KafkaNodePool"))


def test_two_sources_become_two_clusters_and_the_same_source_one() -> None:
    first, second = ({"alias": alias, "bootstrapServers": f"{alias}:9098"} for alias in ("europe", "asia"))
    mirrors: list[dict[str, Any]] = [
        {"source": first, "topicsPattern": "a"},
        {"source": second},
        {"source": first, "topicsPattern": "b"},
    ]
    converted = convert_one(mirror_maker(mirrors=mirrors), V1BETA2)
    assert [cluster["alias"] for cluster in converted["spec"]["clusters"]] == ["america", "europe", "asia"]
    assert converted["spec"]["mirrors"] == [
        {"targetCluster": "america", "sourceCluster": "europe", "topicsPattern": "a"},
        {"targetCluster": "america", "sourceCluster": "asia"},
        {"targetCluster": "america", "sourceCluster": "europe", "topicsPattern": "b"},
    ]
    mirrors[2]["source"] = first | {"bootstrapServers": "elsewhere:9098"}
    with pytest.raises(WrongUseError, match=r"spec\.mirrors\[2\]\.source: differs from another source"):
        convert_one(mirror_maker(mirrors=mirrors), V1BETA2)


def test_a_setting_that_stands_twice_is_refused() -> None:
    target = {"alias": "america", "groupId": "one", "config": {"group.id": "two"}}
    with pytest.raises(WrongUseError, match=r"spec\.target\.config\.group\.id: .* has another value already"):
        convert_one(mirror_maker(target=target), V1BETA2)


@in_each_dialect
def test_a_mirrors_pods_carry_what_the_licence_wants_metered(api_version: str) -> None:
    annotations = {"productChargedContainers": "{name}-mirrormaker2", "a": "1"}
    settings = replace(OF_VERSION[api_version], pod_annotations=annotations)
    own = {"pod": {"metadata": {"annotations": {"a": "2"}}}}
    (converted,) = convert(mirror_maker(template=own), settings=settings)
    assert converted["spec"]["template"]["pod"]["metadata"]["annotations"] == {
        "productChargedContainers": "sample-mirrormaker2",
        "a": "2",
    }


def test_other_dialects_and_kinds_are_refused() -> None:
    older = resource("KafkaTopic") | {"apiVersion": "kafka.strimzi.io/v1beta2"}
    with pytest.raises(WrongUseError, match=r"'kafka\.strimzi\.io/v1beta2, KafkaTopic' cannot be converted"):
        convert(older)
    with pytest.raises(WrongUseError, match="KafkaBridge' cannot be converted"):
        convert(resource("Kafka") | {"kind": "KafkaBridge"})


@in_each_dialect
def test_the_documentation_has_the_same_table(api_version: str) -> None:
    text = (ROOT / "docs/event-streams.md").read_text(encoding="utf-8")
    (section,) = (part for part in text.split("\n### ") if part.startswith(f"`{api_version}`"))
    rows = [
        [cell.strip() for cell in line.strip("| ").split(" | ")] for line in section.splitlines() if "| `spec." in line
    ]
    documented = {(row[0], *(cell.replace("`", "") if cell != "–" else "" for cell in row[1:])) for row in rows}
    assert documented == set(differences(api_version))


def paths(value: Any) -> Iterator[tuple[str | int, ...]]:
    """The path of everything within a document."""
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (key,)
        yield from ((key, *below) for below in paths(item))


@in_each_dialect
@pytest.mark.parametrize("junk", [None, "", "text", 5, True, [], [None], ["text"], {}, {"a": None}], ids=repr)
def test_whatever_stands_there_is_converted_or_refused(junk: Any, api_version: str) -> None:
    settings = replace(OF_VERSION[api_version], pod_annotations={"a": "b"})
    mirror = mirror_maker(template={"pod": {"metadata": {"annotations": {"a": "2"}}}})
    manifest = ROOT / "playbooks/03-broadcast/manifests/mm2-na.yaml"
    mirror["spec"] |= yaml.safe_load(manifest.read_text(encoding="utf-8"))["spec"]
    kafka = resource("Kafka", kafka={"version": "4.3.1", "listeners": [{"name": "a", "type": "route"}], "config": {}})
    for index, document in enumerate([mirror, kafka, resource("KafkaNodePool", replicas=1), resource("KafkaTopic")]):
        for path in paths(document):
            if path[0] in ("apiVersion", "kind") or path in (("metadata",), ("metadata", "name")):
                continue  # who reads the file has looked at these
            documents = [copy.deepcopy(d) for d in (mirror, kafka, resource("KafkaNodePool"), resource("KafkaTopic"))]
            documents[index] = copy.deepcopy(document)
            here: Any = documents[index]
            for part in path[:-1]:
                here = here[part]
            here[path[-1]] = junk
            with contextlib.suppress(WrongUseError):
                convert(*documents, settings=settings)


MIRRORS = sorted(ROOT.glob("playbooks/*/manifests/mm2*.yaml"))


@pytest.mark.parametrize("path", MIRRORS, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_the_mirrors_of_the_scenarios_can_be_converted(path: Path) -> None:
    before = yaml.safe_load(path.read_text(encoding="utf-8"))
    converted = convert_one(before, V1BETA2)
    target, *sources = converted["spec"]["clusters"]
    assert converted["spec"]["connectCluster"] == target["alias"] == before["spec"]["target"]["alias"]
    assert target["config"]["group.id"] == before["metadata"]["name"]
    assert [source["alias"] for source in sources] == [m["source"]["alias"] for m in before["spec"]["mirrors"]]
    for source, mirror, origin in zip(sources, converted["spec"]["mirrors"], before["spec"]["mirrors"], strict=True):
        assert source["tls"] == origin["source"]["tls"]
        assert mirror["sourceCluster"] == source["alias"]
        assert mirror["targetCluster"] == target["alias"]
        assert mirror["sourceConnector"] == origin["sourceConnector"]
