"""The fields of each kind that the local platform applies, and those that it ignores, with the reason.

Any other field is refused. Kinds and fields are those of Kubernetes and of Strimzi's API v1.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from loosehanger.lab.manifests import connect_settings, sign_ins
from loosehanger.lab.manifests.validation import FieldError
from loosehanger.lab.manifests.views import is_exactly_once

# Of 4.4.0 some jars are not published yet, connect-mirror among them.
KAFKA_VERSION: Final = "4.3.1"
"""The Kafka that is installed, and that a resource without a version gets."""
KafkaVersion = Literal["2.8.2", "3.9.1", "4.2.0", "4.3.1"]
"""The Kafkas that a cluster may name: those that the kit's locks have."""
WorkerVersion = Literal["3.9.1", "4.2.0", "4.3.1"]
"""Those that a mirror may name: of 2.8.2 the kit has what nodes need, and no Connect."""
FIRST_WITH_KRAFT: Final = (3, 3)
"""The first release whose clusters may keep their metadata themselves; those of older ones need ZooKeeper."""
# fmt: off
MetadataVersion = Literal[
    "3.9", "3.9-IV0", "4.0", "4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1", "4.1-IV0", "4.1-IV1", "4.2", "4.2-IV0",
    "4.2-IV1", "4.3", "4.3-IV0",
]
# fmt: on
"""The versions of metadata that these can be formatted with, as Kafka's ``MetadataVersion`` lists them."""
OLDER_KAFKA_VERSIONS: Final = tuple(version for version in get_args(KafkaVersion) if version != KAFKA_VERSION)
"""Those of them that are not installed: they are fetched when a resource names one."""


@dataclass(frozen=True)
class Ignored:
    """Marks a field that the local platform accepts and ignores, with the reason."""

    reason: str


class ResourceModel(BaseModel):
    """A part of a manifest; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True, frozen=True)


Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
Scalar = str | bool | int | float
SECRET_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_LONGEST_KEY: Final = 253
Pods = Annotated[Any, Ignored("the local platform has no pods")]
Cpu = Annotated[Any, Ignored("processes share this machine; its memory is checked before anything starts")]
Volumes = Annotated[Any, Ignored("data is in the region's folder")]
Probes = Annotated[Any, Ignored("the process manager restarts programs that exit, and status queries every service")]


class ConfigMapKey(ResourceModel):
    """A key of a ConfigMap of the same namespace."""

    name: Name
    key: Annotated[str, StringConstraints(min_length=1)]
    optional: Literal[False] = False


class MetricsSource(ResourceModel):
    """Where the rules of the JMX exporter are."""

    config_map_key_ref: ConfigMapKey


class MetricsConfig(ResourceModel):
    """How a node or worker gives its metrics to Prometheus."""

    type: Literal["jmxPrometheusExporter", "strimziMetricsReporter"]
    value_from: MetricsSource | None = None
    values: Annotated[
        Any, Ignored("Strimzi's metrics reporter is not here; with jmxPrometheusExporter there are metrics")
    ] = None

    @model_validator(mode="after")
    def _has_rules(self) -> MetricsConfig:
        if self.type == "jmxPrometheusExporter" and self.value_from is None:
            raise ValueError("jmxPrometheusExporter needs valueFrom.configMapKeyRef, the ConfigMap with its rules")
        return self


def exporter_rules(metrics: MetricsConfig | None) -> ConfigMapKey | None:
    """Returns where the JMX exporter's rules are; None where it does not serve the metrics."""
    served = metrics is not None and metrics.type == "jmxPrometheusExporter" and metrics.value_from
    return served.config_map_key_ref if served else None


def decode(value: str) -> bytes:
    """Decodes a value of a Secret's ``data``.

    Raises:
        ValueError: the value is not base64.
    """
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError("is not base64") from error


