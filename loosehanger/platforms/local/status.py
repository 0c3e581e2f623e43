"""The health of every resource of a region, with the reason of each problem."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kafka.errors import KafkaError

from loosehanger.errors import LabError
from loosehanger.kafka.connect import SlowError
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.connector_states import connector_problems, held, judge
from loosehanger.kafka.groups import Group, look
from loosehanger.kafka.links import OPEN, ask, link_state, relay_folders
from loosehanger.lab.link_settings import size_text
from loosehanger.lab.manifests.resources import Deployment, KafkaMirrorMaker2
from loosehanger.lab.manifests.views import MIRROR
from loosehanger.platforms.local.deployment import LocalProgram
from loosehanger.platforms.local.kafka_cluster import LocalCluster
from loosehanger.platforms.local.kafka_entities import admin_client
from loosehanger.platforms.local.links import process_name
from loosehanger.platforms.local.mirror_maker import LocalMirrorMaker
from loosehanger.platforms.local.processes import ProcessState, states, tail
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.waiting import wait_for

LOOK_SECONDS = 5
GATHERED_SECONDS = 15
"""Seconds a consumer may take to join its group and to find new topics."""
SETTLED_SECONDS = 30
"""Seconds a connector that failed more than once must have been running to count as healthy."""


@dataclass(frozen=True)
class Health:
    """One resource's health."""

    kind: str
    name: str
    healthy: bool
    state: str
    """Running, Waiting, Paused, Stopped, Failed, Restarting, Busy, Degraded or Down."""
    detail: str
    """One sentence: numbers when healthy, the reason when not."""


def status(region: LocalRegion) -> list[dict[str, Any]]:
    """Returns the health of every cluster, mirror and program of a region."""
    processes = states(region)
    return [asdict(health) for health in _all(region, processes)]


def _all(region: LocalRegion, processes: list[ProcessState]) -> Iterator[Health]:
    for kafka in region.resources("Kafka"):
        yield _cluster(LocalCluster.of(region, kafka["metadata"]["name"]), processes)
    for mirror in region.resources(MIRROR):
        yield _mirror(LocalMirrorMaker(region, KafkaMirrorMaker2.model_validate(mirror)), processes)
    for deployment in region.resources("Deployment"):
        yield _program(LocalProgram(region, Deployment.model_validate(deployment)), processes)
    for (first, other), folder in relay_folders(region.home).items():
        if first == region.name:
            yield _link(f"{first}-{other}", folder, processes)


def _cluster(cluster: LocalCluster, processes: list[ProcessState]) -> Health:
    down = _not_running(processes, cluster.process_names())
    try:
        with admin_client(cluster, LOOK_SECONDS) as admin:
            topics = admin.describe_topics()
    except (LabError, KafkaError) as error:
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


def _mirror(mirror: LocalMirrorMaker, processes: list[ProcessState]) -> Health:
    spec = mirror.resource.spec
    if not spec.replicas:
        return Health(MIRROR, mirror.name, True, "Stopped", "as it should be: spec.replicas is 0")
    wanted = mirror.process_names()
    down = _not_running(processes, [name for name in wanted if any(p.group == name for p in processes)])
    try:
        present = mirror.statuses()
    except SlowError as error:
        slow = f"its worker did not answer within {mirror.rest.timeout_s:.0f} s: it is busy or it hangs ({error})"
        return Health(MIRROR, mirror.name, False, "Down" if down else "Busy", "; ".join([*down, slow]))
    except LabError as error:
        return Health(MIRROR, mirror.name, False, "Down", "; ".join(down) or str(error))
    return mirror_health(mirror.resource, mirror.states(), present, mirror.failures(), down)


