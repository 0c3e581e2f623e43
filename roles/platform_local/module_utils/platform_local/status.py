"""Is everything there, and healthy, and if not, why not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from kafka.errors import KafkaError

from .deployment import Program
from .errors import PlatformError
from .kafka_cluster import Cluster
from .kafka_entities import admin_client
from .mirror_maker import MirrorMaker
from .models import Deployment, KafkaMirrorMaker2
from .processes import ProcessState, states, tail
from .region import Region

LOOK_SECONDS = 5


@dataclass(frozen=True)
class Health:
    """One resource's health."""

    kind: str
    name: str
    healthy: bool
    state: str
    """In a word or two: Running, Paused, Stopped, Degraded, Down."""
    detail: str
    """In a sentence: numbers when healthy, the reason when not."""


def status(region: Region) -> list[dict[str, Any]]:
    """The health of every cluster, mirror and program of a region."""
    processes = states(region)
    return [asdict(health) for health in _all(region, processes)]


def _all(region: Region, processes: list[ProcessState]) -> Iterator[Health]:
    for kafka in region.resources("Kafka"):
        yield _cluster(Cluster.of(region, kafka["metadata"]["name"]), processes)
    for mirror in region.resources("KafkaMirrorMaker2"):
        yield _mirror(MirrorMaker(region, KafkaMirrorMaker2.model_validate(mirror)), processes)
    for deployment in region.resources("Deployment"):
        yield _program(Program(region, Deployment.model_validate(deployment)), processes)


def _cluster(cluster: Cluster, processes: list[ProcessState]) -> Health:
    down = _not_running(processes, cluster.process_names())
    try:
        with admin_client(cluster, LOOK_SECONDS) as admin:
            topics = admin.describe_topics()
    except (PlatformError, KafkaError) as error:
        return Health("Kafka", cluster.name, False, "Down", "; ".join(down) or str(error))
    partitions = [partition for topic in topics for partition in topic["partitions"]]
    behind = sum(len(p["isr_nodes"]) < len(p["replica_nodes"]) for p in partitions)
    leaderless = sum(p["leader_id"] < 0 for p in partitions)
    detail = ", ".join(
        (
            _count(len(cluster.nodes), "node"),
            _count(len(topics), "topic"),
            _count(len(partitions), "partition"),
        )
    )
    problems = [*down]
    problems += [f"{behind} partitions are under-replicated"] if behind else []
    problems += [f"{leaderless} partitions have no leader"] if leaderless else []
    if problems:
        return Health("Kafka", cluster.name, False, "Degraded", "; ".join(problems))
    return Health("Kafka", cluster.name, True, "Running", detail)


def _mirror(mirror: MirrorMaker, processes: list[ProcessState]) -> Health:
    spec = mirror.resource.spec
    if not spec.replicas:
        return Health("KafkaMirrorMaker2", mirror.name, False, "Stopped", "spec.replicas is 0")
    wanted = mirror.process_names()
    down = _not_running(processes, [name for name in wanted if any(p.group == name for p in processes)])
    try:
        present = mirror.rest.get("/connectors?expand=status")
    except PlatformError as error:
        return Health("KafkaMirrorMaker2", mirror.name, False, "Down", "; ".join(down) or str(error))
    problems, tasks = [*down], 0
    for name in mirror.connectors():
        found = present.get(name, {}).get("status")
        if found is None:
            problems.append(f"{name} is not there")
            continue
        tasks += len(found["tasks"])
        parts = [(name, found["connector"]), *((f"{name} task {task['id']}", task) for task in found["tasks"])]
        for part, state in parts:
            if state["state"] != "RUNNING":
                trace = (state.get("trace") or "").splitlines()
                problems.append(f"{part} is {state['state']}" + (f": {trace[0]}" if trace else ""))
        if found["connector"]["state"] == "RUNNING" and not found["tasks"]:
            problems.append(f"{name} has no task")
    if problems:
        states_ = {problem.rsplit(" is ", 1)[-1] for problem in problems}
        state = "Paused" if states_ == {"PAUSED"} else "Stopped" if states_ == {"STOPPED"} else "Degraded"
        return Health("KafkaMirrorMaker2", mirror.name, False, state, "; ".join(problems))
    sources = ", ".join(entry.source.alias for entry in spec.mirrors)
    connectors = _count(len(mirror.connectors()), "connector")
    detail = f"from {sources}: {connectors}, {_count(tasks, 'task')} on {_count(spec.replicas, 'worker')}"
    return Health("KafkaMirrorMaker2", mirror.name, True, "Running", detail)


def _program(program: Program, processes: list[ProcessState]) -> Health:
    copies = program.deployment.spec.replicas
    if not copies:
        return Health("Deployment", program.name, False, "Stopped", "spec.replicas is 0")
    own = [process for process in processes if process.group == program.name]
    running = [process for process in own if process.state == "RUNNING"]
    if len(running) == copies:
        detail = f"{copies} running for {min(process.seconds for process in running)} s"
        return Health("Deployment", program.name, True, "Running", detail)
    problems = _not_running(processes, [program.name])
    return Health("Deployment", program.name, False, "Down", "; ".join(problems))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _not_running(processes: list[ProcessState], groups: list[str]) -> list[str]:
    problems = []
    for group in groups:
        own = [process for process in processes if process.group == group]
        if not own:
            problems.append(f"process {group} is not there")
        problems += [
            f"process {process.name} is {process.state}"
            + (f"; its log says: {end}" if (end := tail(process.log)) else "")
            for process in own
            if process.state != "RUNNING"
        ]
    return problems