def as_text(value: Scalar) -> str:
    """Returns a setting in the form of a properties file."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _base64(value: str) -> str:
    decode(value)
    return value


def _keys(data: dict[str, str]) -> dict[str, str]:
    """Refuses the keys that Kubernetes refuses, because each becomes the name of a file."""
    for key in data:
        if not SECRET_KEY.fullmatch(key) or len(key) > _LONGEST_KEY or key == "." or key.startswith(".."):
            raise ValueError(f"'{key}' is not a key: letters, digits, '-', '_' and '.'")
    return data


def _printable(config: dict[str, Scalar]) -> dict[str, Scalar]:
    """Refuses control characters, because a line break would make two settings of one in a properties file."""
    for key, value in config.items():
        if any(ord(char) < ord(" ") or char in "\x7f\x85\u2028\u2029" for char in f"{key}{as_text(value)}"):
            raise ValueError(f"{key!r} has a line break or another control character")
    return config


Config = Annotated[dict[str, Scalar], AfterValidator(_printable)]


def _without(*prefixes: str) -> AfterValidator:
    def check(key: str, _: Config) -> None:
        if key.startswith(prefixes):
            raise ValueError(f"'{key}' is set by the platform; remove it")

    return _each(check)


def _known(names: frozenset[str], prefixes: tuple[str, ...]) -> AfterValidator:
    def check(key: str, config: Config) -> None:
        connect_settings.check_known(key, names, prefixes, config)
        connect_settings.check_value(key, as_text(config[key]))

    return _each(check)


def _each(check: Callable[[str, Config], None]) -> AfterValidator:
    """Checks every setting of a configuration, and reports each that is refused at its own line."""

    def check_all(config: Config) -> Config:
        refused = []
        for key in config:
            try:
                check(key, config)
            except ValueError as error:
                refused.append(((key,), str(error)))
        if refused:
            raise FieldError(refused)
        return config

    return AfterValidator(check_all)


class Metadata(ResourceModel):
    """Name, namespace and labels."""

    name: Name
    namespace: Name | None = None
    labels: dict[str, str] = {}
    annotations: Annotated[dict[str, str], Ignored("there is no operator to read them; the kit reads its own")] = {}


class Resource(ResourceModel):
    """The fields that every manifest has."""

    api_version: str
    kind: str
    metadata: Metadata

    @property
    def reference(self) -> str:
        """``Kind/name``, for messages."""
        return f"{self.kind}/{self.metadata.name}"


class Namespace(Resource):
    """A region's folder."""

    api_version: Literal["v1"]
    kind: Literal["Namespace"]


class Secret(Resource):
    """Files that only their owner can read."""

    api_version: Literal["v1"]
    kind: Literal["Secret"]
    type: Annotated[str, Ignored("every secret is a folder of files")] = "Opaque"
    data: Annotated[dict[str, Annotated[str, AfterValidator(_base64)]], AfterValidator(_keys)] = {}
    string_data: Annotated[dict[str, str], AfterValidator(_keys)] = {}

    def values(self) -> dict[str, bytes]:
        """Returns the decoded values; ``stringData`` overrides ``data``, as in Kubernetes."""
        return {key: decode(value) for key, value in self.data.items()} | {
            key: value.encode() for key, value in self.string_data.items()
        }


class ConfigMap(Resource):
    """Settings that a mirror's pods read."""

    api_version: Literal["v1"]
    kind: Literal["ConfigMap"]
    data: dict[str, str] = {}
    binary_data: Annotated[dict[str, str], Ignored("only metrics use a ConfigMap, and their rules are text")] = {}
    immutable: Annotated[bool, Ignored("the local platform does not enforce it")] = False


INITIAL_HEAP = "128m"
"""Initial heap of a Java process whose manifest sets no sizes; the heap grows on demand."""


