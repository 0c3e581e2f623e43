"""Deployment: runs a program of the checkout under the process manager, with command, environment and secrets."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable
from pathlib import Path

import psutil

from loosehanger.errors import LabError
from loosehanger.kafka.links import CLIENT
from loosehanger.lab.manifests.resources import Deployment
from loosehanger.paths import lab_home
from loosehanger.platforms.local import processes, services
from loosehanger.platforms.local.processes import Process, ProcessState
from loosehanger.platforms.local.region import LocalRegion

_STEADY_SECONDS = 3
"""Seconds a program that neither listens nor connects must have been running to count as stable."""
_ACCEPTED_SECONDS = 1.0
"""Seconds of a connection after which a program counts as signed in: one that is refused ends at once."""
_CONNECTED_SECONDS = 30
"""Seconds to wait for a program to connect to its cluster."""


class LocalProgram:
    """A region's Deployment."""

    def __init__(self, region: LocalRegion, deployment: Deployment) -> None:
        self.region = region
        self.deployment = deployment
        self.name = deployment.metadata.name
        self._connected: dict[int, float] = {}
        """When each process, by its identifier, was first seen with a connection, on the monotonic clock."""

    @property
    def log(self) -> Path:
        """The log of its first replica."""
        copies = self.deployment.spec.replicas
        return self.region.logs / (f"{self.name}-0.log" if copies > 1 else f"{self.name}.log")

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that the program gets.

        Raises:
            LabError: a secret or a service that they name does not exist.
        """
        container = self.deployment.spec.template.spec.containers[0]
        return {variable.name: self._local(variable.value) for variable in container.env}

    @property
    def process(self) -> Process:
        """The program as the process manager runs it.

        Raises:
            LabError: a secret, a volume or a service that it names does not exist.
        """
        pod = self.deployment.spec.template.spec
        container = pod.containers[0]
        own = {"PYTHONPATH": self.region.python_path, "PYTHONUNBUFFERED": "1"}
        own |= {CLIENT: self.deployment.reference, "LAB_HOME": str(lab_home())}
        return Process(
            name=self.name,
            command=[self._local(word) for word in (*container.command, *container.args)],
            priority=processes.PROGRAM,
            directory=self.region.checkout,
            environment=own | self.environment,
            digest=processes.digest(*self._secrets()),
            copies=self.deployment.spec.replicas,
            stop_seconds=pod.termination_grace_period_seconds,
            tools=Path(sys.executable).parent,
        )

    def lacks(self, states: Iterable[ProcessState], refusing: Collection[str] = ()) -> str | None:
        """Returns why the program is not ready; None if it is.

        It is ready when every replica is stable, listens on its ports, and is connected to its cluster. A cluster that
        does not answer is not waited for: the program keeps trying, and its health shows it.

        Args:
            states: the processes of the region.
            refusing: the names of processes that have refused their settings.

        Raises:
            LabError: the program has refused its settings, so it will never be ready.
        """
        if not self.deployment.spec.replicas:
            return None
        own = [state for state in states if state.group == self.name]
        if refused := next((state for state in own if state.name in refusing), None):
            said = processes.tail(refused.log)
            raise LabError(f"{self.region.name}: {refused.name} cannot start; its log says: {said}")
        return next(filter(None, map(self._lacks, own)), None) if own else f"process {self.name} is not there"

    def _lacks(self, state: ProcessState) -> str | None:
        if state.state != "RUNNING":
            return f"{state.name} is {state.state}; its log says: {processes.tail(state.log)}"
        container = self.deployment.spec.template.spec.containers[0]
        connects = any(variable.name == "KAFKA_BOOTSTRAP_SERVERS" for variable in container.env)
        # What listens or connects has read its settings.
        if state.seconds < _STEADY_SECONDS and not container.ports and not connects:
            return f"{state.name} has just started; its log says: {processes.tail(state.log)}"
        connections = processes.connections(state.pid)
        listening = {found.laddr.port for found in connections if found.status == psutil.CONN_LISTEN}
        if missing := {port.container_port for port in container.ports} - listening:
            return f"{state.name} does not listen on port {min(missing)}; its log says: {processes.tail(state.log)}"
        if connects and state.seconds < _CONNECTED_SECONDS:
            if not any(found.status == psutil.CONN_ESTABLISHED for found in connections):
                self._connected.pop(state.pid, None)
                return f"{state.name} has no connection to its cluster; its log says: {processes.tail(state.log)}"
            since = self._connected.setdefault(state.pid, time.monotonic())
            if state.seconds < _STEADY_SECONDS and time.monotonic() - since < _ACCEPTED_SECONDS:
                return f"{state.name} has just connected; its log says: {processes.tail(state.log)}"
        return None

    def delete(self) -> None:
        """Stops the program."""
        processes.remove(self.region, [self.name])

    def _mounts(self) -> dict[str, Path]:
        pod = self.deployment.spec.template.spec
        volumes = {volume.name: volume for volume in pod.volumes}
        mounts = {}
        for mount in pod.containers[0].volume_mounts:
            volume = volumes.get(mount.name)
            if volume is None:
                raise self._missing(f"volume '{mount.name}' to mount")
            if volume.secret:
                what, name, folder = "secret", volume.secret.secret_name, self.region.secrets
            else:
                assert volume.persistent_volume_claim  # it is either
                what, name, folder = "claim", volume.persistent_volume_claim.claim_name, self.region.volumes
            if not (folder / name).is_dir():
                raise self._missing(f"{what} '{name}'")
            mounts[mount.mount_path.rstrip("/")] = folder / name
        return mounts

    def _missing(self, what: str) -> LabError:
        return LabError(f"{self.region.name}: {self.deployment.reference}: there is no {what}")

    def _secrets(self) -> list[bytes]:
        folders = [folder for folder in self._mounts().values() if folder.parent == self.region.secrets]
        return [path.read_bytes() for folder in folders for path in sorted(folder.iterdir())]

    def _local(self, text: str) -> str:
        """Replaces mount paths and service names in a word of the manifest by those of this machine."""
        for mount_path, folder in self._mounts().items():
            if text == mount_path or text.startswith(f"{mount_path}/"):
                return f"{folder}{text[len(mount_path) :]}"
        return services.resolve(self.region, text)
