"""``./lab status``: the health of everything, asked of all regions at once.

Where the lab was set up with the kit's own inventory of this machine, this process asks the regions. Ansible reads
every other inventory, and takes two seconds to start. Both ways call the same function of the platform.
"""

from __future__ import annotations

import json
import tempfile
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from loosehanger.cli.command_line import COMMANDS
from loosehanger.cli.plain_inventory import port_bases
from loosehanger.cli.playbook import only_one, run_playbook
from loosehanger.cli.problems import apply_again, as_json, as_lines, degrade, find_problems
from loosehanger.errors import ExitCode
from loosehanger.faults.journal import found_faults
from loosehanger.lab import targets
from loosehanger.lab.progress import required_progress
from loosehanger.lab.record import Lab, load_lab
from loosehanger.lab.scenario import MIRROR
from loosehanger.lab.topology import clients_of
from loosehanger.paths import ROOT, caller_path, lab_home
from loosehanger.platforms import registry
from loosehanger.problems import Problem, Rank, in_order

if TYPE_CHECKING:
    from loosehanger.cli.retention_risk import MirrorRisk
    from loosehanger.lab.mirrors.mirror import Mirror

_STATUS_WIDTH = 51
"""Width of a line of the status without its detail."""
_INDENT = " " * 12
_WIDE = 10_000
"""Not a terminal: do not wrap."""
_HEALTHY = ("Kafka", MIRROR, "Deployment")
"""The kinds whose health each platform reports."""
_RUNNING = "Running"
_DEGRADED = "Degraded"
_UNKNOWN = "Unknown"
"""The state of a running mirror whose lag cannot be measured."""
_OF_PROBLEMS = ("problems", "topics")
"""What a platform adds to the health of a resource, and this command does not show there."""
Regions = dict[str, list[dict[str, Any]]]
"""The health of every resource, by region: kind, name, healthy, state, detail."""


def run(arguments: Sequence[str]) -> int:
    """Shows the health of everything or the credentials, or writes a support bundle: see ``status --help``."""
    options = COMMANDS["status"].parser().parse_args(arguments)
    lab = load_lab()
    if options.credentials:
        from loosehanger.cli.credentials import show_credentials  # slow to import

        return show_credentials(lab, as_json=options.json)
    if options.bundle:
        from loosehanger.cli import bundle  # slow to import

        return bundle.write(lab, caller_path(options.bundle))
    found = _examine(lab)
    if options.json:
        print(json.dumps(_as_json(lab, found), indent=1, ensure_ascii=False))
    else:
        show(lab, found.regions, found.problems)
    return ExitCode.DONE if found.healthy else exit_code(found.regions)


def document(lab: Lab) -> dict[str, Any]:
    """Returns what ``./lab status --json`` prints.

    Raises:
        LabError: a region's health cannot be determined, or a set-up or clean-up is running.
    """
    return _as_json(lab, _examine(lab))


@dataclass(frozen=True)
class LabHealth:
    """The health of everything, with what is wrong."""

    regions: Regions
    problems: Sequence[Problem]
    """Causes first."""
    behind: Sequence[Mapping[str, Any]]
    """Each mirror's lag and retention risk, by topic."""

    @property
    def healthy(self) -> bool:
        """Whether every region has resources, and all of them are healthy."""
        return all(resources and all(one["healthy"] for one in resources) for resources in self.regions.values())


def _examine(lab: Lab) -> LabHealth:
    targets.forget_dead_watch(lab_home())
    silent = _silent(lab)
    regions, measured = _ask(lab, silent)
    behind, rights = _losses(lab, regions, measured, silent)
    problems = _problems(lab, regions, measured, rights)
    degrade(regions, problems)
    regions = {
        name: [{key: value for key, value in one.items() if key not in _OF_PROBLEMS} for one in resources]
        for name, resources in regions.items()
    }
    return LabHealth(regions, problems, behind)