class SystemProperty(ResourceModel):
    """A system property of a Java process."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]+$")]
    value: Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]*$")] = ""


class JvmOptions(ResourceModel):
    """Heap, flags and system properties of a Java process."""

    xms: Annotated[str | None, Field(alias="-Xms", pattern=r"^[0-9]+[mMgG]$")] = None
    xmx: Annotated[str | None, Field(alias="-Xmx", pattern=r"^[0-9]+[mMgG]$")] = None
    xx: Annotated[dict[str, Scalar], Field(alias="-XX")] = {}
    java_system_properties: list[SystemProperty] = []

    def arguments(self, default_heap: str) -> list[str]:
        """Returns the arguments for ``java``."""
        arguments = [f"-Xmx{self.xmx or default_heap}"]
        if self.xms:
            arguments.append(f"-Xms{self.xms}")
        elif not self.xmx:
            arguments.append(f"-Xms{INITIAL_HEAP}")
        for name, value in self.xx.items():
            text = as_text(value)
            switch = {"true": f"+{name}", "false": f"-{name}"}.get(text, f"{name}={text}")
            arguments.append(f"-XX:{switch}")
        return arguments + [f"-D{one.name}={one.value}" for one in self.java_system_properties]


_OF_THE_LISTENER = ("ssl.", "listeners", "advertised.listeners", "config.providers")


class ListenerAuthentication(ResourceModel):
    """How the clients of a listener sign in."""

    type: Literal["tls", "scram-sha-512", "custom"]
    sasl: bool | None = None
    listener_config: Annotated[Config, _without(*_OF_THE_LISTENER)] = {}

    @model_validator(mode="after")
    def _consistent(self) -> ListenerAuthentication:
        given = {"sasl": self.sasl is not None, "listenerConfig": bool(self.listener_config)}
        if self.type != "custom":
            if extra := [name for name, is_given in given.items() if is_given]:
                raise FieldError([((extra[0],), f"is for the type custom, and not for {self.type}")])
            return self
        if not self.sasl:
            raise FieldError([(("sasl",), "must be true here: client certificates are the type tls")])
        enabled = str(self.listener_config.get(sign_ins.ENABLED, ""))
        named = [part.strip() for part in enabled.split(",") if part.strip()]
        path = ("listenerConfig", sign_ins.ENABLED)
        if not named:
            possible = ", ".join(sign_ins.MECHANISMS)
            raise FieldError([(path[:1], f"needs {sign_ins.ENABLED}; the possible mechanisms are {possible}")])
        if unknown := [name for name in named if name not in sign_ins.MECHANISMS]:
            raise FieldError([(path, f"'{unknown[0]}' is not possible; expected {', '.join(sign_ins.MECHANISMS)}")])
        return self


class Listener(ResourceModel):
    """A listener for clients: encrypted or not, and with one way to sign in or none."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]{1,11}$")]
    port: Annotated[int, Field(ge=9092, le=65535)]
    type: Literal["internal"]
    tls: bool
    authentication: ListenerAuthentication | None = None

    @model_validator(mode="after")
    def _encrypted(self) -> Listener:
        if self.authentication and self.authentication.type == "tls" and not self.tls:
            raise FieldError([(("authentication", "type"), "tls needs a listener with 'tls: true'")])
        return self

    @property
    def content(self) -> dict[str, Any]:
        """The listener in its manifest's form, for ``sign_ins``."""
        return self.model_dump(by_alias=True, exclude_none=True)


class SimpleAuthorization(ResourceModel):
    """Kafka's own access control lists."""

    type: Literal["simple"]
    super_users: list[str] = []


class EntityOperator(ResourceModel):
    """Accepted and ignored: the local platform reconciles KafkaTopic and KafkaUser itself."""

    topic_operator: Annotated[dict[str, Any], Ignored("the local platform reconciles KafkaTopic itself")] = {}
    user_operator: Annotated[dict[str, Any], Ignored("the local platform reconciles KafkaUser itself")] = {}
    template: Pods = None


