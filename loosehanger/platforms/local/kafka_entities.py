"""KafkaTopic and KafkaUser: reconciled through Kafka's Admin API, as Strimzi's topic and user operators do."""

from __future__ import annotations

import logging
import secrets
import string
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace

from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.errors import KafkaError

from loosehanger.acls import constant
from loosehanger.errors import LabError, WrongUseError
from loosehanger.kafka.acls import EVERY_RULE
from loosehanger.kafka.clients import STARTING, connect_admin
from loosehanger.kafka.patches import alter_topic
from loosehanger.lab.console_password import SIGNS_IN, console_password
from loosehanger.lab.manifests import sign_ins
from loosehanger.lab.manifests.resources import Acl, KafkaTopic, KafkaUser, as_text
from loosehanger.platforms.client_properties import jaas_of
from loosehanger.platforms.local import rolling
from loosehanger.platforms.local.kafka_cluster import LocalCluster
from loosehanger.platforms.local.processes import tail
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.local.secret_store import delete_secret, read_secret, secret_file, write_secret
from loosehanger.waiting import wait_for

READY_SECONDS = 60
_RECONNECT_MS = 100
"""The longest pause between two attempts to reach a node that is starting, in milliseconds."""
_PASSWORD_CHARACTERS = string.ascii_letters + string.digits


@contextmanager
def admin_client(cluster: LocalCluster, bound: float = READY_SECONDS) -> Iterator[KafkaAdminClient]:
    """Yields an admin client that acts as the platform.

    Raises:
        LabError: no node answers within ``bound`` seconds.
    """
    # The client's warnings while nodes start are not errors.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    connection = cluster.admin_connection()
    client: KafkaAdminClient | None = None

    def connect() -> str | None:
        nonlocal client
        try:
            client = connect_admin(connection, STARTING, reconnect_backoff_max_ms=_RECONNECT_MS)
            brokers = client.describe_cluster()["brokers"]
        except (KafkaError, OSError) as error:
            if client:
                client.close()
                client = None
            return f"{type(error).__name__}; its log says: {tail(cluster.region.logs / f'{cluster.name}-kafka-0.log')}"
        if len(brokers) < len(cluster.nodes):
            client.close()
            return f"{len(brokers)} of {len(cluster.nodes)} nodes answer"
        return None

    wait_for(connect, bound, f"{cluster.region.name}: Kafka/{cluster.name}")
    assert client is not None
    try:
        yield client
    except KafkaError as error:
        raise LabError(f"{cluster.region.name}: Kafka/{cluster.name}: {error}") from error
    finally:
        client.close()


def wait_ready(cluster: LocalCluster, bound: float) -> None:
    """Waits until every node of the cluster answers.

    Raises:
        LabError: a node does not within ``bound`` seconds.
    """
    with admin_client(cluster, bound):
        pass


def wait_for_replicas(cluster: LocalCluster, bound: float = rolling.BACK_S) -> None:
    """Waits until every node answers, and all replicas are in sync: before one of the nodes restarts.

    A cluster of one node has no other that could continue, and is not waited for.

    Args:
        cluster: the cluster.
        bound: how long to wait, in seconds.

    Raises:
        LabError: a node does not answer, or a replica is not in sync in time.
    """
    nodes = cluster.addresses(1)
    if len(nodes) < 2:
        return
    connection = cluster.admin_connection()

    def lacking() -> str | None:
        # Each node is asked: for some seconds the others count one that was killed among the living.
        for node in nodes:
            try:
                with closing(connect_admin(replace(connection, bootstrap_servers=(node,)), STARTING)) as admin:
                    missing = rolling.lacks_replicas(
                        admin.describe_cluster()["brokers"], admin.describe_topics(), len(nodes)
                    )
            except (KafkaError, OSError) as error:
                return f"{type(error).__name__} from the node at {node}"
            if missing:
                return missing
        return None

    # The client's warnings while nodes restart are not errors.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    wait_for(lacking, bound, f"{cluster.region.name}: Kafka/{cluster.name}: its other nodes, one after the other")


def apply_topics(cluster: LocalCluster, topics: Sequence[KafkaTopic], where: Callable[[KafkaTopic], str]) -> list[str]:
    """Creates and changes topics; returns the references of those that changed.

    Settings that a manifest does not name stay as they are, unless an earlier version of it named them, as with
    server-side apply in Kubernetes. So a setting made by hand survives the next set-up.

    Raises:
        WrongUseError: the manifest has fewer partitions than the topic, or a setting that Kafka refuses.
    """
    region = cluster.region
    changed = []
    with admin_client(cluster) as admin:
        present = {topic["name"]: topic for topic in admin.describe_topics()}
        for topic in topics:
            name = topic.topic
            wanted = {key: as_text(value) for key, value in topic.spec.config.items()}
            if name not in present:
                _create(admin, topic, wanted, where(topic))
                changed.append(topic.reference)
                continue
            touched = _grow(admin, topic, len(present[name]["partitions"]), where(topic))
            before = region.resource("KafkaTopic", topic.metadata.name) or {}
            dropped = set(before.get("spec", {}).get("config", {})) - set(wanted)
            touched |= _configure(admin, name, wanted, dropped, where(topic))
            if touched:
                changed.append(topic.reference)
    return changed


