"""Converts Strimzi's API v1 to the dialects of IBM Event Streams: ``v1`` from 13.0 on, and ``v1beta2`` of 12.

``FIELDS`` has one table for each, with a rule for each field. A field without a rule is refused, and so is one that the
dialect does not have: nothing is lost silently. Sources: the references of the EventStreams resource
(https://ibm.github.io/event-automation/es/es_13.0/reference/api-reference-es/, and the same for 12.0 and 12.3) and,
for all below its ``strimziOverrides`` and for the other kinds, the Strimzi that a release is made of: 1.0.0 for 13.0,
0.51.0 for 12.3, 0.50.1 for 12.2, 0.48.0 for 12.1, and an older one for 12.0. What ``v1beta2`` refuses as newer, 12.0
lacks; some of it came with 12.2.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from loosehanger.errors import WrongUseError
from loosehanger.lab.manifests import sign_ins
from loosehanger.lab.manifests.resources import KAFKA_VERSION
from loosehanger.lab.manifests.views import MIRROR

GROUP: Final = "eventstreams.ibm.com"
V1: Final = f"{GROUP}/v1"
V1BETA2: Final = f"{GROUP}/v1beta2"
API_VERSIONS: Final = (V1, V1BETA2)
"""The newer one first: no release but 12.3 can serve both."""
STRIMZI: Final = "kafka.strimzi.io/v1"
LABELS: Final = f"{GROUP}/"
STRIMZI_LABELS: Final = "strimzi.io/"
CLUSTER_LABEL: Final = f"{STRIMZI_LABELS}cluster"

Document = dict[str, Any]
Change = Callable[[Any], Any]


@dataclass(frozen=True)
class EventStreams:
    """The settings of an EventStreams resource that a Kafka resource does not have."""

    accept_license: bool
    """Whether the user has read and accepted the licence."""
    license: str
    """The licence's id, such as ``L-CYBH-K48BZQ``."""
    license_use: str
    """The licensed use, such as ``EventAutomationNonProduction``."""
    version: str = "13.0.0"
    """The version of the Event Streams operator, which determines the dialect."""
    admin_ui: bool = True
    """Whether to run the web console and the REST admin API that it and IBM's command line use."""
    rest_producer: bool = False
    """Whether to run the REST producer API."""
    pod_annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations for the pods of mirrors that the licence's metering requires; ``{name}`` is the mirror's name."""

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of the dialect.

        Raises:
            WrongUseError: the version is unknown, or its dialect is not supported.
        """
        match = re.fullmatch(r"(12|13)\.\d+(\.\d+)?", str(self.version))
        if not match:
            raise WrongUseError(
                f"event_streams_version: '{self.version}' is not a version whose resources the kit can write; expected "
                "one of 13, such as 13.0.0, or of 12, such as 12.3.1"
            )
        return V1 if match[1] == "13" else V1BETA2


@dataclass(frozen=True)
class Rule:
    """How a field is converted."""

    paths: tuple[str, ...] = ()
    """The paths of its value in the result; none leaves it out."""
    change: Change | None = None
    """A conversion of its value."""
    why: str = ""
    """The reason why it is left out, changed or refused."""
    refused: bool = False


def cluster_label(api_version: str) -> str:
    """Returns the label by which an operator marks the pods of a resource, with the resource's name."""
    return f"{LABELS if api_version in API_VERSIONS else STRIMZI_LABELS}cluster"


def _moved(*paths: str, change: Change | None = None, why: str = "") -> Rule:
    return Rule(paths, change, why)


def _left_out(why: str) -> Rule:
    return Rule((), None, why)


def _refused(why: str) -> Rule:
    return Rule((), None, why, refused=True)


SAME: Final = Rule()


def _without_custom_type(authentication: Any) -> Any:
    if _part(authentication, "type") == "custom":
        raise ValueError("the type 'custom' is not possible; expected scram-sha-512, scram-sha-256, plain or tls")
    return authentication


def _without_gateway(listeners: Any) -> Any:
    for listener in listeners if isinstance(listeners, list) else ():
        if _part(listener, "type") == "tlsroute":
            raise ValueError(f"the type 'tlsroute' of {listener.get('name')} is not possible; 'route' is on OpenShift")
        for name in _part(listener, "configuration") or ():
            if name in ("parentRefs", "perBrokerAnnotationsTemplate", "perBrokerLabelsTemplate"):
                raise ValueError(f"configuration.{name} of {listener.get('name')} is not possible")
    return listeners