class CertificateAuthority(ResourceModel):
    """A certificate authority of the cluster: its own, or that of its users with client certificates."""

    generate_certificate_authority: bool = True
    generate_secret_owner_reference: Annotated[bool, Ignored("secrets have no owners")] = True
    validity_days: Annotated[int, Field(ge=1, le=36500)] = 365
    renewal_days: Annotated[int, Field(ge=1, le=36500)] = 30


def _alike(listeners: list[Listener]) -> list[Listener]:
    """Refuses listeners that differ in their sign-in: clients of other regions all come through one link."""
    first = listeners[0]
    refused = [
        (
            (index, "authentication"),
            f"differs from listener '{first.name}': here all of a cluster need the same sign-in",
        )
        for index, other in enumerate(listeners)
        if (other.tls, other.authentication) != (first.tls, first.authentication)
    ]
    if refused:
        raise FieldError(refused)
    return listeners


class KafkaCluster(ResourceModel):
    """The brokers' common settings."""

    version: KafkaVersion = KAFKA_VERSION
    metadata_version: MetadataVersion | None = None
    listeners: Annotated[list[Listener], Field(min_length=1, max_length=6), AfterValidator(_alike)]
    config: Annotated[
        Config,
        _without(
            "listeners",
            "advertised.",
            "broker.",
            "listener.",
            "host.name",
            "port",
            "inter.broker.listener.name",
            "sasl.",
            "ssl.",
            "security.",
            "password.",
            "log.dir",
            "zookeeper.",
            "authorizer.",
            "super.user",
            "node.id",
            "process.roles",
            "controller",
            "metadata.log.dir",
        ),
    ] = {}
    authorization: SimpleAuthorization
    resources: Cpu = None
    template: Pods = None
    liveness_probe: Probes = None
    readiness_probe: Probes = None
    metrics_config: MetricsConfig | None = None
    jvm_options: JvmOptions = JvmOptions()

    @model_validator(mode="after")
    def _readable_metadata(self) -> KafkaCluster:
        if self.metadata_version and minor(self.metadata_version) > minor(self.version):
            text = f"'{self.metadata_version}' is newer than version {self.version}, which cannot read it"
            raise FieldError([(("metadataVersion",), text)])
        return self


def minor(version: str) -> tuple[int, ...]:
    """The first two numbers of a version, which decide whether a Kafka can read a cluster's metadata."""
    return tuple(int(number) for number in version.partition("-")[0].split(".")[:2])


def needs_zookeeper(version: str) -> bool:
    """Whether the clusters of a release keep their metadata in ZooKeeper."""
    return minor(version) < FIRST_WITH_KRAFT


class KafkaSpec(ResourceModel):
    """See Kafka."""

    kafka: KafkaCluster
    entity_operator: EntityOperator | None = None
    cluster_ca: CertificateAuthority = CertificateAuthority()
    clients_ca: CertificateAuthority = CertificateAuthority()


class Kafka(Resource):
    """A cluster; its nodes come from its KafkaNodePools. Its release decides whether it needs ZooKeeper."""

    api_version: Literal["kafka.strimzi.io/v1"]
    kind: Literal["Kafka"]
    spec: KafkaSpec


class KafkaNodePoolSpec(ResourceModel):
    """See KafkaNodePool."""

    replicas: Annotated[int, Field(ge=1, le=5)]
    roles: Annotated[list[Literal["controller", "broker"]], Field(min_length=2, max_length=2)]
    storage: Volumes
    resources: Cpu = None
    template: Pods = None
    jvm_options: JvmOptions = JvmOptions()

    @model_validator(mode="after")
    def _both_roles(self) -> KafkaNodePoolSpec:
        if set(self.roles) != {"controller", "broker"}:
            raise ValueError("roles: the local platform runs nodes that are both controller and broker")
        return self