def _as_json(lab: Lab, found: LabHealth) -> dict[str, Any]:
    return {
        "scenario": lab.scenario,
        "platform": lab.platform,
        "stage": lab.stage,
        "unfinished": lab.unfinished,
        "healthy": found.healthy,
        "problems": [as_json(problem, apply_again(lab)) for problem in found.problems],
        "regions": found.regions,
        "flows": found.behind,
        "started": _started(lab),
        "variables": list(required_progress().variables),
    }


def _started(lab: Lab) -> dict[str, dict[str, int]]:
    """When each running program of a region was started, in seconds since the epoch; none on other machines."""
    if port_bases(required_progress()) is None:
        return {}
    return {region: registry.local_starts(lab_home(), region) for region in lab.regions}


def _silent(lab: Lab) -> set[tuple[str, str, str]]:
    """Region, kind and name of the clusters and mirrors of this machine that are down or frozen: they are not asked."""
    bases = port_bases(required_progress())
    found = registry.silent_resources(lab_home(), ROOT, bases) if bases else set()
    return {one for one in found if one[0] not in lab.lost}


def _ask(lab: Lab, silent: Collection[tuple[str, str, str]]) -> tuple[Regions, list[MirrorRisk]]:
    """Asks every region of the inventory, in its order, and measures the mirrors, at the same time where it can.

    Raises:
        LabError: a region's health cannot be determined, or a set-up or clean-up is running.
    """
    bases = port_bases(required_progress())
    if bases is None:
        regions = _complete(lab, _ask_by_ansible(lab))
        return regions, _measure(lab, lambda: _resting(regions), silent)
    health: Future[Regions] = Future()

    def resting() -> Collection[tuple[str, str]]:
        try:
            return _resting(health.result())
        except CancelledError:
            # The health is not known, so that the measurement is not needed.
            return [(mirror.region, mirror.name) for mirror in lab.mirrors]

    with ThreadPoolExecutor(max_workers=1) as beside:
        with only_one(lab_home(), shared=True):
            measured = beside.submit(_measure, lab, resting, silent)
            try:
                regions = _complete(lab, registry.local_status(lab_home(), ROOT, bases))
            except BaseException:
                health.cancel()
                raise
        health.set_result(regions)
        return regions, measured.result()


def _ask_by_ansible(lab: Lab) -> Regions:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "status.json"
        run_playbook("playbooks/status.yaml", ["-i", lab.inventory], quiet=True, paths={"status_file": file})
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return {name: answer["resources"] for name, answer in found.items()}


def _complete(lab: Lab, found: Mapping[str, list[dict[str, Any]]]) -> Regions:
    """The regions of the lab, and those that were lost as intended."""
    regions = {name: resources for name, resources in found.items() if resources or name in lab.regions}
    cut_off = {client for name in lab.lost for client in clients_of(lab.topology, name)}
    for region, resources in regions.items():
        regions[region] = [
            {**one, **_cut_off_as_intended(lab)}
            if (one["kind"], one["state"]) == ("Deployment", "Degraded") and (region, one["name"]) in cut_off
            else one
            for one in resources
        ]
    for name in lab.lost:
        # Of a region that was deleted, only the record knows the resources.
        had = [{"kind": kind, "name": one.name} for kind in _HEALTHY for one in lab.topology.of_kind(kind, name)]
        regions[name] = [{**resource, **_lost_as_intended(lab)} for resource in regions.get(name) or had]
    return regions


def _resting(regions: Mapping[str, list[dict[str, Any]]]) -> set[tuple[str, str]]:
    """Region and name of the mirrors that are paused or stopped as intended."""
    return {
        (region, resource["name"])
        for region, resources in regions.items()
        for resource in resources
        if resource["kind"] == MIRROR and resource["healthy"] and resource["state"] != _RUNNING
    }


def _measure(
    lab: Lab, resting: Callable[[], Collection[tuple[str, str]]], silent: Collection[tuple[str, str, str]]
) -> list[MirrorRisk]:
    """Each mirror's lag and retention risk; none where the clusters cannot be reached from outside Kubernetes."""
    if lab.pod is not None:
        return []
    from loosehanger.cli import retention_risk  # slow to import

    return retention_risk.standings(lab, resting, silent)