def delete_topic(cluster: LocalCluster, topic: KafkaTopic) -> None:
    """Deletes a topic, if it exists."""
    with admin_client(cluster) as admin:
        if topic.topic in admin.list_topics():
            admin.delete_topics([topic.topic])


def apply_users(cluster: LocalCluster, users: Sequence[KafkaUser]) -> list[str]:
    """Creates and changes users; returns the references of those that changed.

    A user gets a generated password, in a secret of its name, unless its manifest names a secret with one. Users of
    consoles get the password that was chosen for the lab, if one was. A user of the type ``tls`` gets a certificate.
    Its ACLs become exactly those of the manifest.
    """
    changed = []
    with admin_client(cluster) as admin:
        known = admin.describe_user_scram_credentials([user.metadata.name for user in users])
        rules = _rules_of_users(admin)
        for user in users:
            name = user.metadata.name
            touched = _apply_secret(cluster, user)
            infos = known.get(name, {}).get("credential_infos", [])
            touched |= _apply_scram(admin, cluster, user, {info["mechanism"] for info in infos}, is_new=touched)
            wanted = set(_rules(user))
            present = rules.get(user.principal, set())
            touched |= _change_rules(admin, user, wanted - present, present - wanted)
            if touched:
                changed.append(user.reference)
    return changed


def ensure_password(region: LocalRegion, user: KafkaUser) -> bool:
    """Makes the password of a user with rights only, unless its secret has one; True when it was made.

    On Kubernetes no operator makes it: people set up the secret together with the credentials.
    """
    secret = region.secrets / user.metadata.name
    if user.spec.authentication or (secret / "password").is_file():
        return False
    return write_secret(region, user.metadata.name, {"password": _new_password().encode()})


def _apply_secret(cluster: LocalCluster, user: KafkaUser) -> bool:
    """Writes the secret of a user as the User Operator would; True when it changed."""
    region, name = cluster.region, user.metadata.name
    match sign_ins.user_type(user.model_dump()):
        case "scram-sha-512":
            password = _password(region, user)
            jaas = jaas_of(sign_ins.SCRAM_512, name, password)
            return write_secret(region, name, {"password": password.encode(), "sasl.jaas.config": jaas.encode()})
        case "tls":
            from loosehanger.platforms.local import certificates  # slow to import

            own, of_clients = user.spec.authentication, cluster.kafka.spec.clients_ca
            days = (own.validity_days if own else None) or of_clients.validity_days
            renewal = (own.renewal_days if own else None) or of_clients.renewal_days
            return certificates.ensure_user_certificate(region, cluster.name, name, days, renewal)
        case _:
            return False


def _apply_scram(
    admin: KafkaAdminClient, cluster: LocalCluster, user: KafkaUser, present: set[ScramMechanism], *, is_new: bool
) -> bool:
    """Gives a user SCRAM credentials for exactly the mechanisms that it signs in by; True when that changed them."""
    name = user.metadata.name
    wanted = _scram_of(cluster, user)
    changes = [UserScramCredentialDeletion(name, mechanism) for mechanism in sorted(present - wanted)]
    for mechanism in sorted(wanted if is_new else wanted - present):
        password = read_secret(cluster.region, name)["password"].decode()
        changes.append(UserScramCredentialUpsertion(name, mechanism, password))
    if changes and (error := admin.alter_user_scram_credentials(changes)[name]):
        raise LabError(f"{cluster.region.name}: {user.reference}: {error}")
    return bool(changes)


def _scram_of(cluster: LocalCluster, user: KafkaUser) -> set[ScramMechanism]:
    if user.spec.authentication:
        return {ScramMechanism.SCRAM_SHA_512} if user.spec.authentication.type == "scram-sha-512" else set()
    return {ScramMechanism.SCRAM_SHA_256} if cluster.listener.offers(sign_ins.SCRAM_256) else set()