_VERSION = _left_out("the operator runs the version of Kafka that it comes with")
_NEWER = "newer than Event Streams 12.0"
_NEWER_THAN_13 = "newer than Event Streams 13.0"


def _mirrored_cluster(v1: str, alias: str) -> dict[str, Rule]:
    """Returns rules for the fields of either end of a mirror, which become an entry of ``clusters``."""
    cluster = f"spec/clusters/{{{alias}}}"
    return {
        f"{v1}/bootstrapServers": _moved(f"{cluster}/bootstrapServers"),
        f"{v1}/tls": _moved(f"{cluster}/tls"),
        f"{v1}/authentication": _moved(
            f"{cluster}/authentication", change=_without_custom_type, why=f"without the type custom: {_NEWER}"
        ),
        f"{v1}/config": _moved(f"{cluster}/config"),
    }


def _same(prefix: str, names: str) -> dict[str, Rule]:
    return {f"{prefix}/{name}": SAME for name in names.split()}


def _override(prefix: str, names: str) -> dict[str, Rule]:
    """Returns rules for fields of a Kafka that move below ``strimziOverrides``."""
    return {
        f"{prefix}/{name}": _moved(f"{prefix.replace('spec', 'spec/strimziOverrides', 1)}/{name}")
        for name in names.split()
    }


def _of_a_pool(names: str) -> dict[str, Rule]:
    return {f"spec/{name}": _moved(f"spec/strimziOverrides/nodePools/{{pool}}/{name}") for name in names.split()}


_KAFKA = "spec/strimziOverrides/kafka"
_TARGET = "spec/clusters/{target}"
_CONNECTOR = "tasksMax config state autoRestart listOffsets alterOffsets"
_MIRRORED = "alias bootstrapServers tls authentication config"
"""The fields of each cluster of a mirror in v1."""

_OF_V1BETA2: Final[Mapping[str, Mapping[str, Rule]]] = {
    "Kafka": {
        **_override(
            "spec/kafka",
            "metadataVersion image config authorization brokerRackInitImage livenessProbe readinessProbe jvmOptions "
            "jmxOptions metricsConfig logging template tieredStorage quotas",
        ),
        "spec/kafka/version": _VERSION,
        "spec/kafka/listeners": _moved(
            f"{_KAFKA}/listeners", change=_without_gateway, why=f"without the type tlsroute: {_NEWER}"
        ),
        "spec/kafka/rack/topologyKey": _moved(f"{_KAFKA}/rack/topologyKey"),
        "spec/kafka/rack/type": _refused(_NEWER),
        "spec/kafka/rack/envVarName": _refused(_NEWER),
        **_override("spec", "entityOperator clusterCa clientsCa cruiseControl kafkaExporter maintenanceTimeWindows"),
    },
    "KafkaNodePool": _of_a_pool("replicas roles storage resources jvmOptions template"),
    "KafkaTopic": _same("spec", "topicName partitions replicas config"),
    "KafkaUser": {
        **_same("spec", "authorization quotas template"),
        **_same("spec/authentication", "type password"),
        "spec/authentication/validityDays": _refused(_NEWER),
        "spec/authentication/renewalDays": _refused(_NEWER),
    },
    MIRROR: {
        "spec/version": _VERSION,
        "spec/target/alias": _moved("spec/connectCluster", f"{_TARGET}/alias", "spec/mirrors/{every}/targetCluster"),
        **_mirrored_cluster("spec/target", "target"),
        "spec/target/groupId": _moved(f"{_TARGET}/config/group.id"),
        "spec/target/configStorageTopic": _moved(f"{_TARGET}/config/config.storage.topic"),
        "spec/target/offsetStorageTopic": _moved(f"{_TARGET}/config/offset.storage.topic"),
        "spec/target/statusStorageTopic": _moved(f"{_TARGET}/config/status.storage.topic"),
        "spec/mirrors[]/source/alias": _moved("spec/clusters/{source}/alias", "spec/mirrors/{mirror}/sourceCluster"),
        **_mirrored_cluster("spec/mirrors[]/source", "source"),
        **_same("spec/mirrors[]", "topicsPattern topicsExcludePattern groupsPattern groupsExcludePattern"),
        **_same("spec/mirrors[]/sourceConnector", _CONNECTOR),
        **_same("spec/mirrors[]/checkpointConnector", _CONNECTOR),
        "spec/mirrors[]/sourceConnector/version": _refused(_NEWER),
        "spec/mirrors[]/checkpointConnector/version": _refused(_NEWER),
        **_same(
            "spec",
            "replicas image resources livenessProbe readinessProbe jvmOptions jmxOptions logging clientRackInitImage "
            "metricsConfig tracing template",
        ),
        "spec/rack/topologyKey": SAME,
        "spec/rack/type": _refused(_NEWER),
        "spec/rack/envVarName": _refused(_NEWER),
    },
}