def exit_code(regions: Mapping[str, list[dict[str, Any]]]) -> ExitCode:
    """The exit code of a lab that is not healthy: inconclusive where the only problem is an unknown lag."""
    ill = [one for resources in regions.values() for one in resources if not one["healthy"]]
    unknown = all(regions.values()) and all(one["state"] == _UNKNOWN for one in ill)
    return ExitCode.INCONCLUSIVE if unknown else ExitCode.FAILED


def _losses(
    lab: Lab,
    regions: Mapping[str, list[dict[str, Any]]],
    measured: Sequence[MirrorRisk],
    silent: Collection[tuple[str, str, str]],
) -> tuple[list[dict[str, Any]], dict[tuple[str, str], list[str]]]:
    """Marks a mirror as not healthy that may lose records, or whose user may not copy what waits.

    Returns:
        Each mirror's lag and retention risk, and by region and mirror the rights that users of a failing mirror lack.
    """
    behind = []
    rights: dict[tuple[str, str], list[str]] = {}
    claimed = _claimed(lab)
    judged = [standing for standing in measured if standing.mirror.id in claimed]
    asked: list[tuple[Mirror, Collection[str] | None]] = []
    for standing in judged:
        for resource in _of_mirror(regions, standing):
            if (state := standing.state) and (resource["healthy"] or resource["state"] == _UNKNOWN):
                resource |= {"healthy": False, "state": state}
            refused = any(problem["rank"] == Rank.RIGHTS for problem in resource.get("problems", ()))
            if refused or not resource["healthy"]:
                asked.append((standing.mirror, None))
            elif resource["state"] == _RUNNING and standing.waiting:
                asked.append((standing.mirror, standing.waiting.keys()))
    lacks = _lacking(lab, asked, silent)
    for standing in judged:
        mirror = standing.mirror
        for resource in _of_mirror(regions, standing):
            if resource["healthy"] and resource.get("problems") and not lacks.get(mirror.id):
                # A right that was given back: the log still has the refusal.
                resource["problems"] = [one for one in resource["problems"] if one["rank"] != Rank.RIGHTS]
            if lacking := lacks.get(mirror.id, []):
                rights.setdefault((mirror.region, mirror.name), []).extend(lacking)
                if resource["healthy"] and standing.waiting:
                    # Connect reports nothing of a topic that a mirror may not read: it warns in its log, and continues.
                    resource |= {"healthy": False, "state": _DEGRADED}
            resource["detail"] = "; ".join([resource["detail"], *lacking, *standing.warnings])
        behind += [
            {"source": mirror.source, "target": mirror.target, "mirror": mirror.name, **asdict(danger)}
            for danger in standing.topics.values()
        ]
    return behind, rights


def _of_mirror(regions: Mapping[str, list[dict[str, Any]]], standing: MirrorRisk) -> list[dict[str, Any]]:
    """The resource of a mirror."""
    wanted = (MIRROR, standing.mirror.name)
    return [one for one in regions.get(standing.mirror.region, ()) if (one["kind"], one["name"]) == wanted]


def _lacking(
    lab: Lab, mirrors: Sequence[tuple[Mirror, Collection[str] | None]], silent: Collection[tuple[str, str, str]]
) -> dict[str, list[str]]:
    """By mirror's id, the rights that its users lack, of mirrors whose clusters can answer; see ``lacking_rights``."""
    if not mirrors:
        return {}
    from loosehanger.cli.retention_risk import cannot_answer, lacking_rights  # slow to import

    asked = [(one, waiting) for one, waiting in mirrors if not cannot_answer(one, silent)]
    with ThreadPoolExecutor(max_workers=max(len(asked), 1)) as threads:
        found = threads.map(lambda one: lacking_rights(lab, *one), asked)
        return {mirror.id: lacking for (mirror, _), lacking in zip(asked, found, strict=True)}


