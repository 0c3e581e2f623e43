"""Shell completion: the candidates for the next word, and the scripts that ask for them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from loosehanger.cli.command_line import ANSIBLE, COMMANDS, KAFKA_TOOLS, SHELLS, consume_parser
from loosehanger.errors import LabError
from loosehanger.experiments.catalogue import EXPERIMENTS
from loosehanger.faults.names import fault_titles
from loosehanger.lab.progress import read_progress, recorded_consoles, recorded_names, recorded_regions
from loosehanger.lab.scenario_index import exercise_names, read_outline, scenario_names
from loosehanger.paths import ROOT

Candidate = tuple[str, str]
"""A word and its description, which may be empty."""


def script(shell: str) -> str:
    """The script with which a shell completes the command of this checkout.

    Args:
        shell: one of ``SHELLS``.
    """
    text = Path(__file__).with_name(f"completion.{shell}").read_text(encoding="utf-8")
    return text.replace("LAB_COMMAND", shlex.quote(str(ROOT / "lab")))


def candidates(words: Sequence[str]) -> list[Candidate]:
    """The candidates for the last word.

    Args:
        words: the words after ``lab``; the last one is incomplete, and may be empty.
    """
    *before, typed = words or [""]
    try:
        found = list(_following(before, typed))
    except LabError:
        return []  # A completion must not print an error.
    return [(word, about) for word, about in found if word.startswith(typed)]


def _following(before: Sequence[str], typed: str) -> Iterable[Candidate]:
    if not before:
        return [(command.name, command.summary) for command in COMMANDS.values()]
    name, *given = before
    if name == "help":
        return _positional(name, given)
    if name not in COMMANDS:
        return []
    if COMMANDS[name].further == ANSIBLE and before[-1] in ("-i", "--inventory"):
        return [(f"inventories/{path.parent.name}", "") for path in sorted(ROOT.glob("inventories/*/regions.yaml"))]
    if before[-1] in ("--topic", "--user"):
        return [(found, "") for found in _recorded(before[-1].removeprefix("--"), given)]
    if typed.startswith("-"):
        parser = consume_parser() if name == "consume" else COMMANDS[name].parser()
        return [(option, "") for option in re.findall(r"^  (?:-\w, )?(--[\w-]+)", parser.format_help(), re.MULTILINE)]
    return _positional(name, given)


def _positional(name: str, given: Sequence[str]) -> Iterable[Candidate]:
    match name, given:
        case ("setup", []) | ("scenarios", [*_, "--diagram"]):
            return [(outline.name, outline.teaches) for outline in map(read_outline, scenario_names())]
        case "stage", []:
            progress = read_progress()
            return [(stage, "") for stage in read_outline(progress.scenario).playbooks] if progress else []
        case "logs", []:
            names = [
                f"{region}/{program}" for region in recorded_regions() for program in recorded_names("log", region)
            ]
            return [(one, "") for one in (*recorded_regions(), *names)]
        case ("consume" | "produce" | "client" | "kafka", []) | ("topic", ["set" | "unset"]) | ("link", [] | [_]):
            return [(region, "") for region in recorded_regions() if region not in given]
        case "open", []:
            return [(console, url) for console, url in recorded_consoles().items()]
        case "topic", ["show"] | ["set" | "unset", _]:
            return [(topic, "") for topic in _recorded("topic", given)]
        case "kafka", [_]:
            return [(tool, about.about) for tool, about in KAFKA_TOOLS.items()]
        case "experiment", []:
            return [(experiment.name, experiment.shows) for experiment in EXPERIMENTS.values()]
        case "experiment", [*_, "--source" | "--target"]:
            return [(region, "") for region in recorded_regions() if region not in given]
        case "fault", []:
            return [(command, "") for command in ("list", "inject", "guess", "heal", "status")]
        case "fault", [*_, "--source" | "--target"]:
            return [(region, "") for region in recorded_regions() if region not in given]
        case ("fault", [*_, "--mirror"]) | ("mirror-properties", _):
            return [
                (f"{region}/{name}", "") for region in recorded_regions() for name in recorded_names("mirror", region)
            ]
        case "fault", ["inject" | "guess" | "heal"]:
            return list(fault_titles().items())
        case "learn", []:
            return [(command, "") for command in ("list", "start", "check", "hint", "solve", "reset", "next")]
        case "learn", ["start" | "check" | "hint" | "solve" | "reset"]:
            return [(name, "") for name in exercise_names()]
        case "topic", []:
            return [("show", ""), ("set", ""), ("unset", "")]
        case "completion", []:
            return [(shell, "") for shell in SHELLS]
        case "help", []:
            return [(command.name, command.summary) for command in COMMANDS.values()]
    return []


def _recorded(what: str, given: Sequence[str]) -> list[str]:
    """The names of a kind in the regions that the line names, or in all."""
    regions = [region for region in recorded_regions() if region in given] or recorded_regions()
    return sorted({found for region in regions for found in recorded_names(what, region)})
