"""Kafka and KafkaNodePool: a cluster of processes that are both broker and controller, with KRaft or with ZooKeeper.

Listeners and their security are Strimzi's: a control plane and a replication listener with mutual TLS for the nodes and
the platform, and the manifest's listeners for clients. Source of the mapping: Strimzi 1.2's documentation of ``Kafka``.
"""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path

from loosehanger.errors import LabError, WrongUseError
from loosehanger.files import make_folder, remove_folder, write_file
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.key_stores import ClientCertificate
from loosehanger.kafka.properties import format_properties
from loosehanger.lab.manifests.resources import (
    KAFKA_VERSION,
    ConfigMapKey,
    JvmOptions,
    Kafka,
    KafkaNodePool,
    Listener,
    as_text,
    exporter_rules,
    minor,
    needs_zookeeper,
)
from loosehanger.lab.record import Exporter
from loosehanger.platforms.java import Java
from loosehanger.platforms.local import processes, services
from loosehanger.platforms.local.jmx_exporter import agent as jmx_agent
from loosehanger.platforms.local.jmx_exporter import exporter
from loosehanger.platforms.local.listener_settings import ListenerSettings
from loosehanger.platforms.local.processes import Process
from loosehanger.platforms.local.region import PORTS_OF_A_NODE, LocalRegion
from loosehanger.platforms.local.secret_references import provider, reference
from loosehanger.platforms.local.secret_store import delete_secret, secret_file
from loosehanger.platforms.local.services import ServiceAddresses
from loosehanger.platforms.local.zookeeper import ZooKeeper
from loosehanger.ports import LOOPBACK

CONTROL_PLANE, REPLICATION = "CONTROLPLANE-9090", "REPLICATION-9091"
DEFAULT_HEAP = "384m"
DEDUPE_BUFFER = 16 * 2**20
"""Bytes of the log cleaner's buffer, enough for 600,000 keys at a time. Every node allocates it at its start, and
Kafka's default is 128 MiB."""
OPERATOR = "cluster-operator"