class PersistentVolumeClaim(Resource):
    """A folder that outlives the program that writes to it."""

    api_version: Literal["v1"]
    kind: Literal["PersistentVolumeClaim"]
    spec: Annotated[Any, Ignored("it is a folder of the region on this machine's disk")] = None


class OfCluster(Resource):
    """A resource that names its cluster by a label."""

    @property
    def cluster(self) -> str:
        """The name of its Kafka cluster."""
        return self.metadata.labels["strimzi.io/cluster"]

    @model_validator(mode="after")
    def _labelled(self) -> OfCluster:
        if "strimzi.io/cluster" not in self.metadata.labels:
            raise FieldError([(("metadata", "labels"), "the label 'strimzi.io/cluster' must name the Kafka cluster")])
        return self


class KafkaNodePool(OfCluster):
    """A group of a cluster's nodes."""

    api_version: Literal["kafka.strimzi.io/v1"]
    kind: Literal["KafkaNodePool"]
    spec: KafkaNodePoolSpec


class KafkaTopicSpec(ResourceModel):
    """See KafkaTopic."""

    topic_name: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9._-]{1,249}$")] | None = None
    partitions: Annotated[int, Field(ge=1)] | None = None
    replicas: Annotated[int, Field(ge=1, le=32767)] | None = None
    config: Config = {}


class KafkaTopic(OfCluster):
    """A topic; ``replicas`` and ``partitions`` default to the cluster's settings."""

    api_version: Literal["kafka.strimzi.io/v1"]
    kind: Literal["KafkaTopic"]
    spec: KafkaTopicSpec

    @property
    def topic(self) -> str:
        """The topic's name in Kafka."""
        return self.spec.topic_name or self.metadata.name


class SecretKey(ResourceModel):
    """One key of a secret."""

    name: Name
    key: str


class PasswordSource(ResourceModel):
    """The source of a user's password, when it is not generated."""

    secret_key_ref: SecretKey


class Password(ResourceModel):
    """See PasswordSource."""

    value_from: PasswordSource


