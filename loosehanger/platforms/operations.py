"""What is asked of a lab's platforms beside the steps of a stage, by parts that know no platform.

``loosehanger.platforms.registry`` offers all of it, and says what each raises; a caller hands it down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from loosehanger.lab.record import Lab, Pod, Region


class RunInPod(Protocol):
    """Runs a step of a stage in a pod; returns the pod's exit code, and its answer as JSON if it gave one."""

    def __call__(self, lab: Lab, pod: Pod, home: Path, step: str, *, exclusive: bool) -> tuple[int, str | None]: ...


class FindAddresses(Protocol):
    """Returns the addresses by which a region reaches another one's cluster on this machine; None without a link."""

    def __call__(self, home: Path, cluster: str, servers: Sequence[str], seen_from: str) -> list[str] | None: ...


class FaultOperations(Protocol):
    """How faults reach processes of this machine, and resources and pods on Kubernetes."""

    def local_programs(self, home: Path, region: str) -> dict[str, int]:
        """Returns the process id of each program of a region; 0 for one that does not run."""

    def signal_local_program(self, home: Path, region: str, program: str, number: int) -> int:
        """Sends a signal to a program; returns the number of its processes that got it."""

    def halt_local_program(self, home: Path, region: str, program: str, *, halted: bool) -> None:
        """Stops a program and keeps it stopped, or starts it again."""

    def read_resource(self, region: Region, kind: str, name: str) -> dict[str, Any]:
        """Returns a resource."""

    def merge_resource(self, region: Region, kind: str, name: str, fields: Mapping[str, Any]) -> None:
        """Changes a resource, and waits until its operator has observed it."""

    def await_resource(self, region: Region, kind: str, name: str) -> None:
        """Waits until a resource is ready."""

    def pods_of_resource(self, region: Region, kind: str, name: str) -> list[str]:
        """Returns the pods of a resource that the account may delete."""

    def delete_pod(self, region: Region, kind: str, name: str, pod: str) -> None:
        """Deletes a pod at once."""