class LocalCluster:
    """A region's Kafka cluster."""

    def __init__(self, region: LocalRegion, kafka: Kafka, pools: list[KafkaNodePool]) -> None:
        self.region = region
        self.kafka = kafka
        self.name = kafka.metadata.name
        self.pools = sorted(pools, key=lambda pool: pool.metadata.name)
        self.java = Java(region.home, kafka.spec.kafka.version)
        self.zookeeper = ZooKeeper(self) if needs_zookeeper(self.java.version) else None

    @classmethod
    def of(cls, region: LocalRegion, name: str) -> LocalCluster:
        """Returns the applied cluster of that name.

        Raises:
            LabError: the cluster was not applied, or has no nodes.
        """
        document = region.resource("Kafka", name)
        if document is None:
            raise LabError(f"{region.name}: there is no Kafka cluster '{name}'; apply its Kafka resource first")
        pools = [KafkaNodePool.model_validate(pool) for pool in region.resources("KafkaNodePool")]
        own = [pool for pool in pools if pool.cluster == name]
        if not own:
            raise LabError(f"{region.name}: the Kafka cluster '{name}' has no KafkaNodePool")
        return cls(region, Kafka.model_validate(document), own)

    @property
    def nodes(self) -> dict[int, KafkaNodePool]:
        """The pool of each node id."""
        pools = [pool for pool in self.pools for _ in range(pool.spec.replicas)]
        return dict(enumerate(pools))

    @property
    def folder(self) -> Path:
        """The folder of the cluster's nodes."""
        return self.region.folder / "kafka" / self.name

    def addresses(self, listener: int) -> list[str]:
        """Returns address and port of each node for a listener (0 control plane, 1 replication, 2 … the manifest's)."""
        return [f"{LOOPBACK}:{self.region.node_port(node, listener)}" for node in self.nodes]

    def addresses_for(self, client: str) -> list[str]:
        """Returns address and port of each node on the link, for the clients of another region."""
        return [f"{LOOPBACK}:{self.region.relay_port(node, client)}" for node in self.nodes]

    def ports(self) -> list[int]:
        """Returns every port of the cluster.

        Raises:
            LabError: a region does not have enough ports.
        """
        listeners = [*range(2 + len(self.kafka.spec.kafka.listeners)), *self._hidden.values()]
        listeners += [self._exporter_listener] if self._rules else []
        return [self.region.node_port(node, listener) for node in self.nodes for listener in listeners]

    def exporters(self) -> list[Exporter]:
        """Returns where its nodes serve Kafka's metrics."""
        if not self._rules:
            return []
        listener = self._exporter_listener
        return [
            exporter(
                self.region,
                "Kafka",
                self.name,
                f"{self.name}-{pool.metadata.name}-{node}",
                self.region.node_port(node, listener),
            )
            for node, pool in self.nodes.items()
        ]

    def apply(self, before_restart: Callable[[], None] = lambda: None) -> bool:
        """Brings the nodes into the manifest's state; True when that changed anything.

        Args:
            before_restart: waits until a node that runs may restart; nodes restart one after the other.
        """
        nodes = self._check_nodes_kept()
        metadata = self._check_metadata_readable()
        changed = self._certificates()
        changed |= services.offer(
            self.region,
            self._service,
            {
                f"{self._service}:{listener.port}": ServiceAddresses(
                    self.addresses(index), {other: self.addresses_for(other) for other in self.region.others}
                )
                for index, listener in enumerate(self.kafka.spec.kafka.listeners, start=2)
            },
        )
        kept = {"id": self._cluster_id(), "nodes": nodes, "metadata": metadata}
        changed |= write_file(self.folder / "cluster.json", json.dumps(kept))
        if self.zookeeper:
            changed |= processes.run(self.region, self.zookeeper.process())
        running = {state.name for state in processes.states(self.region) if state.state == "RUNNING"}
        # Those that do not run start first: without them no other may restart.
        for node in sorted(self.nodes, key=lambda node: self._process_name(node) in running):
            process = self._node(node)
            if process.name in running and processes.restarts(self.region, process):
                before_restart()
            changed |= processes.run(self.region, process)
        return changed

    @property
    def _service(self) -> str:
        return f"{self.name}-kafka-bootstrap.{self.region.name}.svc"

    @property
    def disks(self) -> dict[str, Path]:
        """The folder that each node's records are in, by the name of its process."""
        return {
            name: self.folder / str(node) / "data" for node, name in zip(self.nodes, self.node_names(), strict=True)
        }

    def node_names(self) -> list[str]:
        """The names of the processes that answer clients."""
        return [self._process_name(node) for node in self.nodes]

    def process_names(self) -> list[str]:
        """The names of all its processes."""
        return [*([self.zookeeper.name] if self.zookeeper else []), *self.node_names()]

    def delete(self) -> None:
        """Stops the nodes and deletes all data of the cluster."""
        processes.remove(self.region, self.process_names())
        remove_folder(self.folder)
        services.offer(self.region, self._service, {})
        authorities = [f"{self.name}-{of}-ca{part}" for of in ("cluster", "clients") for part in ("", "-cert")]
        for secret in (*authorities, self._operator_secret, *map(self._node_secret, self.nodes)):
            delete_secret(self.region, secret)

    def admin_connection(self) -> Connection:
        """The connection of the platform's own client: mutual TLS on the replication listener."""
        chain, key = (
            secret_file(self.region, self._operator_secret, name).read_text(encoding="ascii")
            for name in ("tls.crt", "tls.key")
        )
        return Connection(
            tuple(self.addresses(1)), "SSL", ca_file=self._authority, certificate=ClientCertificate(chain, key)
        )

    def check_kept(self) -> None:
        """Checks that nodes which exist already can run what the manifests ask for now.

        Raises:
            WrongUseError: there are more or fewer of them, or their release cannot read what is on their disks.
        """
        self._check_nodes_kept()
        self._check_metadata_readable()

    # The nodes' folders are formatted once, and Kafka is not asked to raise the metadata's version afterwards.
    def _check_metadata_readable(self) -> str:
        spec, path = self.kafka.spec.kafka, self.folder / "cluster.json"
        before = json.loads(path.read_text()) if path.exists() else {}
        # Clusters of an older kit were formatted by the release that was the only one then.
        formatted: str = before.get("metadata", KAFKA_VERSION if before else spec.metadata_version or spec.version)
        in_zookeeper = needs_zookeeper(formatted) and not self.zookeeper
        if in_zookeeper or minor(formatted) > minor(spec.version):
            kept = "its metadata in ZooKeeper" if in_zookeeper else f"metadata of {formatted}"
            raise WrongUseError(
                f"{self.region.name}: Kafka/{self.name} has {kept}, which {spec.version} cannot read; "
                "run ./lab cleanup first, then set it up again"
            )
        return formatted

    # A KRaft quorum of static voters cannot grow or shrink.
    def _check_nodes_kept(self) -> list[int]:
        path = self.folder / "cluster.json"
        nodes = list(self.nodes)
        if path.exists() and (before := json.loads(path.read_text())["nodes"]) != nodes:
            raise WrongUseError(
                f"{self.region.name}: Kafka/{self.name} has {len(before)} nodes and cannot become one of {len(nodes)} "
                "while it runs; run ./lab cleanup first, then set it up again"
            )
        return nodes

    def _cluster_id(self) -> str:
        path = self.folder / "cluster.json"
        if path.exists():
            cluster_id: str = json.loads(path.read_text())["id"]
            return cluster_id
        # Like Kafka's own ids: a leading hyphen would be parsed as an option.
        candidates = iter(lambda: urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode(), "")
        return next(candidate for candidate in candidates if not candidate.startswith("-"))

    def _certificates(self) -> bool:
        from loosehanger.platforms.local import certificates  # slow to import

        authority = self.kafka.spec.cluster_ca
        days = authority.validity_days, authority.renewal_days
        generate = authority.generate_certificate_authority
        changed = certificates.ensure_authority(self.region, self.name, *days, generate=generate)
        changed |= certificates.ensure_certificate(self.region, self.name, self._operator_secret, OPERATOR, [], *days)
        changed |= self.listener.ensure_authority(self.kafka.spec.clients_ca)
        bootstrap = f"{self.name}-kafka-bootstrap"
        names = [bootstrap, f"{bootstrap}.{self.region.name}", f"{bootstrap}.{self.region.name}.svc"]
        for node in self.nodes:
            changed |= certificates.ensure_certificate(
                self.region, self.name, self._node_secret(node), f"{self.name}-kafka", names, *days
            )
        return changed

    def _node(self, node: int) -> Process:
        folder = self.folder / str(node)
        properties = self._properties(node)
        write_file(folder / "server.properties", properties)
        write_file(folder / "log4j2.properties", self.java.logging_configuration)
        if not (self.zookeeper or (folder / "data" / "meta.properties").exists()):
            _format(self, folder, self._cluster_id())
        pool = self.nodes[node]
        options = pool.spec.jvm_options
        if not options.model_fields_set:
            options = self.kafka.spec.kafka.jvm_options
        agent, rules = "", b""
        if self._rules:
            port = self.region.node_port(node, self._exporter_listener)
            agent, rules = jmx_agent(self.region, self._rules, folder, port)
        command = self.java.command(
            "kafka.Kafka",
            str(folder / "server.properties"),
            options=options,
            heap=DEFAULT_HEAP,
            system=self.java.logging(folder),
            temporary=self.region.temporary,
            agent=agent,
        )
        certificate = secret_file(self.region, self._node_secret(node), "keystore.pem").read_bytes()
        certificate += self._clients_authority.read_bytes() if self.listener.asks_certificates else b""
        return Process(
            name=self._process_name(node),
            command=command,
            priority=processes.BROKER,
            directory=folder,
            environment=self.java.environment,
            digest=processes.digest(properties, certificate, rules, *self.listener.credentials()),
            stop_seconds=20,
        )

    def _properties(self, node: int) -> str:
        spec = self.kafka.spec.kafka
        # With ZooKeeper the controller uses the replication listener too.
        listeners = ({} if self.zookeeper else {CONTROL_PLANE: 0}) | {REPLICATION: 1}
        listeners |= {_identifier(listener): index for index, listener in enumerate(spec.listeners, start=2)}
        advertised = [self._url(node, name, index) for name, index in listeners.items() if name != CONTROL_PLANE]
        advertised += [
            f"{_hidden_identifier(client)}://{LOOPBACK}:{self.region.relay_port(node, client)}"
            for client in self._hidden
        ]
        listeners |= {_hidden_identifier(client): index for client, index in self._hidden.items()}
        from loosehanger.platforms.local import certificates  # slow to import

        node_principal = certificates.principal(f"{self.name}-kafka")
        super_users = [node_principal, certificates.principal(OPERATOR)]
        super_users += [f"User:{name}" for name in spec.authorization.super_users]
        properties = {"log.cleaner.dedupe.buffer.size": str(DEDUPE_BUFFER)}
        properties |= {key: as_text(value) for key, value in spec.config.items()}
        properties |= {
            **(self.zookeeper.node_properties(node) if self.zookeeper else _kraft_properties(self, node)),
            "inter.broker.listener.name": REPLICATION,
            "listeners": ",".join(self._url(node, name, index) for name, index in listeners.items()),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": ",".join(
                f"{name}:{self.listener.security_protocol if index > 1 else 'SSL'}" for name, index in listeners.items()
            ),
            "sasl.enabled.mechanisms": "",
            "log.dirs": str(self.folder / str(node) / "data"),
            "super.users": ";".join(super_users),
        }
        key_store = _key_store(self, self._node_secret(node))
        for name, index in listeners.items():
            prefix = f"listener.name.{name.lower()}"
            asks = index < 2 or self.listener.asks_certificates
            if index < 2 or self.listener.is_encrypted:
                authority = self._authority if index < 2 or not asks else self._clients_authority
                properties |= {
                    **{f"{prefix}.ssl.keystore.{key}": value for key, value in key_store.items()},
                    f"{prefix}.ssl.truststore.type": "PEM",
                    f"{prefix}.ssl.truststore.location": str(authority),
                    f"{prefix}.ssl.client.auth": "required" if asks else "none",
                }
            if index > 1:
                properties |= {f"{prefix}.{key}": value for key, value in self.listener.settings().items()}
        secrets = self.listener.secrets()
        if "password" in key_store:
            secrets.add(str(Path(key_store["location"]).parent))
        if secrets:
            properties |= provider(secrets)
        return format_properties(properties)

    @property
    def listener(self) -> ListenerSettings:
        """The listener that clients sign in at: all of a cluster's ask for the same sign-in."""
        return ListenerSettings(self.region, self.name, self.kafka.spec.kafka.listeners[0])

    @property
    def _hidden(self) -> dict[str, int]:
        """Returns the number of the listener for each other region, whose clients connect through a link.

        Raises:
            LabError: the manifest's listeners leave no room for them.
        """
        own = len(self.kafka.spec.kafka.listeners)
        if 2 + own + len(self.region.others) > PORTS_OF_A_NODE:
            raise LabError(
                f"{self.region.name}: Kafka/{self.name}: the local platform has {PORTS_OF_A_NODE} ports for a node: "
                f"two of its own, one for each of the {own} listeners, and one for each of the "
                f"{len(self.region.others)} other regions"
            )
        return {client: self.region.hidden_listener(client) for client in self.region.others}

    @property
    def _rules(self) -> ConfigMapKey | None:
        return exporter_rules(self.kafka.spec.kafka.metrics_config)

    @property
    def _exporter_listener(self) -> int:
        """The number of the port of the nodes' exporters: the first that no listener has.

        Raises:
            LabError: the listeners leave none.
        """
        first = 2 + len(self.kafka.spec.kafka.listeners)
        if first + len(self._hidden) >= PORTS_OF_A_NODE:
            raise LabError(
                f"{self.region.name}: Kafka/{self.name}: its listeners leave no port for metrics: the local platform "
                f"has {PORTS_OF_A_NODE} for a node; remove a listener, or metricsConfig"
            )
        return first

    def _url(self, node: int, name: str, listener: int) -> str:
        return f"{name}://{LOOPBACK}:{self.region.node_port(node, listener)}"

    @property
    def _authority(self) -> Path:
        return secret_file(self.region, f"{self.name}-cluster-ca-cert", "ca.crt")

    @property
    def _clients_authority(self) -> Path:
        return secret_file(self.region, f"{self.name}-clients-ca-cert", "ca.crt")

    @property
    def _operator_secret(self) -> str:
        return f"{self.name}-{OPERATOR}-certs"

    def _node_secret(self, node: int) -> str:
        return f"{self.name}-kafka-{node}"

    def _process_name(self, node: int) -> str:
        return f"{self.name}-kafka-{node}"