class UserAuthentication(ResourceModel):
    """A user with a client certificate or a password, which is generated unless a secret holds it."""

    type: Literal["scram-sha-512", "tls", "tls-external"]
    password: Password | None = None
    validity_days: Annotated[int, Field(ge=1, le=36500)] | None = None
    renewal_days: Annotated[int, Field(ge=1, le=36500)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> UserAuthentication:
        if self.password and self.type != "scram-sha-512":
            raise FieldError([(("password",), f"is for the type scram-sha-512, and not for {self.type}")])
        given = [name for name in ("validity_days", "renewal_days") if getattr(self, name) is not None]
        if given and self.type != "tls":
            raise FieldError([((to_camel(given[0]),), f"is for the type tls, and not for {self.type}")])
        if len(given) == 1:
            raise FieldError([((to_camel(given[0]),), "validityDays and renewalDays need each other")])
        if self.validity_days and self.renewal_days and self.renewal_days >= self.validity_days:
            raise FieldError([(("renewalDays",), f"must be less than validityDays, which is {self.validity_days}")])
        return self


class AclResource(ResourceModel):
    """The resource of an ACL."""

    type: Literal["topic", "group", "cluster", "transactionalId"]
    name: str | None = None
    pattern_type: Literal["literal", "prefix"] = "literal"

    @model_validator(mode="after")
    def _named(self) -> AclResource:
        if (self.name is None) != (self.type == "cluster"):
            raise ValueError("name: a cluster has none, everything else needs one")
        return self


class Acl(ResourceModel):
    """One ACL."""

    type: Literal["allow", "deny"] = "allow"
    resource: AclResource
    operations: Annotated[
        list[
            Literal[
                "Read",
                "Write",
                "Create",
                "Delete",
                "Alter",
                "Describe",
                "ClusterAction",
                "AlterConfigs",
                "DescribeConfigs",
                "IdempotentWrite",
                "All",
            ]
        ],
        Field(min_length=1),
    ]
    host: str = "*"


class UserAuthorization(ResourceModel):
    """The user's complete ACLs."""

    type: Literal["simple"]
    acls: list[Acl]


class KafkaUserSpec(ResourceModel):
    """See KafkaUser."""

    authentication: UserAuthentication | None = None
    authorization: UserAuthorization | None = None


class KafkaUser(OfCluster):
    """A user, with its password or certificate in a secret of the same name, and its ACLs."""

    api_version: Literal["kafka.strimzi.io/v1"]
    kind: Literal["KafkaUser"]
    spec: KafkaUserSpec

    @property
    def principal(self) -> str:
        """The name that its ACLs are for."""
        return f"User:{sign_ins.principal(self.metadata.name, self.model_dump())}"


class TrustedCertificate(ResourceModel):
    """Certificates to trust, from a secret."""

    secret_name: Name
    certificate: str | None = None
    pattern: str | None = None

    @model_validator(mode="after")
    def _one(self) -> TrustedCertificate:
        if (self.certificate is None) == (self.pattern is None):
            raise ValueError("give either 'certificate' or 'pattern'")
        return self


class Tls(ResourceModel):
    """A connection over TLS."""

    trusted_certificates: Annotated[list[TrustedCertificate], Field(min_length=1)]


class PasswordSecret(ResourceModel):
    """The key of a secret that holds a password."""

    secret_name: Name
    password: str


class CertificateAndKey(ResourceModel):
    """The keys of a secret that hold a client certificate and its private key."""

    secret_name: Name
    certificate: str
    key: str


_FIELDS_OF_CLIENTS = {
    "tls": ("certificateAndKey",),
    "plain": ("username", "passwordSecret"),
    "scram-sha-256": ("username", "passwordSecret"),
    "scram-sha-512": ("username", "passwordSecret"),
    "custom": ("sasl", "config"),
}


class ClientAuthentication(ResourceModel):
    """How a mirror signs in at one of its ends."""

    type: Literal["scram-sha-512", "scram-sha-256", "plain", "tls", "custom"]
    username: str | None = None
    password_secret: PasswordSecret | None = None
    certificate_and_key: CertificateAndKey | None = None
    sasl: bool | None = None
    config: Config = {}

    @model_validator(mode="after")
    def _consistent(self) -> ClientAuthentication:
        given = {
            "username": self.username is not None,
            "passwordSecret": self.password_secret is not None,
            "certificateAndKey": self.certificate_and_key is not None,
            "sasl": self.sasl is not None,
            "config": bool(self.config),
        }
        own = _FIELDS_OF_CLIENTS[self.type]
        refused: list[tuple[tuple[str | int, ...], str]] = [((name,), "is missing") for name in own if not given[name]]
        refused += [
            ((name,), f"is not for the type {self.type}")
            for name, is_given in given.items()
            if is_given and name not in own
        ]
        refused += [
            (("config", key), "only settings that begin with 'sasl.' or 'ssl.keystore.' are possible")
            for key in self.config
            if not key.startswith(("sasl.", "ssl.keystore."))
        ]
        if self.sasl and "sasl.mechanism" not in self.config:
            refused.append((("config", "sasl.mechanism"), "is missing"))
        if refused:
            raise FieldError(refused)
        return self


_NOT_FOR_CONNECT = (
    "ssl.", "sasl.", "security.", "listeners", "plugin.path", "rest.", "bootstrap.servers", "group.id",
    "config.storage.topic", "offset.storage.topic", "status.storage.topic", "config.providers",
)  # fmt: skip
_NOT_FOR_A_CONNECTOR = ("name", "connector.class", "tasks.max", "connector.plugin.version")


class MirrorSource(ResourceModel):
    """The source cluster."""

    alias: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9._-]{1,100}$")]
    bootstrap_servers: str
    tls: Tls | None = None
    authentication: ClientAuthentication | None = None
    config: Annotated[Config, _without("ssl.", "sasl.", "security.", "bootstrap.servers")] = {}

    @model_validator(mode="after")
    def _encrypted(self) -> MirrorSource:
        if self.authentication and self.authentication.type == "tls" and self.tls is None:
            raise FieldError([(("tls",), "is missing; authentication of the type tls needs it")])
        return self

    @property
    def content(self) -> dict[str, Any]:
        """The end in its manifest's form, for ``sign_ins``."""
        return self.model_dump(by_alias=True, exclude_none=True)


