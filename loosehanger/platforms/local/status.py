"""The health of every resource of a region, with the reason of each problem."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from kafka.errors import KafkaError

from loosehanger.errors import LabError
from loosehanger.kafka.connect import ConnectError, SlowError, parts
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.connector_causes import (
    SETTLED_SECONDS,
    WorkerLogs,
    changed_settings,
    connector_causes,
    rebalance_causes,
    silent_causes,
)
from loosehanger.kafka.connector_states import connector_problems, held, judge
from loosehanger.kafka.groups import Group, look
from loosehanger.kafka.links import OPEN, SETTINGS, ask, closed_links, link_state, relay_folders
from loosehanger.kafka.stalled import looked_s, worker_logs
from loosehanger.lab.link_settings import OneWay, rate_text, size_text, time_text
from loosehanger.lab.manifests.resources import Deployment, KafkaMirrorMaker2
from loosehanger.lab.manifests.views import MIRROR
from loosehanger.platforms.local.deployment import LocalProgram
from loosehanger.platforms.local.kafka_cluster import LocalCluster
from loosehanger.platforms.local.kafka_entities import admin_client
from loosehanger.platforms.local.links import process_name
from loosehanger.platforms.local.mirror_maker import LocalMirrorMaker
from loosehanger.platforms.local.processes import ProcessState, ending, states
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.problems import Problem, Rank
from loosehanger.waiting import wait_for

LOOK_SECONDS = 5
ANSWER_SECONDS = 10
"""Seconds that Connect may take to answer: a user waits."""
GATHERED_SECONDS = 15
"""Seconds a consumer may take to join its group and to find new topics."""
FULL = 1 << 20
"""Free bytes below which a disk counts as full: a broker allocates more at once."""


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
    problems: tuple[Problem, ...] = ()
    """The causes, where it is not healthy."""
    topics: Mapping[str, int] = field(default_factory=dict)
    """The number of partitions of each topic, for a cluster that answers."""


def status(region: LocalRegion) -> list[dict[str, Any]]:
    """Returns the health of every cluster, mirror and program of a region, each with its problems."""
    processes = states(region)
    found = _all(region, processes)
    if not processes and not all(health.healthy for health in found):
        # One cause for all: the process manager starts every other process.
        down = _region_down(region)
        found = [health if health.healthy else replace(health, problems=(down,)) for health in found]
    return [asdict(health) for health in found]


def _region_down(region: LocalRegion) -> Problem:
    """The problem of a region whose process manager does not run, as after a restart of the machine."""
    return Problem(
        Rank.LAB,
        f"nothing of {region.name} is running: its process manager is down, as after a restart of the machine",
        region.name,
        _changed_at(region.logs / "supervisor.log"),
    )


def _changed_at(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _all(region: LocalRegion, processes: list[ProcessState]) -> list[Health]:
    """Asks everything at the same time, so that the slowest answer decides how long a user waits."""
    looks: list[Callable[[], Health]] = []
    for kafka in region.resources("Kafka"):
        looks.append(partial(_cluster, LocalCluster.of(region, kafka["metadata"]["name"]), processes))
    for mirror in region.resources(MIRROR):
        maker = LocalMirrorMaker(region, KafkaMirrorMaker2.model_validate(mirror))
        looks.append(partial(_mirror, maker, processes))
    for deployment in region.resources("Deployment"):
        looks.append(partial(_program, LocalProgram(region, Deployment.model_validate(deployment)), processes))
    for (first, other), folder in relay_folders(region.home).items():
        if first == region.name:
            looks.append(partial(_link, f"{first}-{other}", folder, processes))
    with ThreadPoolExecutor(max_workers=max(len(looks), 1)) as threads:
        return [look.result() for look in [threads.submit(look) for look in looks]]


def silent(region: LocalRegion) -> list[tuple[str, str]]:
    """Returns kind and name of each cluster and mirror of which every process is down or frozen: none would answer."""
    processes = states(region)
    if not processes:
        return []
    found = [
        ("Kafka", kafka["metadata"]["name"], LocalCluster.of(region, kafka["metadata"]["name"]).node_names())
        for kafka in region.resources("Kafka")
    ]
    for document in region.resources(MIRROR):
        maker = LocalMirrorMaker(region, KafkaMirrorMaker2.model_validate(document))
        found.append((MIRROR, maker.name, maker.worker_names()))
    return [(kind, name) for kind, name, groups in found if groups and not _answering(processes, groups)]


def _answering(processes: list[ProcessState], groups: Sequence[str]) -> list[str]:
    """Those of the processes that may answer, because they run or start, and are not frozen."""
    alive = {one.group for one in processes if one.state in ("RUNNING", "STARTING") and not one.frozen}
    return [group for group in groups if group in alive]


def _may_answer(cluster: LocalCluster, processes: list[ProcessState]) -> bool:
    if processes:
        return bool(_answering(processes, cluster.node_names()))
    # A node may outlive its process manager; its replication listener is the one that is asked.
    return not all(map(_refused, cluster.addresses(1)))


def _cluster(cluster: LocalCluster, processes: list[ProcessState]) -> Health:
    region, names = cluster.region.name, cluster.process_names()
    full = tuple(_full_disks(cluster.disks, region))
    down = [*(one.cause for one in full), *_not_running(processes, names)]
    causes = (*full, *_process_causes(processes, names, region))
    if not _may_answer(cluster, processes):
        return Health("Kafka", cluster.name, False, "Down", "; ".join(down), causes)
    try:
        with admin_client(cluster, LOOK_SECONDS) as admin:
            topics = admin.describe_topics()
    except (LabError, KafkaError) as error:
        silent = Problem(Rank.CLUSTER, f"the cluster does not answer: {error}", region, next=f"./lab logs {region}")
        return Health("Kafka", cluster.name, False, "Down", "; ".join(down) or str(error), causes or (silent,))
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
    numbers = {topic["name"]: len(topic["partitions"]) for topic in topics}
    if problems:
        describe = f"./lab kafka {region} topics --describe --unavailable-partitions"
        of_partitions = [Problem(Rank.CLUSTER, text, region, next=describe) for text in problems[len(down) :]]
        return Health("Kafka", cluster.name, False, "Degraded", "; ".join(problems), (*causes, *of_partitions), numbers)
    return Health("Kafka", cluster.name, True, "Running", detail, topics=numbers)


def _full_disks(disks: Mapping[str, Path], region: str) -> Iterator[Problem]:
    """The problems of disks that have no room left.

    Args:
        disks: the folder with the records of each process.
        region: the region.
    """
    for name, folder in disks.items():
        with contextlib.suppress(OSError):
            room = shutil.disk_usage(folder)
            if room.free < FULL:
                cause = f"the disk of process {name} is full: {size_text(room.free)} of {size_text(room.total)} is free"
                yield Problem(Rank.DISK, cause, f"{region}, {folder}", next=f"df -h {folder}")


def _mirror(mirror: LocalMirrorMaker, processes: list[ProcessState]) -> Health:
    spec = mirror.resource.spec
    if not spec.replicas:
        return Health(MIRROR, mirror.name, True, "Stopped", "as it should be: spec.replicas is 0")
    wanted = mirror.process_names()
    known = [name for name in wanted if any(p.group == name for p in processes)]
    down, region = _not_running(processes, known), mirror.region.name
    causes = tuple(_process_causes(processes, known, region))
    where = f"{region}, {MIRROR}/{mirror.name}"
    logs = WorkerLogs(lambda: worker_logs(mirror.region.home, region, mirror.name))
    workers = _answering(processes, mirror.worker_names())
    if processes and not workers:
        return Health(MIRROR, mirror.name, False, "Down", "; ".join(down), causes)
    rest = replace(mirror.rest, timeout_s=ANSWER_SECONDS, rebalance_s=0)
    if down:
        rest = replace(rest, urls=mirror.urls(workers))
    try:
        found = after_rebalance(rest.connectors)
        present = mirror.with_topics({name: entry["status"] for name, entry in found.items()})
    except SlowError as error:
        slow = f"its worker did not answer within {rest.timeout_s:.0f} s: it is busy or it hangs ({error})"
        state = "Down" if down else "Busy"
        hangs = Problem(Rank.CONNECTOR, slow, where, next=f"./lab logs {region}/{mirror.name}")
        causes = causes or tuple(rebalance_causes(logs, where=where, now=time.time()))
        return Health(MIRROR, mirror.name, False, state, "; ".join([*down, slow]), causes or (hangs,))
    except LabError as error:
        unread = Problem(Rank.CONNECTOR, str(error), where, next=f"./lab logs {region}/{mirror.name}")
        return Health(MIRROR, mirror.name, False, "Down", "; ".join([*down, str(error)]), causes or (unread,))
    states_, failures = mirror.states(), mirror.failures()
    health = mirror_health(mirror.resource, states_, present, failures, down)
    configs = {name: entry["info"]["config"] for name, entry in found.items()}
    changed = tuple(_changed_by_hand(mirror, configs, where))
    looks_s = max((looked_s(config) for config in configs.values()), default=0.0)
    silent = silent_causes(
        logs, where=where, target=region, now=time.time(), exactly_once=spec.exactly_once, looks_s=looks_s
    )
    of_logs = tuple(silent)
    if health.healthy:
        return replace(health, problems=(*changed, *of_logs))
    of_connectors = connector_causes(states_, present, failures, logs, where=where, target=region)
    return replace(health, problems=(*causes, *changed, *of_logs, *of_connectors))


def after_rebalance(read: Callable[[], dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Returns Connect's connectors, with ``status``; reads again for a moment while a part is assigned to no worker.

    A rebalance, after MirrorMaker has found a new topic for example, takes a task from one worker before it gives it
    to another. One that does not end is a problem, which the same words then name.

    Args:
        read: asks Connect.

    Raises:
        ConnectError: no worker answers, or Connect refuses.
    """
    found: dict[str, dict[str, Any]] = {}

    def moving() -> str | None:
        nonlocal found
        found = read()
        states_ = [part.state for name, entry in found.items() for part in parts(name, entry["status"])]
        return "a part has no worker" if "UNASSIGNED" in states_ and "FAILED" not in states_ else None

    try:
        wait_for(moving, LOOK_SECONDS, "a rebalance")
    except ConnectError:
        raise
    except LabError:
        pass  # It continues: the states show it.
    return found


