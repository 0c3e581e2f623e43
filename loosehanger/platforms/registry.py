"""The platforms, for every other part of the kit: only this module imports one, and only when it is needed.

The Kubernetes platform takes a while to load, and a lab of one machine never needs it.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from loosehanger.errors import LabError, WrongUseError
from loosehanger.kafka.connection import Connection
from loosehanger.lab.record import Lab, Pod, Region
from loosehanger.paths import ROOT
from loosehanger.platforms.pod_files import ANSWER, STEP, STEP_FILE


def run_in_pod(lab: Lab, pod: Pod, command: str, arguments: Sequence[str]) -> int:
    """Runs a command of the kit in a pod; returns its exit code.

    Raises:
        LabError: the pod does not start, or the API server does not answer.
    """
    from loosehanger.platforms.kubernetes import pods

    return pods.run(lab, pod, command, arguments)


def run_step_in_pod(lab: Lab, pod: Pod, home: Path, step: str, *, exclusive: bool) -> tuple[int, str | None]:
    """Runs a step of a stage in a pod.

    Args:
        lab: the lab that is set up.
        pod: where pods run.
        home: the lab's home on this machine, whose snapshots the step reads.
        step: the step as JSON.
        exclusive: whether pods of an earlier step, left by a command that was killed, must end first.

    Returns:
        The pod's exit code, and its answer as JSON; None if it gave none.

    Raises:
        LabError: the pod does not start, or the API server does not answer.
    """
    from loosehanger.platforms.kubernetes import pods

    if exclusive:
        pods.end_all(pod, STEP)
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / ANSWER
        code = pods.run(lab, pod, STEP, [], home=home, brought={STEP_FILE: step}, back={ANSWER: answer})
        return code, answer.read_text(encoding="utf-8") if answer.exists() else None


def connection_in_pod(pod: Pod, user: str) -> Connection:
    """Returns a user's connection to a region's cluster, from the secret that the kit's pods use.

    Raises:
        LabError: the API server does not answer, or has no such user.
    """
    from loosehanger.platforms.kubernetes import pods

    return pods.connection(pod, user)


def change_declared_topic(region: Region, topic: str, changes: Mapping[str, str | None]) -> bool:
    """Changes a topic in the resource that declares it.

    Returns:
        Whether a resource declares it.

    Raises:
        LabError: the API server does not answer, or the operator refuses the change.
    """
    from loosehanger.platforms.kubernetes import topics

    return topics.change(region, topic, changes)


def read_resource(region: Region, kind: str, name: str) -> dict[str, Any]:
    """Returns a resource of the kit on Kubernetes.

    Raises:
        WrongUseError: there is none.
        LabError: the API server does not answer.
    """
    from loosehanger.platforms.kubernetes import edits

    return edits.read(region, kind, name)


def merge_resource(region: Region, kind: str, name: str, fields: Mapping[str, Any]) -> None:
    """Changes a resource on Kubernetes by a JSON merge patch, and waits until its operator has observed it.

    Raises:
        WrongUseError: there is no such resource, or the API server refuses the change.
        LabError: no operator observes it, or the API server does not answer.
    """
    from loosehanger.platforms.kubernetes import edits

    edits.merge(region, kind, name, fields)


def await_resource(region: Region, kind: str, name: str) -> None:
    """Waits until a resource on Kubernetes is ready.

    Raises:
        LabError: it does not become so, or the API server does not answer.
    """
    from loosehanger.platforms.kubernetes import edits

    edits.await_ready(region, kind, name)


def pods_of_resource(region: Region, kind: str, name: str) -> list[str]:
    """Returns the pods of a mirror or a Kafka cluster that the account may delete.

    Raises:
        WrongUseError: it may delete none, or there is none.
        LabError: the API server does not answer.
    """
    from loosehanger.platforms.kubernetes import edits

    return edits.pods_of(region, kind, name)


def delete_pod(region: Region, kind: str, name: str, pod: str) -> None:
    """Deletes a pod of a mirror or a Kafka cluster at once.

    Raises:
        LabError: the API server does not answer.
    """
    from loosehanger.platforms.kubernetes import edits

    edits.delete_pod(region, kind, name, pod)


def addresses_from(home: Path, cluster: str, servers: Sequence[str], seen_from: str) -> list[str] | None:
    """Returns the addresses by which one region reaches another region's cluster on this machine.

    Args:
        home: the lab's home.
        cluster: the region that the cluster belongs to.
        servers: the cluster's own addresses.
        seen_from: the region of the client.

    Returns:
        None if there is no link between them.
    """
    from loosehanger.platforms.local.services import offers

    for name, service in offers(home).items():
        if name.split(":")[0].endswith(f".{cluster}.svc") and service.here == list(servers):
            return service.addresses(seen_from)
    return None


def local_programs(home: Path, region: str) -> dict[str, int]:
    """Returns the process id of each program of a region on this machine; 0 for one that does not run."""
    from loosehanger.platforms.local import processes
    from loosehanger.platforms.local.region import LocalRegion

    return {state.group: state.pid for state in processes.states(LocalRegion(home, ROOT, region, 0))}


def local_starts(home: Path, region: str) -> dict[str, int]:
    """Returns when each running program of a region on this machine was started, in seconds since the epoch."""
    from loosehanger.platforms.local import processes
    from loosehanger.platforms.local.region import LocalRegion

    now = time.time()
    found = processes.states(LocalRegion(home, ROOT, region, 0))
    return {state.group: int(now - state.seconds) for state in found if state.pid}


def signal_local_program(home: Path, region: str, program: str, number: int) -> int:
    """Sends a signal to a program of a region on this machine, and to no process that is not the lab's.

    Returns:
        The number of its processes that got it.
    """
    from loosehanger.platforms.local import processes
    from loosehanger.platforms.local.region import LocalRegion

    return processes.send_signal(LocalRegion(home, ROOT, region, 0), program, number)


def halt_local_program(home: Path, region: str, program: str, *, halted: bool) -> None:
    """Stops a program of a region on this machine and keeps it stopped, or starts it again.

    Raises:
        LabError: it does not stop, or nothing of the region is running.
    """
    from loosehanger.platforms.local import processes
    from loosehanger.platforms.local.region import LocalRegion

    (processes.halt if halted else processes.resume)(LocalRegion(home, ROOT, region, 0), program)


def silent_resources(home: Path, checkout: Path, port_bases: Mapping[str, int]) -> set[tuple[str, str, str]]:
    """Returns the clusters and mirrors on this machine that cannot answer; asks none of them.

    Args:
        home: the lab's home.
        checkout: the kit's checkout.
        port_bases: the first port of each region.

    Returns:
        Region, kind and name of each of which every process is down or frozen.
    """
    from loosehanger.platforms.local.region import LocalRegion
    from loosehanger.platforms.local.status import silent

    found: set[tuple[str, str, str]] = set()
    for name, base in port_bases.items():
        # What cannot be found out here, the status of the region reports.
        with contextlib.suppress(LabError, OSError):
            found |= {(name, *one) for one in silent(LocalRegion(home, checkout, name, base))}
    return found


def local_status(home: Path, checkout: Path, port_bases: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    """Returns the health of everything on this machine, asked of all regions at once.

    Args:
        home: the lab's home.
        checkout: the kit's checkout.
        port_bases: the first port of each region.

    Returns:
        For each region its resources: kind, name, healthy, state, detail.

    Raises:
        LabError: the health of some regions cannot be determined.
    """
    from loosehanger.platforms.local.region import LocalRegion
    from loosehanger.platforms.local.status import status

    def ask(name: str) -> list[dict[str, Any]] | LabError:
        try:
            return status(LocalRegion(home, checkout, name, port_bases[name], port_bases))
        except LabError as error:
            return error
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            return LabError(f"{name}{where}: {error.strerror or error}")

    with ThreadPoolExecutor(max_workers=max(len(port_bases), 1)) as threads:
        answers = dict(zip(port_bases, threads.map(ask, port_bases), strict=True))
    if failed := [answer for answer in answers.values() if isinstance(answer, LabError)]:
        wrong_use = all(isinstance(error, WrongUseError) for error in failed)
        raise (WrongUseError if wrong_use else LabError)("; ".join(dict.fromkeys(map(str, failed))))
    return {name: answer for name, answer in answers.items() if not isinstance(answer, LabError)}