class MirrorTarget(MirrorSource):
    """The target cluster, which also keeps the state of the Connect workers."""

    group_id: str
    config_storage_topic: str
    offset_storage_topic: str
    status_storage_topic: str
    config: Annotated[
        Config, _without(*_NOT_FOR_CONNECT), _known(connect_settings.WORKER, connect_settings.WORKER_PREFIXES)
    ] = {}


class AutoRestart(ResourceModel):
    """Whether failed connectors and tasks are restarted."""

    enabled: bool = True
    max_restarts: Annotated[int, Field(ge=0)] | None = None


class MirrorConnector(ResourceModel):
    """One connector of a mirror."""

    tasks_max: Annotated[int, Field(ge=1)] | None = None
    state: Literal["running", "paused", "stopped"] = "running"
    auto_restart: AutoRestart | None = None


class SourceConnector(MirrorConnector):
    """Copies records, topics and their configurations."""

    config: Annotated[
        Config,
        _without(*_NOT_FOR_A_CONNECTOR),
        _known(connect_settings.SOURCE_CONNECTOR, connect_settings.CONNECTOR_PREFIXES),
    ] = {}


class CheckpointConnector(MirrorConnector):
    """Translates consumer groups' offsets."""

    config: Annotated[
        Config,
        _without(*_NOT_FOR_A_CONNECTOR),
        _known(connect_settings.CHECKPOINT_CONNECTOR, connect_settings.CONNECTOR_PREFIXES),
    ] = {}


class MirrorEntry(ResourceModel):
    """One source of a mirror and its connectors."""

    source: MirrorSource
    source_connector: SourceConnector | None = None
    checkpoint_connector: CheckpointConnector | None = None
    topics_pattern: str = ".*"
    topics_exclude_pattern: str | None = None
    groups_pattern: str | None = None
    groups_exclude_pattern: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> MirrorEntry:
        if self.source_connector and self.checkpoint_connector:
            for setting, default in connect_settings.SHARED_BY_CONNECTORS.items():
                source = self.source_connector.config.get(setting, default)
                checkpoint = self.checkpoint_connector.config.get(setting, default)
                if source != checkpoint:
                    raise FieldError(
                        [
                            (
                                ("checkpointConnector", "config", setting),
                                f"'{checkpoint}' differs from the source connector's '{source}': "
                                "checkpoints would look in the wrong place; give both the same",
                            )
                        ]
                    )
        return self


class KafkaMirrorMaker2Spec(ResourceModel):
    """See KafkaMirrorMaker2."""

    version: WorkerVersion = KAFKA_VERSION
    replicas: Annotated[int, Field(ge=0, le=5)]
    target: MirrorTarget
    mirrors: Annotated[list[MirrorEntry], Field(min_length=1)]
    resources: Cpu = None
    template: Pods = None
    liveness_probe: Probes = None
    readiness_probe: Probes = None
    metrics_config: MetricsConfig | None = None
    logging: Annotated[Any, Ignored("logs are files of the region, configured by the platform")] = None
    jvm_options: JvmOptions = JvmOptions()

    @property
    def exactly_once(self) -> bool:
        """Whether the workers write copies and positions in transactions."""
        return is_exactly_once(self.target.config)

    @model_validator(mode="after")
    def _overrides(self) -> KafkaMirrorMaker2Spec:
        config = {key: as_text(value) for key, value in self.target.config.items()}
        refused = [
            (("mirrors", index, kind, "config", key), f"'{key}' is refused by the workers: {reason}")
            for index, mirror in enumerate(self.mirrors)
            for kind, connector in (
                ("sourceConnector", mirror.source_connector),
                ("checkpointConnector", mirror.checkpoint_connector),
            )
            for key in (connector.config if connector else ())
            if (reason := connect_settings.override_refused(key, config))
        ]
        if refused:
            raise FieldError(refused)
        return self