def delete_user(cluster: LocalCluster, user: KafkaUser) -> None:
    """Deletes a user, its ACLs and its secret."""
    name = user.metadata.name
    with admin_client(cluster) as admin:
        known = admin.describe_user_scram_credentials([name]).get(name, {}).get("credential_infos", [])
        if known:
            admin.alter_user_scram_credentials([UserScramCredentialDeletion(name, info["mechanism"]) for info in known])
        _change_rules(admin, user, set(), _rules_of_users(admin).get(user.principal, set()))
    delete_secret(cluster.region, name)


def _create(admin: KafkaAdminClient, topic: KafkaTopic, config: dict[str, str], where: str) -> None:
    spec = topic.spec
    result = admin.create_topics(
        {
            topic.topic: {
                "num_partitions": spec.partitions or -1,
                "replication_factor": spec.replicas or -1,
                "configs": config,
            }
        },
        raise_errors=False,
    )
    for answer in result["topics"]:
        if answer["error_code"]:
            raise WrongUseError(f"{where}: {topic.reference}: Kafka refuses it: {answer['error_message']}")
    admin.wait_for_topics([topic.topic])


def _grow(admin: KafkaAdminClient, topic: KafkaTopic, partitions: int, where: str) -> bool:
    wanted = topic.spec.partitions or partitions
    if wanted < partitions:
        raise WrongUseError(
            f"{where}: {topic.reference}: spec.partitions: the topic has {partitions}, and partitions cannot be removed"
        )
    if wanted == partitions:
        return False
    admin.create_partitions({topic.topic: wanted})
    return True


def _configure(admin: KafkaAdminClient, topic: str, wanted: dict[str, str], dropped: set[str], where: str) -> bool:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    present = {
        key: entry["value"]
        for key, entry in admin.describe_configs([resource], config_filter="modified")["topic"][topic].items()
    }
    changes: dict[str, str | None] = {key: value for key, value in wanted.items() if present.get(key) != value}
    changes |= {key: None for key in dropped if key in present}
    if not changes:
        return False
    alter_topic(admin, topic, changes, f"{where}: {topic}: spec.config")
    return True


def _password(region: LocalRegion, user: KafkaUser) -> str:
    source = user.spec.authentication.password if user.spec.authentication else None
    if source:
        reference = source.value_from.secret_key_ref
        return secret_file(region, reference.name, reference.key).read_text(encoding="utf-8")
    if SIGNS_IN in user.metadata.labels and (chosen := console_password(region.home)):
        return chosen
    if (region.secrets / user.metadata.name).is_dir():
        return read_secret(region, user.metadata.name)["password"].decode()
    return _new_password()


def _new_password() -> str:
    return "".join(secrets.choice(_PASSWORD_CHARACTERS) for _ in range(32))


Rule = tuple[ACLPermissionType, ResourceType, str, ACLResourcePatternType, ACLOperation, str]


def _rules(user: KafkaUser) -> Iterator[Rule]:
    authorization = user.spec.authorization
    for acl in authorization.acls if authorization else []:
        for operation in acl.operations:
            yield _rule(acl, operation)


def _rule(acl: Acl, operation: str) -> Rule:
    types = {
        "topic": ResourceType.TOPIC,
        "group": ResourceType.GROUP,
        "cluster": ResourceType.CLUSTER,
        "transactionalId": ResourceType.TRANSACTIONAL_ID,
    }
    return (
        ACLPermissionType[acl.type.upper()],
        types[acl.resource.type],
        acl.resource.name or "kafka-cluster",
        ACLResourcePatternType.PREFIXED if acl.resource.pattern_type == "prefix" else ACLResourcePatternType.LITERAL,
        ACLOperation[constant(operation)],
        acl.host,
    )


def _rules_of_users(admin: KafkaAdminClient) -> dict[str, set[Rule]]:
    rules: dict[str, set[Rule]] = {}
    for acl in admin.describe_acls(EVERY_RULE)[0]:
        pattern = acl.resource_pattern
        rules.setdefault(acl.principal, set()).add(
            (
                acl.permission_type,
                pattern.resource_type,
                pattern.resource_name,
                pattern.pattern_type,
                acl.operation,
                acl.host,
            )
        )
    return rules


def _change_rules(admin: KafkaAdminClient, user: KafkaUser, add: set[Rule], delete: set[Rule]) -> bool:
    principal = user.principal
    if add and (failed := admin.create_acls([_acl(principal, rule) for rule in sorted(add)])["failed"]):
        raise LabError(f"{user.reference}: Kafka refuses its ACLs: {failed[0]}")
    if delete:
        admin.delete_acls([_acl(principal, rule) for rule in sorted(delete)])
    return bool(add or delete)


def _acl(principal: str, rule: Rule) -> ACL:
    permission, resource_type, name, pattern, operation, host = rule
    return ACL(principal, host, operation, permission, ResourcePattern(resource_type, name, pattern))
