"""KafkaMirrorMaker2: a group of distributed Connect workers beside the target, with MirrorMaker 2's connectors.

The properties are those that Strimzi's operator generates from the same fields. Passwords stay in their secrets:
workers and connectors hold references, which Kafka's own DirectoryConfigProvider resolves.
"""

from __future__ import annotations

import json
import re
import secrets
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loosehanger.errors import LabError
from loosehanger.files import make_folder, remove_folder, write_file
from loosehanger.kafka.connect import REST_USER, ConnectClient
from loosehanger.kafka.connector_states import connector_problems
from loosehanger.kafka.failed_topics import name_topics
from loosehanger.kafka.links import CLIENT
from loosehanger.kafka.properties import (
    SCRAM_LOGIN_MODULE,
    LoginModule,
    format_jaas,
    format_properties,
    read_properties,
)
from loosehanger.lab.manifests.connect_settings import OVERRIDE_POLICY, REST_PORT
from loosehanger.lab.manifests.resources import (
    KafkaMirrorMaker2,
    MirrorConnector,
    MirrorEntry,
    MirrorSource,
    TrustedCertificate,
    as_text,
)
from loosehanger.platforms.java import Java
from loosehanger.platforms.local import certificates, processes, services
from loosehanger.platforms.local.processes import Process, tail
from loosehanger.platforms.local.region import MAX_WORKERS, LocalRegion
from loosehanger.platforms.local.secret_store import delete_secret, read_secret, secret_file, write_secret
from loosehanger.platforms.local.services import ServiceAddresses
from loosehanger.ports import LOOPBACK
from loosehanger.waiting import wait_for

DEFAULT_HEAP = "384m"
READY_SECONDS = 90
# A connector gets its tasks within two seconds of its start, unless it has nothing to copy.
IDLE_SECONDS = 15
_DEPENDS_ON_WORKER = {
    OVERRIDE_POLICY: re.compile(r"\.override\."),
    "exactly.once.source.support": re.compile(r"exactly\.once\.support|transaction\.boundary.*"),
    "topic.creation.enable": re.compile(r"topic\.creation\."),
}
"""Settings of workers, each with the connector settings whose validation depends on it."""
_PACKAGE = "org.apache.kafka.connect.mirror"
_BASIC_AUTH = "org.apache.kafka.connect.rest.basic.auth.extension"
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


