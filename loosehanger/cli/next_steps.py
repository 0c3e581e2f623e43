"""The next steps after a stage: from ``scenario.yaml``, and from the lab itself."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from loosehanger.cli.command_line import COMMANDS
from loosehanger.lab.programs import consumers, control_room
from loosehanger.lab.record import Lab
from loosehanger.lab.scenario import MIRROR, Scenario
from loosehanger.lab.scenario_index import SETUP
from loosehanger.paths import ROOT


def next_steps(lab: Lab, scenario: Scenario, stage: str) -> str:
    """The text that is printed when a stage was reached."""
    lines = [_reached(scenario, stage), ""]
    if advice := scenario.stage(stage).next.strip():
        lines += [textwrap.indent(advice, "  "), ""]
    steps = list(_steps(lab, scenario, stage))
    width = max(len(command) for command, _ in steps) + 3
    lines += [f"  {command:<{width}}{text}" for command, text in steps]
    if file := _manifest(lab):
        lines += ["", f"Then open {file}, change a value, and run {_again(scenario, stage)} once more."]
    return "\n".join(lines)


def _reached(scenario: Scenario, stage: str) -> str:
    if stage == SETUP:
        return f"The lab is ready: {scenario.name}. What next?"
    return f"{scenario.name}: the stage '{stage}' is reached. What next?"


def _again(scenario: Scenario, stage: str) -> str:
    return f"./lab setup {scenario.name}" if stage == SETUP else f"./lab stage {stage}"


def _steps(lab: Lab, scenario: Scenario, stage: str) -> Iterator[tuple[str, str]]:
    if url := _overview_console(lab):
        yield "your browser", f"shows every region at {url}; ./lab status --credentials shows how to sign in"
    elif any(region.consoles for region in lab.regions.values()):
        yield "your browser", "shows each region; ./lab status --credentials shows the addresses, and how to sign in"
    if regions := dict.fromkeys(consumer.region for consumer in consumers(lab.topology)):
        yield "./lab consume REGION", f"{COMMANDS['consume'].summary}: {', '.join(regions)}"
    for name in ("watch", "topic", "status", "prove"):
        yield f"./lab {name}", COMMANDS[name].summary
    for following, description in scenario.stages.items():
        if stage in description.after:
            yield f"./lab stage {following}", "the next stage"
    yield "./lab cleanup", COMMANDS["cleanup"].summary


def _overview_console(lab: Lab) -> str | None:
    """The address of the console that shows every region, if there is one."""
    region, name = control_room(lab.topology) or ("", "")
    consoles = lab.regions[region].consoles if region in lab.regions else ()
    return next((console.url for console in consoles if console.name == name), None)


def _manifest(lab: Lab) -> str | None:
    """A mirror's manifest to open next; None where the checkout has none."""
    files = (document.source for document in lab.topology.of_kind(MIRROR))
    return next((file for file in files if (ROOT / file).is_file()), None)