_OF_V1: Final[Mapping[str, Mapping[str, Rule]]] = {
    **_OF_V1BETA2,
    "Kafka": {
        **_OF_V1BETA2["Kafka"],
        "spec/kafka/listeners": _moved(
            f"{_KAFKA}/listeners", change=_without_gateway, why=f"without the type tlsroute: {_NEWER_THAN_13}"
        ),
        **_override("spec/kafka", "rack/type rack/envVarName"),
    },
    "KafkaUser": {
        **_OF_V1BETA2["KafkaUser"],
        "spec/authentication/validityDays": _refused(_NEWER_THAN_13),
        "spec/authentication/renewalDays": _refused(_NEWER_THAN_13),
    },
    # As in Strimzi except the version: a target, and a source in each mirror, and no list of clusters.
    MIRROR: {
        "spec/version": _VERSION,
        **_same("spec/target", f"{_MIRRORED} groupId configStorageTopic offsetStorageTopic statusStorageTopic"),
        **_same("spec/mirrors[]/source", _MIRRORED),
        **_same("spec/mirrors[]", "topicsPattern topicsExcludePattern groupsPattern groupsExcludePattern"),
        **_same("spec/mirrors[]/sourceConnector", f"{_CONNECTOR} version"),
        **_same("spec/mirrors[]/checkpointConnector", f"{_CONNECTOR} version"),
        **{
            path: rule
            for path, rule in _OF_V1BETA2[MIRROR].items()
            if rule == SAME and not path.startswith(("spec/mirrors", "spec/target"))
        },
        **_same("spec/rack", "type envVarName"),
    },
}

FIELDS: Final[Mapping[str, Mapping[str, Mapping[str, Rule]]]] = {V1: _OF_V1, V1BETA2: _OF_V1BETA2}
"""By dialect and kind: field in Strimzi's v1 → its rule.

A rule covers everything below its field.
"""

_LISTS: Final = ("spec/clusters", "spec/mirrors", "spec/strimziOverrides/nodePools")
"""Lists of the result, which are assembled by name or number."""


def differences(api_version: str) -> Iterator[tuple[str, str, str, str]]:
    """Yields each field that differs from Strimzi: kind, field, new path (empty: none), reason or conversion."""
    for kind, rules in FIELDS[api_version].items():
        for path, rule in rules.items():
            if rule != SAME:
                why = f"refused: {rule.why}" if rule.refused else rule.why
                yield kind, _dotted(path), ", ".join(map(_dotted, rule.paths)), why


def to_event_streams(
    resources: Iterable[tuple[str, Mapping[str, Any]]], settings: EventStreams
) -> list[tuple[str, Document]]:
    """Converts Strimzi's resources; resources of other kinds only get the dialect's labels.

    Args:
        resources: each with its place, such as ``file:line``. A Kafka and its KafkaNodePools become one EventStreams.
        settings: the settings that Strimzi's resources do not have.

    Returns:
        The converted resources, each with its place.

    Raises:
        WrongUseError: a field cannot be converted; the message names file, resource and field.
    """
    listed = list(resources)
    pools = [(where, document) for where, document in listed if _is(document, "KafkaNodePool")]
    clusters = [_key(document) for _, document in listed if _is(document, "Kafka")]
    for where, pool in pools:
        if _key_of_cluster(pool) not in clusters:
            _refuse(
                where, pool, f"metadata.labels.{CLUSTER_LABEL}", "its Kafka is not among the manifests given with it"
            )
    result = []
    for where, document in listed:
        if _is(document, "Kafka"):
            own = [(at, pool) for at, pool in pools if _key_of_cluster(pool) == _key(document)]
            result.append((where, _event_streams(where, document, own, settings)))
        elif _is(document, MIRROR):
            result.append((where, _mirror_maker(where, document, settings)))
        elif _is_other(document):
            result.append((where, _renamed(document)))
        elif not _is(document, "KafkaNodePool"):
            result.append((where, _converted(where, document, settings.api_version)))
    return result


