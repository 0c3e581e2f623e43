"""``./lab status``: the health of everything, asked of all regions at once.

Where the lab was set up with the kit's own inventory of this machine, this process asks the regions. Ansible reads
every other inventory, and takes two seconds to start. Both ways call the same function of the platform.
"""

from __future__ import annotations

import json
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from loosehanger.cli.command_line import COMMANDS
from loosehanger.cli.plain_inventory import port_bases
from loosehanger.cli.playbook import only_one, run_playbook
from loosehanger.errors import ExitCode
from loosehanger.lab import targets
from loosehanger.lab.progress import required_progress
from loosehanger.lab.record import Lab, load_lab
from loosehanger.lab.scenario import MIRROR
from loosehanger.lab.scenario_index import SETUP
from loosehanger.paths import ROOT, caller_path, lab_home
from loosehanger.platforms import registry

_STATUS_WIDTH = 51
"""Width of a line of the status without its detail."""
_INDENT = " " * 12
_HEALTHY = ("Kafka", MIRROR, "Deployment")
"""The kinds whose health each platform reports."""
_RUNNING = "Running"
_UNKNOWN = "Unknown"
"""The state of a running mirror whose lag cannot be measured."""
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
    targets.forget_dead_watch(lab_home())
    regions = {name: found for name, found in _ask(lab).items() if found or name in lab.regions}
    for name in lab.lost:
        # Of a region that was deleted, only the record knows the resources.
        had = [{"kind": kind, "name": found.name} for kind in _HEALTHY for found in lab.topology.of_kind(kind, name)]
        regions[name] = [{**resource, **_lost_as_intended(lab)} for resource in regions.get(name) or had]
    behind = _losses(lab, regions)
    healthy = all(resources and all(resource["healthy"] for resource in resources) for resources in regions.values())
    if options.json:
        document = {
            "scenario": lab.scenario,
            "platform": lab.platform,
            "stage": lab.stage,
            "unfinished": lab.unfinished,
            "healthy": healthy,
            "regions": regions,
            "flows": behind,
            "variables": list(required_progress().variables),
        }
        print(json.dumps(document, indent=1, ensure_ascii=False))
    else:
        show(lab, regions)
    return ExitCode.DONE if healthy else exit_code(regions)


def _ask(lab: Lab) -> Regions:
    """Asks every region of the inventory, in its order.

    Raises:
        LabError: a region's health cannot be determined, or a set-up or clean-up is running.
    """
    bases = port_bases(required_progress())
    if bases is not None:
        with only_one(lab_home(), shared=True):
            return registry.local_status(lab_home(), ROOT, bases)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "status.json"
        run_playbook("playbooks/status.yaml", ["-i", lab.inventory], quiet=True, paths={"status_file": file})
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return {name: answer["resources"] for name, answer in found.items()}


def exit_code(regions: Mapping[str, list[dict[str, Any]]]) -> ExitCode:
    """The exit code of a lab that is not healthy: inconclusive where the only problem is an unknown lag."""
    ill = [one for resources in regions.values() for one in resources if not one["healthy"]]
    unknown = all(regions.values()) and all(one["state"] == _UNKNOWN for one in ill)
    return ExitCode.INCONCLUSIVE if unknown else ExitCode.FAILED


def _losses(lab: Lab, regions: Mapping[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Each mirror's lag and retention risk; marks a mirror that may lose records as not healthy."""
    if lab.pod is not None:
        return []  # The clusters cannot be reached from outside Kubernetes.
    from loosehanger.cli import retention_risk  # slow to import

    behind = []
    # A mirror without a claim in this stage, such as one that was paused for a switch, may stay behind.
    claimed = {mirror for claim in lab.claims if claim.window is None for mirror in claim.mirrors}
    resting = {
        (region, resource["name"])
        for region, resources in regions.items()
        for resource in resources
        if resource["kind"] == MIRROR and resource["healthy"] and resource["state"] != _RUNNING
    }
    for standing in retention_risk.standings(lab, resting):
        mirror = standing.mirror
        if mirror.id not in claimed:
            continue
        for resource in regions.get(mirror.region, ()):
            if (resource["kind"], resource["name"]) != (MIRROR, mirror.name):
                continue
            if (state := standing.state) and (resource["healthy"] or resource["state"] == _UNKNOWN):
                resource |= {"healthy": False, "state": state}
            lacking = [] if resource["healthy"] else retention_risk.lacking_rights(lab, mirror)
            resource["detail"] = "; ".join([resource["detail"], *lacking, *standing.warnings])
        behind += [
            {"source": mirror.source, "target": mirror.target, "mirror": mirror.name, **asdict(danger)}
            for danger in standing.topics.values()
        ]
    return behind


def _lost_as_intended(lab: Lab) -> dict[str, Any]:
    detail = f"as intended: lost since the stage '{lab.unfinished or lab.stage}'"
    return {"healthy": True, "state": "Lost", "detail": detail}


def show(lab: Lab, regions: dict[str, list[dict[str, Any]]]) -> None:
    """Shows the health of every resource, by region, as text."""
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{lab.scenario} on {lab.platform}{f', stage: {lab.stage}' if lab.stage else ''}")
    if variables := required_progress().variables:
        from loosehanger.cli.remembered import shown  # slow to import

        console.print(f"with {escape(shown(variables))}")
    if lab.unfinished:
        again = f"./lab setup {lab.scenario}" if lab.unfinished == SETUP else f"./lab stage {lab.unfinished}"
        console.print(f"[bold red]the stage '{lab.unfinished}' was begun and not finished[/]; run {again} again")
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
    # A lost region is down as intended.
    there = [one for region, resources in regions.items() if region not in lab.lost for one in resources]
    if any(not one["healthy"] for one in there) and {one["state"] for one in there} <= {"Down", "Stopped"}:
        stage = lab.unfinished or lab.stage
        again = f"./lab setup {lab.scenario}" if stage in ("", SETUP) else f"./lab stage {stage}"
        console.print(f"\n[bold red]Nothing of the lab is running[/]; start it with {again}")