def _changed_by_hand(mirror: LocalMirrorMaker, present: Mapping[str, Mapping[str, str]], where: str) -> list[Problem]:
    try:
        return list(changed_settings(mirror.connectors(), present, where))
    except LabError:
        return []  # The source does not exist any more.


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
    if not failure["restarts"] or not status["tasks"]:
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
    running = [process for process in own if process.state == "RUNNING" and not process.frozen]
    if len(running) == copies:
        detail = f"{copies} running for {min(process.seconds for process in running)} s"
        return _reading(program, detail, processes) or Health("Deployment", program.name, True, "Running", detail)
    problems = _not_running(processes, [program.name])
    causes = tuple(_process_causes(processes, [program.name], program.region.name))
    return Health("Deployment", program.name, False, "Down", "; ".join(problems), causes)


def _link(name: str, folder: Path, processes: list[ProcessState]) -> Health:
    region, own = folder.parents[1].name, [process_name(folder.name)]
    down, causes = _not_running(processes, own), tuple(_process_causes(processes, own, region))
    if processes and not _answering(processes, own):
        return Health("Link", name, False, "Down", "; ".join(down), causes)
    try:
        report = ask(folder)
    except (LabError, OSError) as error:
        unknown = Problem(Rank.LINK, f"the link's relay does not answer: {error}", name, next=f"./lab logs {region}")
        detail = "; ".join(down) or f"it does not answer: {error}"
        return Health("Link", name, False, "Down", detail, causes or (unknown,))
    carried = ", ".join(f"{size_text(way['bytes'])} to {way['to']}" for way in report["directions"])
    one, other = report["between"]
    if (state := link_state(report)) != OPEN:
        closed = _closed_link((one, other), state, folder)
        return Health("Link", name, False, state.capitalize(), f"{carried}; {closed.next} ends it", (closed,))
    if changed := _changed_settings(report, folder):
        # It is not a problem in itself, and may be the cause of others.
        since = _changed_at(folder / SETTINGS)
        return Health("Link", name, True, "Running", carried, (replace(changed, since=since),))
    return Health("Link", name, True, "Running", carried)


