"""Detects that a cluster refuses a mirror's workers or connectors: waiting longer would change nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from loosehanger.errors import LabError
from loosehanger.kafka.connect import parts
from loosehanger.kafka.connector_causes import WorkerLogs
from loosehanger.kafka.failure_causes import refused_sign_in
from loosehanger.kafka.stalled import worker_logs
from loosehanger.lab.manifests.resources import KafkaMirrorMaker2
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.stack_traces import last_error

REFUSED_SECONDS = 4
"""Seconds for which a connector's refused sign-in must last: a user may have been created just before."""


class RefusedSignIns:
    """Watches one mirror.

    Args:
        region: the region that it runs in.
        resource: the mirror.
        workers: the names of its workers' processes, whose logs count from now on.
    """

    def __init__(self, region: LocalRegion, resource: KafkaMirrorMaker2, workers: Sequence[str]) -> None:
        self._region, self._name = region, resource.metadata.name
        self._where = f"{region.name}: {resource.reference}"
        self._target = resource.spec.target.alias
        self._logs = {name: region.logs / f"{name}.log" for name in workers}
        self._begins = {name: path.stat().st_size if path.exists() else 0 for name, path in self._logs.items()}
        self._since: dict[str, float] = {}

    def check_workers(self) -> None:
        """Checks what the workers have logged: those that the target refuses exit, and are started again and again.

        Raises:
            LabError: the target refuses one.
        """
        for name, path in self._logs.items():
            log = path.read_bytes() if path.exists() else b""
            begin = self._begins[name] if len(log) >= self._begins[name] else 0
            if refused := refused_sign_in(last_error(log[begin:].decode(errors="replace"))):
                raise LabError(f"{self._where}: {name} cannot sign in at its target {self._target}: {refused} ({path})")

    def check_connectors(self, present: Mapping[str, Mapping[str, Any]]) -> None:
        """Checks Connect's status of each connector.

        Raises:
            LabError: a connector or task has failed for a few seconds because a cluster refuses it.
        """
        every = [part for name, status in present.items() for part in parts(name, status)]
        refused = {part.label: why for part in every if (why := refused_sign_in(part.cause))}
        self._since = {label: self._since.get(label, time.monotonic()) for label in refused}
        for label, since in self._since.items():
            if time.monotonic() - since > REFUSED_SECONDS:
                raise LabError(f"{self._where}: {label} has failed: {refused[label]}")

    def check_idle(self, connector: str, after: float) -> None:
        """Checks what the workers have logged of the work of a connector that has no task.

        Args:
            connector: its name.
            after: in seconds since the epoch; what was logged before it does not count.

        Raises:
            LabError: a cluster refuses it: then it cannot list topics, and looks as if there were none to copy.
        """
        logs = WorkerLogs(lambda: worker_logs(self._region.home, self._region.name, self._name))
        for work, exception in logs.refused_work(after).items():
            if refused := refused_sign_in(exception):
                raise LabError(f"{self._where}: {connector} has no task, because {work} fails: {refused}")
