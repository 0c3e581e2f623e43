"""KafkaMirrorMaker2: a group of distributed Connect workers beside the target, with MirrorMaker 2's connectors."""

from __future__ import annotations

import json
import re
import secrets
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from loosehanger.errors import LabError
from loosehanger.files import make_folder, remove_folder, write_file
from loosehanger.kafka.connect import REST_USER, ConnectClient
from loosehanger.kafka.connector_states import connector_problems
from loosehanger.kafka.failed_topics import name_topics
from loosehanger.kafka.links import CLIENT
from loosehanger.kafka.properties import read_properties
from loosehanger.lab.manifests.connect_settings import OVERRIDE_POLICY, REST_PORT
from loosehanger.lab.manifests.resources import ConfigMapKey, KafkaMirrorMaker2, as_text, exporter_rules
from loosehanger.lab.manifests.views import MIRROR
from loosehanger.lab.record import Exporter
from loosehanger.platforms.java import WORKER, Java
from loosehanger.platforms.local import processes, rolling, services
from loosehanger.platforms.local.jmx_exporter import agent as jmx_agent
from loosehanger.platforms.local.jmx_exporter import exporter
from loosehanger.platforms.local.mirror_maker_settings import BASIC_AUTH, MirrorMakerSettings
from loosehanger.platforms.local.processes import Process, tail
from loosehanger.platforms.local.refused_sign_ins import RefusedSignIns
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


