"""Deployment: a program of the checkout under the process manager, with its command, environment and secrets."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from . import processes, services
from .errors import PlatformError
from .models import Deployment
from .processes import Process
from .region import Region


class Program:
    """A region's Deployment."""

    def __init__(self, region: Region, deployment: Deployment) -> None:
        self.region = region
        self.deployment = deployment
        self.name = deployment.metadata.name

    @property
    def log(self) -> Path:
        """The log of its first copy."""
        copies = self.deployment.spec.replicas
        return self.region.logs / (f"{self.name}-0.log" if copies > 1 else f"{self.name}.log")

    def apply(self) -> bool:
        """Has the program running as the manifest says; True when that changed anything."""
        pod = self.deployment.spec.template.spec
        container = pod.containers[0]
        environment = {variable.name: self._local(variable.value) for variable in container.env}
        python = Path(sys.executable)
        path = os.pathsep.join([str(python.parent), os.environ.get("PATH", os.defpath)])
        process = Process(
            name=self.name,
            command=[self._local(word) for word in (*container.command, *container.args)],
            priority=processes.PROGRAM,
            directory=self.region.checkout,
            environment={"PATH": path, "PYTHONUNBUFFERED": "1", **environment},
            digest=processes.digest(*self._secrets()),
            copies=self.deployment.spec.replicas,
            stop_seconds=pod.termination_grace_period_seconds,
        )
        return processes.run(self.region, process)

    def delete(self) -> None:
        """Ends the program."""
        processes.remove(self.region, [self.name])

    def _mounts(self) -> dict[str, Path]:
        pod = self.deployment.spec.template.spec
        secrets = {volume.name: volume.secret.secret_name for volume in pod.volumes}
        mounts = {}
        for mount in pod.containers[0].volume_mounts:
            if mount.name not in secrets:
                raise PlatformError(
                    f"{self.region.name}: {self.deployment.reference}: there is no volume '{mount.name}' to mount"
                )
            folder = self.region.secrets / secrets[mount.name]
            if not folder.is_dir():
                raise PlatformError(
                    f"{self.region.name}: {self.deployment.reference}: there is no secret '{secrets[mount.name]}'"
                )
            mounts[mount.mount_path.rstrip("/")] = folder
        return mounts

    def _secrets(self) -> list[bytes]:
        return [path.read_bytes() for folder in self._mounts().values() for path in sorted(folder.iterdir())]

    def _local(self, text: str) -> str:
        """A word of the manifest as it is meant on this machine: mount paths and service names replaced."""
        for mount_path, folder in self._mounts().items():
            if text == mount_path or text.startswith(f"{mount_path}/"):
                return f"{folder}{text[len(mount_path) :]}"
        return services.resolve(self.region, text)