class LocalMirrorMaker:
    """A region's KafkaMirrorMaker2."""

    def __init__(self, region: LocalRegion, resource: KafkaMirrorMaker2) -> None:
        self.region = region
        self.resource = resource
        self.name = resource.metadata.name
        self.java = Java(region.home)
        self._idle_since: dict[str, float] = {}

    @property
    def folder(self) -> Path:
        """The folder of its workers."""
        return self.region.folder / "connect" / self.name

    @property
    def rest(self) -> ConnectClient:
        """Connect's REST interface."""
        return ConnectClient.of(self.access)

    @property
    def access(self) -> dict[str, str]:
        """Address and credentials of Connect's REST interface, in the form of the region's record."""
        return {
            "url": f"https://{LOOPBACK}:{self.region.worker_port(self._slots()[0])}",
            "username": REST_USER,
            "password_file": str(secret_file(self.region, self._rest_secret, "password")),
            "ca_file": str(secret_file(self.region, f"{self._rest_secret}-cluster-ca-cert", "ca.crt")),
        }

    def ports(self) -> list[int]:
        """The ports of its workers."""
        return [self.region.worker_port(slot) for slot in self._slots()[: self.resource.spec.replicas]]

    def apply(self) -> bool:
        """Brings workers and connectors into the manifest's state; True when that changed anything."""
        changed = self._rest_credentials()
        trust = {end.alias: self._trust(end) for end in self._ends()}
        slots = self._slots()
        changed |= write_file(self.folder / "slots.json", json.dumps(slots))
        offered = slots[: max(1, self.resource.spec.replicas)]
        rest = ServiceAddresses(
            [f"{LOOPBACK}:{self.region.worker_port(slot)}" for slot in offered],
            {
                other: [f"{LOOPBACK}:{self.region.worker_relay_port(slot, other)}" for slot in offered]
                for other in self.region.others
            },
        )
        changed |= services.offer(self.region, self._service, {f"{self._service}:{REST_PORT}": rest})
        make_folder(self.folder / "plugins")
        write_file(self.folder / "log4j2.properties", self.java.logging_configuration)
        changed |= self._workers(slots, trust)
        if not self.resource.spec.replicas:
            return changed
        self._wait_for_rest()
        changed |= self._connectors(trust)
        changed |= self._auto_restart()
        return changed

    def objections(self) -> list[str]:
        """Returns what the running workers would refuse in the connectors' configurations; empty if no worker answers.

        Workers restart with their new settings before the connectors are configured. A refusal only then would leave
        neither as it was.
        """
        try:
            present, desired = self.rest.connectors(), self.connectors()
            changed = {
                name: configuration
                for name, configuration in desired.items()
                if present.get(name, {}).get("info", {}).get("config") != configuration
            }
            return [
                f"{name}: {said}"
                for name, configuration in changed.items()
                for said in self.rest.objections(self._judgeable(configuration))
            ]
        except LabError:
            return []

    def _judgeable(self, configuration: Mapping[str, str]) -> dict[str, str]:
        """Returns the settings that running workers can validate: those that no changed worker setting affects."""
        path = self.folder / "worker-0.properties"
        before, after = read_properties(path) if path.exists() else {}, self.resource.spec.target.config
        about_to_change = [
            pattern
            for setting, pattern in _DEPENDS_ON_WORKER.items()
            if before.get(setting) != (as_text(after[setting]) if setting in after else None)
        ]
        return {
            name: value
            for name, value in configuration.items()
            if not any(pattern.search(name) for pattern in about_to_change)
        }

    def wait_ready(self, bound: float) -> None:
        """Waits until every connector and task is in the manifest's state.

        A running connector that stays without a task has nothing to copy, and counts as ready.

        Raises:
            LabError: they are not within ``bound`` seconds.
        """
        if self.resource.spec.replicas:
            wait_for(self._not_ready, bound, f"{self.region.name}: {self.resource.reference}")

    def process_names(self) -> list[str]:
        """The names of its processes, in the order in which they stop."""
        return [f"{self.name}-auto-restart", *(self._worker_name(index) for index in range(MAX_WORKERS))]

    def delete(self) -> None:
        """Stops the workers and deletes everything of theirs except their topics on the target."""
        processes.remove(self.region, self.process_names())
        services.offer(self.region, self._service, {})
        remove_folder(self.folder)
        for secret in ("", "-cluster-ca", "-cluster-ca-cert", "-certs", "-store"):
            delete_secret(self.region, f"{self._rest_secret}{secret}")

    def connectors(self) -> dict[str, dict[str, str]]:
        """Returns the configuration of each connector, by name."""
        return self._desired({end.alias: self._trust_file(end) for end in self._ends()})

    def states(self) -> dict[str, str]:
        """Returns the desired state of each connector: RUNNING, PAUSED or STOPPED."""
        return {
            f"{mirror.source.alias}->{self.resource.spec.target.alias}.{name}": connector.state.upper()
            for mirror in self.resource.spec.mirrors
            for name, connector in connectors_of(mirror).items()
        }

    def statuses(self) -> dict[str, Mapping[str, Any]]:
        """Returns Connect's status of each connector, with the topics whose tasks failed.

        Raises:
            LabError: no worker answers.
        """
        return name_topics(self.rest.statuses(), self.region.home, self.region.name, self.name)

    def failures(self) -> dict[str, dict[str, Any]]:
        """Returns what ``auto_restart`` has noted of recent failures, by connector: see ``Watched.summary``."""
        if not self._failures_file.exists():
            return {}
        found: dict[str, dict[str, Any]] = json.loads(self._failures_file.read_text(encoding="utf-8"))
        return found

    def _ends(self) -> list[MirrorSource]:
        return [self.resource.spec.target, *(mirror.source for mirror in self.resource.spec.mirrors)]

    def _workers(self, slots: list[int], trust: Mapping[str, Path]) -> bool:
        changed = False
        key_store = secret_file(self.region, f"{self._rest_secret}-certs", "keystore.p12").read_bytes()
        for index in range(len(slots)):
            name = self._worker_name(index)
            port = self.region.worker_port(slots[index])
            properties = self._worker_properties(port, trust)
            path = self.folder / f"worker-{index}.properties"
            if index < self.resource.spec.replicas:
                write_file(path, properties)
            command = self.java.command(
                "org.apache.kafka.connect.cli.ConnectDistributed",
                str(path),
                options=self.resource.spec.jvm_options,
                heap=DEFAULT_HEAP,
                system=self.java.logging(self.folder)
                | {"java.security.auth.login.config": str(self.folder / "rest-jaas.conf")},
                temporary=self.region.temporary,
            )
            process = Process(
                name=name,
                command=command,
                priority=processes.WORKER,
                directory=self.folder,
                environment={**self.java.environment, CLIENT: self.resource.reference},
                digest=processes.digest(properties, key_store, *(path.read_bytes() for path in trust.values())),
                stop_seconds=15,
            )
            changed |= processes.run(self.region, process, when=index < self.resource.spec.replicas)
        return changed

    def _worker_properties(self, port: int, trust: Mapping[str, Path]) -> str:
        target = self.resource.spec.target
        connection = self._connection(target, trust[target.alias])
        stores = self.region.secrets / f"{self._rest_secret}-certs"
        store_password = f"${{secrets:{self._store_password}:store.password}}"
        properties = {
            "key.converter": _BYTES,
            "value.converter": _BYTES,
            "header.converter": _BYTES,
            **{key: as_text(value) for key, value in target.config.items()},
            "bootstrap.servers": services.resolve(self.region, target.bootstrap_servers),
            "group.id": target.group_id,
            "config.storage.topic": target.config_storage_topic,
            "offset.storage.topic": target.offset_storage_topic,
            "status.storage.topic": target.status_storage_topic,
            # Kafka's own plug-ins are all on the class path, so workers need not scan for them.
            "plugin.path": str(self.folder / "plugins"),
            "plugin.discovery": "service_load",
            **self._config_provider(),
            **connection,
            **{f"{client}.{k}": v for client in ("producer", "consumer", "admin") for k, v in connection.items()},
            "listeners": f"https://{LOOPBACK}:{port}",
            "rest.advertised.host.name": LOOPBACK,
            "rest.advertised.port": str(port),
            "rest.advertised.listener": "https",
            "rest.extension.classes": f"{_BASIC_AUTH}.BasicAuthSecurityRestExtension",
            # The REST server, unlike Kafka's clients, does not support PEM.
            "listeners.https.ssl.keystore.type": "PKCS12",
            "listeners.https.ssl.keystore.location": str(stores / "keystore.p12"),
            "listeners.https.ssl.keystore.password": store_password,
            "listeners.https.ssl.key.password": store_password,
            "listeners.https.ssl.truststore.type": "PKCS12",
            "listeners.https.ssl.truststore.location": str(stores / "truststore.p12"),
            "listeners.https.ssl.truststore.password": store_password,
            "listeners.https.ssl.client.auth": "none",
        }
        return format_properties(properties)

    def _config_provider(self) -> dict[str, str]:
        return {
            "config.providers": "secrets",
            "config.providers.secrets.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
            # A caller of the REST interface can read everything this provider can: so only these few passwords.
            "config.providers.secrets.param.allowed.paths": ",".join(
                sorted({str(self._password_folder(end)) for end in self._ends()} | {str(self._store_password)})
            ),
        }

    @property
    def _store_password(self) -> Path:
        """The folder with the password of the REST interface's key store, separate from the key store."""
        return self.region.secrets / f"{self._rest_secret}-store"

    def _password_folder(self, end: MirrorSource) -> Path:
        return self.region.secrets / end.authentication.password_secret.secret_name

    def _connection(self, end: MirrorSource, trust: Path) -> dict[str, str]:
        reference = end.authentication.password_secret
        secret_file(self.region, reference.secret_name, reference.password)
        password = f"${{secrets:{self._password_folder(end)}:{reference.password}}}"
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": format_jaas(
                LoginModule(SCRAM_LOGIN_MODULE, {"username": end.authentication.username, "password": password})
            ),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(trust),
        }

    def _desired(self, trust: Mapping[str, Path]) -> dict[str, dict[str, str]]:
        spec = self.resource.spec
        desired = {}
        for mirror in spec.mirrors:
            ends = {
                f"{end}.cluster.{key}": value
                for end, cluster in (("target", spec.target), ("source", mirror.source))
                for key, value in {
                    "alias": cluster.alias,
                    "bootstrap.servers": services.resolve(self.region, cluster.bootstrap_servers),
                    **{key: as_text(value) for key, value in cluster.config.items()},
                    **self._connection(cluster, trust[cluster.alias]),
                }.items()
            }
            for name, connector in connectors_of(mirror).items():
                full_name = f"{mirror.source.alias}->{spec.target.alias}.{name}"
                desired[full_name] = {
                    **ends,
                    **{key: as_text(value) for key, value in connector.config.items()},
                    **patterns(mirror, checkpoint=name == "MirrorCheckpointConnector"),
                    "name": full_name,
                    "connector.class": f"{_PACKAGE}.{name}",
                    "tasks.max": str(connector.tasks_max or 1),
                }
        return desired

    def _connectors(self, trust: Mapping[str, Path]) -> bool:
        rest = ConnectClient.of(self.access, patient=True)
        desired = self._desired(trust)
        present = rest.connectors()
        changed = False
        for name in set(present) - set(desired):
            rest.delete(name)
            changed = True
        states = self.states()
        for name, configuration in desired.items():
            if name not in present and states[name] == "STOPPED":
                rest.make_stopped(name, configuration)
                changed = True
                continue
            if present.get(name, {}).get("info", {}).get("config") != configuration:
                rest.configure(name, configuration)
                changed = True
            state = present.get(name, {}).get("status", {}).get("connector", {}).get("state", "RUNNING")
            held = state in ("PAUSED", "STOPPED")
            if states[name] != "RUNNING" and state != states[name]:
                rest.act(name, "pause" if states[name] == "PAUSED" else "stop")
                changed = True
            elif states[name] == "RUNNING" and held:
                rest.act(name, "resume")
                changed = True
        return changed

    def _auto_restart(self) -> bool:
        wanted = {
            f"{mirror.source.alias}->{self.resource.spec.target.alias}.{name}": connector.auto_restart.max_restarts
            for mirror in self.resource.spec.mirrors
            for name, connector in connectors_of(mirror).items()
            if connector.auto_restart and connector.auto_restart.enabled
        }
        settings = json.dumps(
            {
                "connect": self.access,
                "failures": str(self._failures_file),
                "connectors": wanted,
                "home": str(self.region.home),
                "region": self.region.name,
                "mirror": self.name,
            }
        )
        path = self.folder / "auto-restart.json"
        write_file(path, settings)
        process = Process(
            name=f"{self.name}-auto-restart",
            command=[sys.executable, "-P", "-m", "loosehanger.platforms.local.auto_restart", str(path)],
            priority=processes.OPERATOR,
            directory=self.folder,
            environment={"PYTHONPATH": self.region.python_path},
            digest=processes.digest(settings),
        )
        if not wanted:
            self._failures_file.unlink(missing_ok=True)
        return processes.run(self.region, process, when=bool(wanted))

    @property
    def _failures_file(self) -> Path:
        return self.folder / "failures.json"

    def _not_ready(self) -> str | None:
        try:
            present = self.statuses()
        except LabError as error:
            return str(error)
        wanted = self.states()
        if problem := next(connector_problems(wanted, present), None):
            return problem[1]
        for name, state in wanted.items():
            if state == "RUNNING" and not present[name]["tasks"]:
                idle_since = self._idle_since.setdefault(name, time.monotonic())
                if time.monotonic() - idle_since < IDLE_SECONDS:
                    return f"{name} has no task yet"
            else:
                self._idle_since.pop(name, None)
        return None

    def _wait_for_rest(self) -> None:
        def answer() -> str | None:
            try:
                self.rest.connectors()
            except LabError as error:
                return f"{error}; its log says: {tail(self.region.logs / f'{self._worker_name(0)}.log')}"
            return None

        wait_for(answer, READY_SECONDS, f"{self.region.name}: {self.resource.reference}: Connect's REST interface")

    def _rest_credentials(self) -> bool:
        secret = self._rest_secret
        days = 365
        changed = certificates.ensure_authority(self.region, secret, days)
        changed |= certificates.ensure_certificate(self.region, secret, f"{secret}-certs", secret, [], days)
        store_password = read_secret(self.region, f"{secret}-certs")["store.password"]
        changed |= write_secret(self.region, f"{secret}-store", {"store.password": store_password})
        if not (self.region.secrets / secret).is_dir():
            password = secrets.token_urlsafe(24)
            write_secret(
                self.region,
                secret,
                {"password": password.encode(), "users.properties": f"{REST_USER}={password}\n".encode()},
            )
            changed = True
        users = secret_file(self.region, secret, "users.properties")
        write_file(
            self.folder / "rest-jaas.conf",
            f'KafkaConnect {{\n  {_BASIC_AUTH}.PropertyFileLoginModule required\n  file="{users}";\n}};\n',
        )
        return changed

    def _trust(self, end: MirrorSource) -> Path:
        certificates_ = b"".join(self._trusted(trusted) for trusted in end.tls.trusted_certificates)
        write_file(self._trust_file(end), certificates_)
        return self._trust_file(end)

    def _trust_file(self, end: MirrorSource) -> Path:
        return self.folder / f"trust-{end.alias}.pem"

    def _trusted(self, trusted: TrustedCertificate) -> bytes:
        keys = read_secret(self.region, trusted.secret_name)
        pattern = trusted.pattern or trusted.certificate or ""
        chosen = [value for key, value in keys.items() if Path(key).match(pattern)]
        if not chosen:
            raise LabError(
                f"{self.region.name}: {self.resource.reference}: secret '{trusted.secret_name}' has no key '{pattern}'"
            )
        return b"".join(chosen)

    def _slots(self) -> list[int]:
        """Returns this group's numbers among the region's workers, which are stored so that ports do not change."""
        path = self.folder / "slots.json"
        own: list[int] = json.loads(path.read_text()) if path.exists() else []
        others = {
            slot
            for other in (self.region.folder / "connect").glob("*/slots.json")
            if other != path
            for slot in json.loads(other.read_text())
        }
        free = (slot for slot in range(MAX_WORKERS + 1) if slot not in others and slot not in own)
        while len(own) < max(1, self.resource.spec.replicas):
            own.append(next(free))
        return own

    def _worker_name(self, index: int) -> str:
        return f"{self.name}-{index}"

    @property
    def _service(self) -> str:
        return f"{self.name}-mirrormaker2-api.{self.region.name}.svc"

    @property
    def _rest_secret(self) -> str:
        return f"{self.name}-connect"


def connectors_of(mirror: MirrorEntry) -> dict[str, Any]:
    """Returns the connectors that a mirror declares, by class name; an empty block declares one."""
    declared: dict[str, MirrorConnector | None] = {
        "MirrorSourceConnector": mirror.source_connector,
        "MirrorCheckpointConnector": mirror.checkpoint_connector,
    }
    return {name: connector for name, connector in declared.items() if connector is not None}


def patterns(mirror: MirrorEntry, *, checkpoint: bool) -> dict[str, str]:
    """Returns the connector settings for a mirror's patterns."""
    settings = {"topics": mirror.topics_pattern, "topics.exclude": mirror.topics_exclude_pattern}
    if checkpoint:
        settings |= {"groups": mirror.groups_pattern, "groups.exclude": mirror.groups_exclude_pattern}
    return {key: value for key, value in settings.items() if value is not None}