def _closed_link(between: tuple[str, str], state: str, folder: Path) -> Problem:
    """The problem of a link that is cut or silent.

    Args:
        between: the two regions.
        state: what the link is.
        folder: its relay's.
    """
    one, other = between
    cause, where = f"the link between {one} and {other} is {state}", f"{one}, {other}"
    return Problem(Rank.LINK, cause, where, _changed_at(folder / SETTINGS), f"./lab link {one} {other} --heal")


def _changed_settings(report: Mapping[str, Any], folder: Path) -> Problem | None:
    """The problem of a link that was shaped or closed to connections after it was made; None for an unchanged one."""
    try:
        start = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))["start"]
    except (OSError, ValueError, KeyError):
        return None
    one, other = report["between"]
    changed, begun, firewall = [], OneWay(), ""
    for way in report["directions"]:
        first = OneWay(**start.get(f"{way['from']}>{way['to']}", {}))
        now = OneWay(**{name: way[name] for name in first.as_json()})
        if now != first:
            changed.append(f"to {way['to']} {_shape(now)}, which was {_shape(first)}")
            begun = first
        if now.refuses != first.refuses:
            one, other = way["to"], way["from"]
            firewall = f" --{'' if first.refuses else 'no-'}outbound-only"
    if not changed:
        return None
    shape = {"delay": time_text(begun.delay), "jitter": time_text(begun.jitter), "rate": rate_text(begun.rate)}
    settings = " ".join(f"--{name} {value.replace(' ', '')}" for name, value in shape.items())
    back = f"./lab link {one} {other} {settings}{firewall}"
    cause = f"the link between {one} and {other} was changed by hand: {'; '.join(changed)}"
    return Problem(Rank.LINK, cause, f"{one}, {other}", next=back)


def _shape(way: OneWay) -> str:
    refuses = ", connections refused" if way.refuses else ""
    return f"{time_text(way.delay)} of delay, {rate_text(way.rate)}{refuses}"