def mirror_health(
    resource: KafkaMirrorMaker2,
    wanted: Mapping[str, str],
    present: Mapping[str, Mapping[str, Any]],
    failures: Mapping[str, Mapping[str, Any]],
    down: Sequence[str] = (),
) -> Health:
    """Returns the health of a mirror.

    Args:
        resource: the mirror, which has workers.
        wanted: the desired state of each of its connectors.
        present: Connect's status of each.
        failures: recent failures by connector.
        down: problems of its processes that do not run.
    """
    kind, name, spec = resource.kind, resource.metadata.name, resource.spec
    judged = judge(wanted, present)
    wrong = [problem for _, problem in connector_problems(wanted, present)]
    problems = [*down, *wrong]
    problems += [
        problem
        for connector, failure in failures.items()
        if connector in present and (problem := restarted(connector, present[connector], failure))
    ]
    problems += [f"{connector} has no task" for connector in judged.idle]
    if problems:
        shown = judged.state if problems == wrong or judged.state == "Failed" else "Degraded"
        return Health(kind, name, False, shown, "; ".join(problems))
    if as_wanted := held(wanted):
        return Health(kind, name, True, *as_wanted)
    sources = ", ".join(entry.source.alias for entry in spec.mirrors)
    tasks = sum(len(present[connector]["tasks"]) for connector in wanted)
    detail = f"from {sources}: {_count(len(wanted), 'connector')}, {_count(tasks, 'task')} on "
    return Health(kind, name, True, "Running", detail + _count(spec.replicas, "worker"))


def restarted(name: str, status: Mapping[str, Any], failure: Mapping[str, Any]) -> str:
    """Returns the problem of a connector that fails repeatedly and may run in between; empty for none.

    Args:
        name: the connector's name.
        status: Connect's status of it.
        failure: its last failure.
    """
    if not failure["restarts"]:
        return ""
    states_ = {part["state"] for part in (status["connector"], *status["tasks"])}
    counted = f"{name} was restarted {_count(failure['restarts'], 'time')}"
    if states_ & {"RESTARTING", "UNASSIGNED"}:
        return f"{counted}, the last time because {failure['reason']}"
    if states_ == {"RUNNING"} and failure["restarts"] > 1 and failure["running_seconds"] < SETTLED_SECONDS:
        return f"{counted} and has run for {failure['running_seconds']:.0f} s since {failure['reason']}"
    return ""


def _program(program: LocalProgram, processes: list[ProcessState]) -> Health:
    copies = program.deployment.spec.replicas
    if not copies:
        return Health("Deployment", program.name, True, "Stopped", "as it should be: spec.replicas is 0")
    own = [process for process in processes if process.group == program.name]
    running = [process for process in own if process.state == "RUNNING"]
    if len(running) == copies:
        detail = f"{copies} running for {min(process.seconds for process in running)} s"
        return _reading(program, detail) or Health("Deployment", program.name, True, "Running", detail)
    problems = _not_running(processes, [program.name])
    return Health("Deployment", program.name, False, "Down", "; ".join(problems))


def _link(name: str, folder: Path, processes: list[ProcessState]) -> Health:
    try:
        report = ask(folder)
    except (LabError, OSError) as error:
        down = _not_running(processes, [process_name(folder.name)])
        return Health("Link", name, False, "Down", "; ".join(down) or f"it does not answer: {error}")
    carried = ", ".join(f"{size_text(way['bytes'])} to {way['to']}" for way in report["directions"])
    if (state := link_state(report)) != OPEN:
        return Health(
            "Link",
            name,
            False,
            state.capitalize(),
            f"{carried}; ./lab link {' '.join(report['between'])} --heal ends it",
        )
    return Health("Link", name, True, "Running", carried)


def _reading(program: LocalProgram, detail: str) -> Health | None:
    """Returns the health of a running consumer, by its group membership and assignment; None for other programs."""
    try:
        environment = program.environment
        if "CONSUMER_GROUP" not in environment:
            return None
        group = _settled(environment, program.deployment.spec.replicas)
    except LabError as error:
        return Health("Deployment", program.name, False, "Degraded", f"{detail}, but {error}")
    if not group.partitions:
        waiting = f"{detail}; no topic matches {group.pattern} as yet"
        return Health("Deployment", program.name, True, "Waiting", waiting)
    reading = f"{detail}, reads {_count(group.partitions, 'partition')}"
    return Health("Deployment", program.name, True, "Running", reading)


def _settled(environment: Mapping[str, str], members: int) -> Group:
    """Waits until a consumer's group is complete, and returns it.

    Raises:
        LabError: it is not complete in time, or its cluster does not answer.
    """
    connection = Connection.from_environment(environment)
    group: Group | None = None

    def lacking() -> str | None:
        nonlocal group
        group = look(connection, environment["CONSUMER_GROUP"], environment.get("CONSUMER_PATTERN", ""))
        return group.lacks(members)

    wait_for(lacking, GATHERED_SECONDS, "it does not read")
    assert group is not None
    return group


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