class KafkaMirrorMaker2(Resource):
    """A group of Connect workers at the target, with the mirror's connectors."""

    api_version: Literal["kafka.strimzi.io/v1"]
    kind: Literal["KafkaMirrorMaker2"]
    spec: KafkaMirrorMaker2Spec


class EnvironmentVariable(ResourceModel):
    """An environment variable."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    value: str = ""


class VolumeMount(ResourceModel):
    """The path of a volume for the program; the local platform replaces it in arguments and environment."""

    name: str
    mount_path: Annotated[str, StringConstraints(pattern=r"^/.+")]
    read_only: Annotated[bool, Ignored("programs can write to their claims and not to secrets")] = False


class ContainerPort(ResourceModel):
    """A port that a program listens on."""

    container_port: Annotated[int, Field(ge=1, le=65535)]
    name: Pods = None


class Container(ResourceModel):
    """A program."""

    name: Name
    image: Annotated[str, Ignored("the checkout's program runs with the lab's Python")]
    image_pull_policy: Pods = None
    command: Annotated[list[str], Field(min_length=1)]
    args: list[str] = []
    env: list[EnvironmentVariable] = []
    ports: list[ContainerPort] = []
    volume_mounts: list[VolumeMount] = []
    resources: Cpu = None
    security_context: Pods = None
    liveness_probe: Probes = None
    readiness_probe: Probes = None
    startup_probe: Probes = None


class SecretVolume(ResourceModel):
    """See Volume."""

    secret_name: Name
    default_mode: Annotated[int, Ignored("secrets are readable by their owner only")] = 0o400


class ClaimVolume(ResourceModel):
    """See Volume."""

    claim_name: Name


class Volume(ResourceModel):
    """The files of a secret, or a writable folder that outlives the program."""

    name: str
    secret: SecretVolume | None = None
    persistent_volume_claim: ClaimVolume | None = None

    @model_validator(mode="after")
    def _one(self) -> Volume:
        if (self.secret is None) == (self.persistent_volume_claim is None):
            raise ValueError("give either 'secret' or 'persistentVolumeClaim'")
        return self


class PodSpec(ResourceModel):
    """See Deployment."""

    containers: Annotated[list[Container], Field(min_length=1, max_length=1)]
    volumes: list[Volume] = []
    termination_grace_period_seconds: Annotated[int, Field(ge=1, le=300)] = 30
    security_context: Pods = None
    service_account_name: Pods = None
    automount_service_account_token: Pods = None
    image_pull_secrets: Pods = None


class PodTemplate(ResourceModel):
    """See Deployment."""

    metadata: Pods = None
    spec: PodSpec


class DeploymentSpec(ResourceModel):
    """See Deployment."""

    replicas: Annotated[int, Field(ge=0, le=20)] = 1
    selector: Pods = None
    strategy: Pods = None
    template: PodTemplate


class Deployment(Resource):
    """A program that the platform keeps running."""

    api_version: Literal["apps/v1"]
    kind: Literal["Deployment"]
    spec: DeploymentSpec


KINDS: dict[str, type[Resource]] = {
    kind.__name__: kind
    for kind in (
        Namespace, ConfigMap, Secret, PersistentVolumeClaim, KafkaNodePool, Kafka, KafkaTopic, KafkaUser,
        KafkaMirrorMaker2, Deployment,
    )
}  # fmt: skip
"""The kinds in the order in which they are applied; they are deleted in reverse order."""