def _kraft_properties(cluster: LocalCluster, node: int) -> dict[str, str]:
    """The settings of a node of a cluster that keeps its metadata itself."""
    return {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.voters": ",".join(
            f"{one}@{LOOPBACK}:{cluster.region.node_port(one, 0)}" for one in cluster.nodes
        ),
        "controller.listener.names": CONTROL_PLANE,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    }


def _key_store(cluster: LocalCluster, secret: str) -> dict[str, str]:
    """Where a node has its certificate; Kafka 2.8 takes no PEM file whose key is not encrypted."""
    if cluster.zookeeper:
        store = secret_file(cluster.region, secret, "keystore.p12")
        password = reference(cluster.region, secret, "store.password")
        return {"type": "PKCS12", "location": str(store), "password": password}
    return {"type": "PEM", "location": str(secret_file(cluster.region, secret, "keystore.pem"))}


def _identifier(listener: Listener) -> str:
    return f"{listener.name}-{listener.port}".upper()


def _hidden_identifier(client: str) -> str:
    return f"LINK-{client}".upper()


def _format(cluster: LocalCluster, folder: Path, cluster_id: str) -> None:
    # An interrupted run may have left files without the one that marks completion.
    remove_folder(folder / "data")
    region, java = cluster.region, cluster.java
    make_folder(region.temporary)
    command = java.command(
        "kafka.tools.StorageTool",
        *("format", "--cluster-id", cluster_id, "--config", str(folder / "server.properties")),
        *(["--release-version", version] if (version := cluster.kafka.spec.kafka.metadata_version) else []),
        options=JvmOptions.model_validate({"-XX": {"TieredStopAtLevel": 1}}),
        heap="128m",
        system=java.logging(folder),
        temporary=region.temporary,
    )
    done = subprocess.run(
        command,
        env={**os.environ, **java.environment},
        umask=0o077,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
        raise LabError(f"{region.name}: Kafka/{cluster.name}: formatting failed: {lines[-1]}")
