"""Shows what Kafka Connect's REST interface says of each mirror, and asks it for a change.

Run it from the root of the kit while the scenario is set up; README.md says how.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from loosehanger.errors import ExitCode, UnreachableError, WrongUseError, run_command
from loosehanger.kafka.connect import ConnectClient, parts
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.record import load_lab


def main() -> int:
    """Shows states, shows a setting, or acts.

    Raises:
        WrongUseError: there is no mirror in that region, or no such connector.
        LabError: Connect does not answer, or refuses.
    """
    parser = argparse.ArgumentParser(prog="connect", description="Shows what Connect says, and asks it for a change.")
    parser.add_argument("region", nargs="?", metavar="REGION", help="the mirror's region (all)")
    parser.add_argument("connector", nargs="?", choices=("source", "checkpoint"))
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="pause, resume or restart; or config, and the name of a setting"
    )
    options = parser.parse_args()
    mirrors = load_lab().mirrors
    if options.region is None:
        for mirror in mirrors:
            for line in _states(mirror):
                print(line)
        return ExitCode.DONE
    found = [mirror for mirror in mirrors if mirror.region == options.region]
    if not found:
        there = ", ".join(mirror.region for mirror in mirrors)
        raise WrongUseError(f"no mirror runs in '{options.region}'; there are mirrors in {there}")
    if options.connector is None:
        for line in _states(found[0]):
            print(line)
        return ExitCode.DONE
    name = found[0].connector if options.connector == "source" else found[0].checkpoint_connector
    match options.words:
        case [("pause" | "resume" | "restart") as action]:
            ConnectClient.of(found[0].connect).act(name, action)
            print(f"{name}: Connect accepts to {action} it")
        case ["config", setting]:
            settings = ConnectClient.of(found[0].connect).connectors()[name]["info"]["config"]
            print(f"{setting}={settings.get(setting, '(not set)')}")
        case _:
            raise WrongUseError("name pause, resume or restart, or config and the name of a setting")
    return ExitCode.DONE


def _states(mirror: Mirror) -> Iterator[str]:
    """Yields a line for each connector of a mirror's workers."""
    try:
        statuses = ConnectClient.of(mirror.connect).statuses()
    except UnreachableError as error:
        yield f"{mirror.region}: {error}"
        return
    for name, status in statuses.items():
        connector, *tasks = parts(name, status)
        shown = ", ".join(f"task {task.task} {task.state}" for task in tasks) or "no task"
        yield f"{mirror.region}: {name}: {connector.state}, {shown}"


if __name__ == "__main__":
    raise SystemExit(run_command(main))