class LocalMirrorMaker:
    """A region's KafkaMirrorMaker2."""

    def __init__(self, region: LocalRegion, resource: KafkaMirrorMaker2) -> None:
        self.region = region
        self.resource = resource
        self.name = resource.metadata.name
        self.settings = MirrorMakerSettings(region, resource)
        self.folder = self.settings.folder
        self.java = Java(region.home, resource.spec.version)
        self._idle_since: dict[str, float] = {}
        self._refused = RefusedSignIns(region, resource, self.worker_names())

    @property
    def rest(self) -> ConnectClient:
        """Connect's REST interface."""
        return ConnectClient.of(self.access)

    @property
    def access(self) -> dict[str, str]:
        """Address and credentials of Connect's REST interface, in the form of the region's record."""
        first, *others = self.urls(self.worker_names()) or [
            f"https://{LOOPBACK}:{self.region.worker_port(self._slots()[0])}"
        ]
        return {
            "url": first,
            **({"other_urls": " ".join(others)} if others else {}),
            "username": REST_USER,
            "password_file": str(secret_file(self.region, self.settings.rest_secret, "password")),
            "ca_file": str(secret_file(self.region, f"{self.settings.rest_secret}-cluster-ca-cert", "ca.crt")),
        }

    def ports(self) -> list[int]:
        """The ports of its workers."""
        return [self.region.worker_port(slot) for slot in self._slots()[: self.resource.spec.replicas]]

    def exporters(self) -> list[Exporter]:
        """Returns where its workers serve Kafka's metrics."""
        if not self._rules:
            return []
        return [
            exporter(
                self.region, MIRROR, self.name, f"{self.name}-mirrormaker2-{index}", self.region.exporter_port(slot)
            )
            for index, slot in enumerate(self._slots()[: self.resource.spec.replicas])
        ]

    def apply(self) -> bool:
        """Brings workers and connectors into the manifest's state; True when that changed anything."""
        changed = self._rest_credentials()
        trust = self.settings.write_trust()
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
        changed |= self._connectors()
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
        path = self._properties(0)
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

    def wait_ready(self, bound: float, began: float) -> None:
        """Waits until every connector and task is in the manifest's state.

        A running connector that stays without a task has nothing to copy, and counts as ready.

        Args:
            bound: how long they may take, in seconds.
            began: when they were applied, in seconds since the epoch.

        Raises:
            LabError: they are not, or a cluster refuses the mirror's sign-in.
        """
        if self.resource.spec.replicas:
            wait_for(lambda: self._not_ready(began), bound, f"{self.region.name}: {self.resource.reference}")

    def process_names(self) -> list[str]:
        """The names of its processes, in the order in which they stop."""
        return [f"{self.name}-auto-restart", *(self._worker_name(index) for index in range(MAX_WORKERS))]

    def worker_names(self) -> list[str]:
        """The names of the processes of its workers."""
        return [self._worker_name(index) for index in range(self.resource.spec.replicas)]

    def urls(self, workers: Collection[str]) -> list[str]:
        """Returns the addresses of Connect's REST interface at these workers."""
        of_all = zip(self.worker_names(), self.ports(), strict=True)
        return [f"https://{LOOPBACK}:{port}" for name, port in of_all if name in workers]

    def delete(self) -> None:
        """Stops the workers and deletes everything of theirs except their topics on the target."""
        processes.remove(self.region, self.process_names())
        services.offer(self.region, self._service, {})
        remove_folder(self.folder)
        for secret in ("", "-cluster-ca", "-cluster-ca-cert", "-certs", "-store"):
            delete_secret(self.region, f"{self.settings.rest_secret}{secret}")

    def connectors(self) -> dict[str, dict[str, str]]:
        """Returns the configuration of each connector, by name."""
        return self.settings.connectors()

    def states(self) -> dict[str, str]:
        """Returns the desired state of each connector: RUNNING, PAUSED or STOPPED."""
        return self.settings.states()

    def statuses(self) -> dict[str, Mapping[str, Any]]:
        """Returns Connect's status of each connector, with the topics whose tasks failed.

        Raises:
            LabError: no worker answers.
        """
        return self.with_topics(self.rest.statuses())

    def with_topics(self, statuses: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """Adds the topics whose tasks failed to Connect's status of each connector."""
        return name_topics(statuses, self.region.home, self.region.name, self.name)

    def failures(self) -> dict[str, dict[str, Any]]:
        """Returns what ``auto_restart`` has noted of recent failures, by connector: see ``Watched.summary``."""
        if not self._failures_file.exists():
            return {}
        found: dict[str, dict[str, Any]] = json.loads(self._failures_file.read_text(encoding="utf-8"))
        return found

    @property
    def _rules(self) -> ConfigMapKey | None:
        return exporter_rules(self.resource.spec.metrics_config)

    def _workers(self, slots: list[int], trust: list[bytes]) -> bool:
        changed = False
        key_store = secret_file(self.region, f"{self.settings.rest_secret}-certs", "keystore.p12").read_bytes()
        running = {state.name for state in processes.states(self.region) if state.state == "RUNNING"}
        replicas = self.resource.spec.replicas
        group = f"{self.region.name}: {self.resource.reference}"
        bound = rolling.bound(self.resource.spec.target.config)
        wait_for_others = partial(rolling.wait_for_others, self.access, self.ports(), group, bound)
        rolled: int | None = None
        # Those that do not run start first, and those that end do so last: the group is never smaller than needed.
        for index in sorted(range(len(slots)), key=lambda i: (i >= replicas, self._worker_name(i) in running)):
            properties = self.settings.worker(self.region.worker_port(slots[index]))
            process = self._worker(index, slots[index], [properties, key_store, *trust, *self.settings.certificates()])
            if index < replicas:
                if process.name in running and processes.restarts(self.region, process):
                    wait_for_others(index)
                    rolled = index
                write_file(self._properties(index), properties)
            changed |= processes.run(self.region, process, when=index < replicas)
        if rolled is not None and replicas > 1:
            # The last one may be the leader, to which the others forward changes of connectors.
            wait_for_others(0 if rolled else 1)
        return changed

    def _worker(self, index: int, slot: int, files: Sequence[str | bytes]) -> Process:
        agent, rules = "", b""
        if self._rules:
            exporter_port = self.region.exporter_port(slot)
            agent, rules = jmx_agent(self.region, self._rules, self.folder / str(index), exporter_port)
        command = self.java.command(
            WORKER,
            str(self._properties(index)),
            options=self.resource.spec.jvm_options,
            heap=DEFAULT_HEAP,
            system=self.java.logging(self.folder)
            | {"java.security.auth.login.config": str(self.folder / "rest-jaas.conf")},
            temporary=self.region.temporary,
            agent=agent,
        )
        return Process(
            name=self._worker_name(index),
            command=command,
            priority=processes.WORKER,
            directory=self.folder,
            environment={**self.java.environment, CLIENT: self.resource.reference},
            digest=processes.digest(*files, rules),
            stop_seconds=15,
        )

    def _properties(self, index: int) -> Path:
        return self.folder / f"worker-{index}.properties"

    def _connectors(self) -> bool:
        return _configure(ConnectClient.of(self.access, patient=True), self.connectors(), self.states())

    def _auto_restart(self) -> bool:
        wanted = self.settings.restarts()
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

    def _not_ready(self, began: float) -> str | None:
        try:
            present = self.statuses()
        except LabError as error:
            return str(error)
        wanted = self.states()
        self._refused.check_connectors(present)
        if problem := next(connector_problems(wanted, present), None):
            return problem[1]
        for name, state in wanted.items():
            if state == "RUNNING" and not present[name]["tasks"]:
                self._refused.check_idle(name, began)
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
                self._refused.check_workers()
                return f"{error}; its log says: {tail(self.region.logs / f'{self._worker_name(0)}.log')}"
            return None

        wait_for(answer, READY_SECONDS, f"{self.region.name}: {self.resource.reference}: Connect's REST interface")

    def _rest_credentials(self) -> bool:
        from loosehanger.platforms.local import certificates  # slow to import

        secret = self.settings.rest_secret
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
            f'KafkaConnect {{\n  {BASIC_AUTH}.PropertyFileLoginModule required\n  file="{users}";\n}};\n',
        )
        return changed

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


def _configure(rest: ConnectClient, desired: Mapping[str, dict[str, str]], states: Mapping[str, str]) -> bool:
    """Brings connectors into their configuration and state, and deletes all others; True when that changed anything."""
    present = rest.connectors()
    changed = False
    for name in set(present) - set(desired):
        rest.delete(name)
        changed = True
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