def web_console(event_streams: Mapping[str, Any], user: str) -> dict[str, str] | None:
    """Returns address and user of a cluster's web console; None if it has none, or not yet.

    Args:
        event_streams: the EventStreams, with its status.
        user: a KafkaUser with a password, whose ACLs apply in the console.
    """
    url = event_streams.get("status", {}).get("adminUiUrl")
    return {"name": event_streams["metadata"]["name"], "url": url, "username": user} if url else None


def inner_pools(event_streams: Mapping[str, Any]) -> list[Document]:
    """Returns the node pools within an EventStreams; none for any other resource."""
    return _part(event_streams, "spec", "strimziOverrides", "nodePools") or []


def _event_streams(
    where: str, kafka: Mapping[str, Any], pools: Sequence[tuple[str, Mapping[str, Any]]], settings: EventStreams
) -> Document:
    if not pools:
        _refuse(where, kafka, "metadata.name", "no KafkaNodePool of this cluster is among the manifests given with it")
    if not settings.accept_license:
        _refuse(
            where,
            kafka,
            "spec.license.accept",
            f"the licence is not accepted; read https://www.ibm.com/terms/?id={settings.license}, "
            "and set event_streams_accept_license to true if you accept it",
        )
    for name, value in (("license", settings.license), ("license_use", settings.license_use)):
        if not value:
            _refuse(where, kafka, f"spec.license.{name.removeprefix('license_')}", f"set event_streams_{name}")
    if (version := _part(kafka, "spec", "kafka", "version")) not in (None, KAFKA_VERSION):
        why = f"'{version}' is not possible: the operator runs the release that it comes with; leave the version out"
        _refuse(where, kafka, "spec.kafka.version", why)
    if sign_ins.tokens_of(kafka):
        why = (
            "is not possible on Event Streams: its own console signs people in with the password of 'admin', who would "
            "have none; leave kafka_cluster_token_endpoint out, and offer SCRAM-SHA-512"
        )
        _refuse(where, kafka, f"metadata.annotations.{sign_ins.OAUTH_ENDPOINT}", why)
    document = _renamed(kafka) | {"apiVersion": settings.api_version, "kind": "EventStreams"}
    spec: Document = {
        # Without a patch version: the operator updates itself, and what it runs, within its channel.
        "version": "latest",
        "license": {"accept": True, "license": settings.license, "use": settings.license_use},
    }
    if settings.admin_ui:
        spec |= {"adminApi": {}, "adminUI": {"authentication": [{"type": "scram-sha-512"}]}}
    if settings.rest_producer:
        spec["restProducer"] = {}
    result: Document = {"spec": spec}
    _Conversion(where, kafka, result, settings.api_version).run({})
    for at, pool in pools:
        name = pool["metadata"]["name"]
        entry = ("spec", "strimziOverrides", "nodePools", name)
        conversion = _Conversion(at, pool, result, settings.api_version)
        conversion.place((*entry, "name"), name, "metadata/name")
        for part in ("annotations", "labels"):
            # The pool's place shows its cluster.
            names = {key: value for key, value in (_part(pool, "metadata", part) or {}).items() if key != CLUSTER_LABEL}
            if names:
                conversion.place((*entry, part), _in_the_dialect(names), f"metadata/{part}")
        conversion.run({"pool": name})
    return document | _with_lists(result)


def _mirror_maker(where: str, mirror_maker: Mapping[str, Any], settings: EventStreams) -> Document:
    target = _part(mirror_maker, "spec", "target", "alias")
    if settings.api_version == V1BETA2:
        _check_clusters(where, mirror_maker, target)
    document = _converted(where, mirror_maker, settings.api_version, target=target)
    name = document["metadata"]["name"]
    for key, value in settings.pod_annotations.items():
        annotations = _folder(document, "spec", "template", "pod", "metadata", "annotations")
        if annotations is None:
            _refuse(where, mirror_maker, "spec.template.pod.metadata.annotations", "expected a mapping")
        else:
            annotations.setdefault(key, value.replace("{name}", name))
    return document