def _reading(program: LocalProgram, detail: str, processes: list[ProcessState]) -> Health | None:
    """Returns the health of a running consumer, by its group membership and assignment; None for other programs."""
    region = program.region
    try:
        environment = program.environment
        if "CONSUMER_GROUP" not in environment:
            return None
        if (cannot := _unreachable(region, environment, processes)) is not None:
            return Health(
                "Deployment", program.name, False, "Degraded", f"{detail}, but {cannot.why}", tuple(cannot.causes)
            )
        group = _settled(environment, program.deployment.spec.replicas)
    except LabError as error:
        unread = Problem(
            Rank.PROGRAM, str(error), f"{region.name}, Deployment/{program.name}",
            next=f"./lab logs {region.name}/{program.name}",
        )  # fmt: skip
        return Health("Deployment", program.name, False, "Degraded", f"{detail}, but {error}", (unread,))
    if not group.partitions:
        waiting = f"{detail}; no topic matches {group.pattern} as yet"
        return Health("Deployment", program.name, True, "Waiting", waiting)
    reading = f"{detail}, reads {_count(group.partitions, 'partition')}"
    return Health("Deployment", program.name, True, "Running", reading)


class _Unreachable(NamedTuple):
    """A cluster that a program cannot reach, which is known without asking it."""

    why: str
    causes: list[Problem]
    """As they stand where the cluster or the link is, so that each is shown once."""


def _unreachable(
    region: LocalRegion, environment: Mapping[str, str], processes: list[ProcessState]
) -> _Unreachable | None:
    """Finds out why a program's cluster cannot answer it: it is down or frozen, or the link in between is closed.

    Args:
        region: where the program runs.
        environment: the program's, with its connection.
        processes: those of its region.

    Returns:
        None where the cluster may answer.

    Raises:
        LabError: no cluster has its address and nothing listens there, as after the loss of a region.
    """
    servers = set(Connection.from_environment(environment).bootstrap_servers)
    ports = {int(server.rpartition(":")[2]) for server in servers}
    for link in closed_links(region.home):
        if ports <= link.ports:
            problem = _closed_link(link.between, link.state, link.folder)
            return _Unreachable(problem.cause, [problem])
    for name in (region.name, *region.others):
        there = region if name == region.name else region.peer(name)
        for kafka in there.resources("Kafka"):
            cluster = LocalCluster.of(there, kafka["metadata"]["name"])
            if not servers <= _addresses(cluster, region.name):
                continue
            own = processes if there is region else states(there)
            if not _answering(own, cluster.node_names()):
                causes = list(_process_causes(own, cluster.process_names(), name)) if own else [_region_down(there)]
                return _Unreachable(f"its cluster {cluster.name} is down", causes)
            return None
    if all(map(_refused, servers)):
        raise LabError(f"nothing listens at {', '.join(sorted(servers))}, where its cluster should be")
    return None


def _refused(server: str) -> bool:
    """Whether this machine refuses connections to an address at once, where a client would try for seconds."""
    host, _, port = server.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=LOOK_SECONDS).close()
    except OSError as error:
        return isinstance(error, ConnectionRefusedError)
    return False


def _addresses(cluster: LocalCluster, client: str) -> set[str]:
    """The addresses at which programs of a region reach a cluster: its listeners, or the link's in another region."""
    if cluster.region.name != client:
        return set(cluster.addresses_for(client))
    listeners = range(2, 2 + len(cluster.kafka.spec.kafka.listeners))
    return {address for listener in listeners for address in cluster.addresses(listener)}


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
            f"process {process.name} is {process.state}" + (f": {why}" if (why := ending(process)) else "")
            for process in own
            if process.state != "RUNNING"
        ]
        problems += [f"{_frozen(process)}; kill -CONT {process.pid} resumes it" for process in own if process.frozen]
    return problems


def _process_causes(processes: list[ProcessState], groups: list[str], region: str) -> Iterator[Problem]:
    """The problems that ``_not_running`` describes."""
    for group in groups:
        where = f"{region}, process {group}"
        own = [process for process in processes if process.group == group]
        if not own:
            yield Problem(Rank.PROCESS, f"process {group} is not there", where)
        for process in own:
            if process.frozen:
                yield Problem(Rank.PROCESS, _frozen(process), where, next=f"kill -CONT {process.pid}")
            elif process.state != "RUNNING":
                said = f": {why}" if (why := ending(process)) else ""
                logs = f"./lab logs {region}/{group}"
                cause = f"process {process.name} does not run ({process.state}){said}"
                yield Problem(Rank.PROCESS, cause, where, process.ended or None, logs)


def _frozen(process: ProcessState) -> str:
    return f"process {process.name} is frozen: a signal (SIGSTOP) stopped it, and it does not answer"