def _problems(
    lab: Lab,
    regions: Mapping[str, list[dict[str, Any]]],
    measured: Sequence[MirrorRisk],
    rights: Mapping[tuple[str, str], Sequence[str]],
) -> list[Problem]:
    """The problems of the lab, causes first."""
    known: list[Problem] = []
    hints: list[Problem] = []
    for one in (one for resources in regions.values() for one in resources):
        for problem in (Problem(**problem) for problem in one.get("problems", ())):
            (hints if one["healthy"] and problem.rank == Rank.LINK else known).append(problem)
    topics = {region: one["topics"] for region, resources in regions.items() for one in resources if one.get("topics")}
    claimed = _claimed(lab)
    judged = [standing for standing in measured if standing.mirror.id in claimed]
    found = find_problems(lab, regions, known, judged, topics, rights)
    # What may be a cause, such as a slow link, is named where something else is wrong.
    return in_order([*found, *hints]) if found else []


def _claimed(lab: Lab) -> set[str]:
    """The mirrors with a claim in this stage: one without, such as one paused for a switch, may stay behind."""
    return {mirror for claim in lab.claims if claim.window is None for mirror in claim.mirrors}


def _lost_as_intended(lab: Lab) -> dict[str, Any]:
    detail = f"as intended: lost since the stage '{lab.unfinished or lab.stage}'"
    return {"healthy": True, "state": "Lost", "detail": detail, "problems": ()}


def _cut_off_as_intended(lab: Lab) -> dict[str, Any]:
    """Of a program in another region, whose cluster is lost."""
    detail = f"as intended: its cluster is lost since the stage '{lab.unfinished or lab.stage}'"
    return {"healthy": True, "state": "Waiting", "detail": detail, "problems": ()}


def show(lab: Lab, regions: dict[str, list[dict[str, Any]]], problems: Sequence[Problem] = ()) -> None:
    """Shows what is wrong, the cause first, and the health of every resource, by region, as text."""
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{lab.scenario} on {lab.platform}{f', stage: {lab.stage}' if lab.stage else ''}")
    if variables := required_progress().variables:
        from loosehanger.cli.remembered import shown  # slow to import

        console.print(f"with {escape(shown(variables))}")
    if lab.unfinished:
        again = apply_again(lab)
        console.print(f"[bold red]the stage '{lab.unfinished}' was begun and not finished[/]; run {again} again")
    for number, problem in enumerate(problems, start=1):
        room = max(console.width - 4, 40) if console.is_terminal else _WIDE
        first, *rest = as_lines(problem, apply_again(lab), room)
        console.print(f"\n[bold red]{number:>2}.[/] [bold]{escape(first)}[/]")
        for line in rest:
            console.print(f"    {escape(line)}")
    for region, resources in regions.items():
        console.print(f"\n[bold]{region}[/]")
        for resource in resources:
            colour = "green" if resource["healthy"] else "bold red"
            name = f"{resource['kind']}/{resource['name']}"
            start = f"  [{colour}]{resource['state']:<9}[/] "
            if not console.is_terminal or _STATUS_WIDTH + len(resource["detail"]) <= console.width:
                console.print(f"{start}{name:<38} {escape(resource['detail'])}")
                continue
            # In a narrow terminal, the detail gets lines of its own.
            console.print(f"{start}{name}")
            for line in textwrap.wrap(resource["detail"], max(console.width - len(_INDENT), 20)):
                console.print(f"{_INDENT}{escape(line)}")
        if not resources:
            console.print("  [bold red]Missing[/]   the region has no resources; run the set-up again")
    for injection in found_faults(lab_home()):
        heal = f"./lab fault heal {injection.fault}"
        console.print(f"\n{injection.fault} was injected and found; {heal} mends it")
    # A lost region is down as intended.
    there = [one for region, resources in regions.items() if region not in lab.lost for one in resources]
    if any(not one["healthy"] for one in there) and {one["state"] for one in there} <= {"Down", "Stopped"}:
        console.print(f"\n[bold red]Nothing of the lab is running[/]; start it with {apply_again(lab)}")