def _check_clusters(where: str, mirror_maker: Mapping[str, Any], target: Any) -> None:
    """Checks that one list can hold all clusters of a mirror, by their aliases."""
    sources: dict[str, Any] = {}
    for number, source in enumerate(_sources(mirror_maker)):
        alias, path = _part(source, "alias"), f"spec.mirrors[{number}].source"
        if not isinstance(alias, str):
            _refuse(where, mirror_maker, f"{path}.alias", "is missing")
        elif alias == target:
            _refuse(where, mirror_maker, f"{path}.alias", "is also the alias of the target")
        elif sources.setdefault(alias, source) != source:
            reason = f"differs from another source with the alias '{alias}'; give it another alias"
            _refuse(where, mirror_maker, path, reason)


def _sources(mirror_maker: Mapping[str, Any]) -> list[Any]:
    """Returns the source of each mirror, unconverted."""
    mirrors = _part(mirror_maker, "spec", "mirrors")
    return [_part(mirror, "source") for mirror in mirrors] if isinstance(mirrors, list) else []


def _converted(where: str, document: Mapping[str, Any], api_version: str, **names: Any) -> Document:
    if document.get("apiVersion") != STRIMZI or document.get("kind") not in FIELDS[api_version]:
        _refuse(
            where,
            document,
            "kind",
            f"'{document.get('apiVersion')}, {document.get('kind')}' cannot be converted for Event Streams; "
            f"the kinds that can are, in {STRIMZI}: {', '.join(FIELDS[api_version])}",
        )
    result: Document = {}
    _Conversion(where, document, result, api_version).run(names)
    return _renamed(document) | {"apiVersion": api_version} | _with_lists(result)


class _Conversion:
    """Places the fields of one resource in another."""

    def __init__(self, where: str, document: Mapping[str, Any], result: Document, api_version: str) -> None:
        self.where = where
        self.document = document
        self.rules = FIELDS[api_version][document["kind"]]
        self.result = result

    def run(self, names: Mapping[str, str]) -> None:
        """Places every field; ``names`` are the values of the names in braces in the rules' paths."""
        if "spec" in self.document:
            self._walk(_in_the_dialect(self.document["spec"]), "spec", "spec", names)

    def _walk(self, value: Any, pattern: str, path: str, names: Mapping[str, str]) -> None:
        below = [rule for known, rule in self.rules.items() if known.startswith((f"{pattern}/", f"{pattern}[]/"))]
        if rule := self.rules.get(pattern):
            self._apply(rule, value, path, names)
        elif not below:
            self.refuse(path, "unknown field, or one that cannot be converted for Event Streams")
        elif isinstance(value, list):
            for number, item in enumerate(value):
                here = {**names, "mirror": str(number), "source": _part(item, "source", "alias")}
                self._walk(item, f"{pattern}[]", f"{path}[{number}]", here)
        elif isinstance(value, dict):
            if not value and all(rule == SAME or rule.refused for rule in below):
                self.place(_parts(path), value, path)
            for key, item in value.items():
                self._walk(item, f"{pattern}/{key}", f"{path}/{key}", names)
        else:
            self.refuse(path, "expected a mapping or a list")

    def _apply(self, rule: Rule, value: Any, path: str, names: Mapping[str, str]) -> None:
        if rule.refused:
            self.refuse(path, f"is not possible with Event Streams: {rule.why}")
        value = copy.deepcopy(value)
        if rule.change:
            try:
                value = rule.change(value)
            except ValueError as error:
                self.refuse(path, f"{error}, with Event Streams")
        if rule == SAME:
            self.place(_parts(path), value, path)
        for template in rule.paths:
            every = range(len(_sources(self.document))) if "{every}" in template else range(1)
            for number in every:
                here = {**names, "every": str(number)}
                self.place([part.format(**here) for part in template.split("/")], value, path)

    def place(self, target: Sequence[str], value: Any, path: str) -> None:
        """Puts a value at a path of the result, which may already have the same value."""
        *folders, name = target
        here = _folder(self.result, *folders, *([name] if isinstance(value, dict) else []))
        for key, item in value.items() if isinstance(value, dict) else [(name, value)]:
            if here is None or here.setdefault(key, item) != item:
                field = path if key == name else f"{path}/{key}"
                self.refuse(field, f"{'.'.join((*target[:-1], key))} has another value already")

    def refuse(self, path: str, why: str) -> None:
        """Aborts the conversion with an error."""
        _refuse(self.where, self.document, _dotted(path), why)


def _refuse(where: str, document: Mapping[str, Any], field: str, why: str) -> None:
    name = document.get("metadata", {}).get("name", "")
    raise WrongUseError(f"{where}: {document.get('kind')}/{name}: {field}: {why}")


def _renamed(document: Mapping[str, Any]) -> Document:
    """Returns a copy with the dialect's labels, annotations and selectors."""
    copied = copy.deepcopy(dict(document))
    for part in ("labels", "annotations"):
        if isinstance(names := _part(copied, "metadata", part), dict):
            copied["metadata"][part] = _in_the_dialect(names)
    if "spec" in copied:
        copied["spec"] = _in_the_dialect(copied["spec"])
    return copied


_OF_NODES: Final = ("nodeAffinity", "nodeSelector", "tolerations")


def _in_the_dialect(value: Any) -> Any:
    """Returns a copy with the dialect's names of labels and annotations everywhere.

    They are keys in templates and in ``matchLabels``, the value of ``key`` in ``matchExpressions``, and a part of
    ``fieldPath``. A selector with one of Strimzi's names would match nothing. Labels and taints of nodes are not the
    operator's.
    """
    if isinstance(value, dict):
        copied = {
            _of_the_dialect(key): copy.deepcopy(item) if key in _OF_NODES else _in_the_dialect(item)
            for key, item in value.items()
        }
        if "key" in copied:
            copied["key"] = _of_the_dialect(copied["key"])
        if isinstance(path := copied.get("fieldPath"), str):
            copied["fieldPath"] = path.replace(f"['{STRIMZI_LABELS}", f"['{LABELS}")
        return copied
    if isinstance(value, list):
        return [_in_the_dialect(item) for item in value]
    return value


def _of_the_dialect(name: Any) -> Any:
    """Returns the dialect's name of a label or annotation."""
    is_strimzis = isinstance(name, str) and name.startswith(STRIMZI_LABELS)
    return LABELS + name.removeprefix(STRIMZI_LABELS) if is_strimzis else name


def _with_lists(result: Document) -> Document:
    """Returns the result with its indexed mappings turned into lists."""
    for path in _LISTS:
        *folders, name = path.split("/")
        here = _part(result, *folders)
        if _part(here, name) is not None:
            here[name] = list(here[name].values())
    return result


def _part(value: Any, *path: str) -> Any:
    """Returns the value at a path of mappings; None if there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _folder(value: Document, *path: str) -> Document | None:
    """Returns the mapping at a path, and creates it; None if another value is in its place."""
    here: Any = value
    for name in path:
        here = here.setdefault(name, {}) if isinstance(here, dict) else None
    return here if isinstance(here, dict) else None


def _is(document: Mapping[str, Any], kind: str) -> bool:
    return document.get("apiVersion") == STRIMZI and document.get("kind") == kind


def _is_other(document: Mapping[str, Any]) -> bool:
    """Whether a resource is neither Strimzi's nor IBM's."""
    group = str(document.get("apiVersion", "")).partition("/")[0]
    return not group.endswith(("strimzi.io", "eventstreams.ibm.com"))


def _key(document: Mapping[str, Any]) -> tuple[Any, Any]:
    return _part(document, "metadata", "namespace"), _part(document, "metadata", "name")


def _key_of_cluster(document: Mapping[str, Any]) -> tuple[Any, Any]:
    return _part(document, "metadata", "namespace"), _part(document, "metadata", "labels", CLUSTER_LABEL)


def _parts(path: str) -> list[str]:
    """Returns the parts of a path, including list indexes."""
    return path.replace("[", "/").replace("]", "").split("/")


def _dotted(path: str) -> str:
    return path.replace("/", ".")
