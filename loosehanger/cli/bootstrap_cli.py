"""Commands of ``./lab`` that need no installation: ``python -P -m loosehanger.cli.bootstrap_cli COMMAND …``.

Lists, help, completion and most mistakes need only Python's standard library. ``./lab`` first runs this module with
any Python that it finds, and makes the installation when the exit code is ``NOT_HERE``.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import stat
import sys
import textwrap
from collections.abc import Sequence

from loosehanger.cli import completion, doctor, exported
from loosehanger.cli.cleaning import cleanup, is_anything_to_delete
from loosehanger.cli.columns import beside
from loosehanger.cli.command_line import COMMANDS, OPTION, Command, consume_parser, overview, wants_help
from loosehanger.cli.port_base import check_port_base
from loosehanger.errors import ExitCode, WrongUseError, run_command
from loosehanger.experiments.catalogue import EXPERIMENTS
from loosehanger.lab.progress import Progress, read_progress, required_progress
from loosehanger.lab.scenario_index import read_outline, scenario_file, scenario_names
from loosehanger.paths import ROOT, caller_path, lab_home
from loosehanger.suggestions import did_you_mean

NOT_HERE = 100
"""The exit code for a command that needs the installation."""


def answer(arguments: Sequence[str], *, installed: bool) -> int | None:
    """Runs a command as far as possible without the installation.

    Args:
        arguments: the command and its arguments.
        installed: whether the installation exists.

    Returns:
        The exit code, or None if the command needs the installation.

    Raises:
        LabError: the command cannot run, with or without the installation.
    """
    if not arguments or wants_help(arguments[:1]):
        print(overview())
        print(f"\n{_where_we_are()}")
        return ExitCode.DONE
    name, *rest = arguments
    if name in ("--version", "version"):
        print(_version())
        return ExitCode.DONE
    if name == "help":
        return answer([*rest, "--help"], installed=installed)
    if name not in COMMANDS:
        hint = did_you_mean(name, COMMANDS) or "; ./lab lists them"
        raise WrongUseError(f"there is no command '{name}'{hint}")
    # The commands of 'topic', 'fault' and 'learn', and Kafka's own tools, have help of their own.
    if wants_help(rest[:1] if name == "kafka" else rest) and name not in ("topic", "fault", "learn"):
        _help(COMMANDS[name])
        return ExitCode.DONE
    code = _run(COMMANDS[name], rest, installed=installed)
    if code is not None:
        return code
    # A proof between two clusters of the user's own needs no lab; the list of faults only marks what a lab can have.
    needs_none = any(word.startswith("--source-config") for word in rest) or (name, *rest[:1]) == ("fault", "list")
    if COMMANDS[name].needs_lab and not needs_none:
        check_port_base(required_progress())
    elif name == "setup":
        check_port_base(read_progress())
    return None


def _help(command: Command) -> None:
    if command.further == OPTION and command.name != "kafka":
        consume_parser().print_help()
    else:
        command.parser().print_help()


def _run(command: Command, rest: Sequence[str], *, installed: bool) -> int | None:
    """Runs a command, or checks its arguments; None if the rest needs the installation."""
    match command.name:
        case "scenarios":
            options = command.parser().parse_args(rest)
            if options.diagram is not None:
                scenario_file(options.diagram)
                return None
            return _scenarios(as_json=options.json)
        case "completion":
            return _completion(rest)
        case "doctor":
            command.parse(rest)
            progress = read_progress()
            if progress is None or not installed:
                code = doctor.examine(progress)
                print(f"\n{_where_we_are()}")
                return code
        case "prefetch":
            source = command.parse(rest).source
            if source is not None and not installed:
                exported.unpack(caller_path(source), lab_home())
        case "cleanup":
            _, passed_on = command.parser().parse_known_args(rest)
            return None if is_anything_to_delete(passed_on) else cleanup(rest)
        case "setup":
            scenario_file(command.take_name(rest, f"a scenario: {', '.join(scenario_names())}")[0])
        case "experiment":
            options = command.parse(rest)
            if options.name is None:
                return _experiments(as_json=options.json)
        case _ if not command.further:
            command.parse(rest)
    return None


def _version() -> str:
    """The versions of the kit and of Kafka, from the kit's own files."""
    own = re.search(r'^version = "([^"]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    jars = (ROOT / "jars.lock").read_text(encoding="utf-8")
    kafka = re.search(r"org\.apache\.kafka:kafka-clients:([\d.]+)", jars)
    return f"loosehanger-lab {own[1] if own else 'unknown'} (Apache Kafka {kafka[1] if kafka else 'unknown'})"


def _where_we_are() -> str:
    try:
        progress = read_progress()
    except WrongUseError as error:
        return str(error)
    if progress is None:
        return "Nothing is set up. Begin with ./lab scenarios, then ./lab setup NAME."
    return f"{progress.scenario} is set up{_at(progress)}."


def _at(progress: Progress) -> str:
    if progress.unfinished:
        return f"; its stage '{progress.unfinished}' was begun and not finished"
    return f" (stage: {progress.stage})" if progress.stage else ""


def _scenarios(*, as_json: bool) -> int:
    progress = read_progress()
    outlines = [read_outline(name) for name in scenario_names()]
    if as_json:
        found = []
        for outline in outlines:
            current = progress if progress and progress.scenario == outline.name else None
            found.append(
                {
                    "name": outline.name,
                    "title": outline.title,
                    "teaches": outline.teaches,
                    "set_up": current is not None,
                    "stage": current.stage if current else "",
                    "unfinished": current.unfinished if current else "",
                }
            )
        print(json.dumps({"scenarios": found}, indent=1, ensure_ascii=False))
        return ExitCode.DONE
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    for outline in outlines:
        print(outline.name + (f"   set up{_at(progress)}" if progress and progress.scenario == outline.name else ""))
        about = f"{outline.title}. {outline.teaches}" if outline.title else "its scenario.yaml cannot be read"
        print(textwrap.indent(textwrap.fill(about, width - 4, break_on_hyphens=False), "    "), end="\n\n")
    print("./lab setup NAME sets one up; playbooks/NAME/README.md is its lab, step by step.")
    return ExitCode.DONE


def _experiments(*, as_json: bool) -> int:
    if as_json:
        found = [{"name": experiment.name, "shows": experiment.shows} for experiment in EXPERIMENTS.values()]
        print(json.dumps({"experiments": found}, indent=1))
        return ExitCode.DONE
    for experiment in EXPERIMENTS.values():
        print(beside(f"{experiment.name:<13}", experiment.shows))
    print()
    print(beside("", "./lab experiment NAME runs one on the lab that is set up; --quick shows it within 4 minutes."))
    return ExitCode.DONE


def _completion(arguments: Sequence[str]) -> int:
    # The completion scripts call this for the next word.
    if arguments[:1] == ["next"]:
        for word, about in completion.candidates(arguments[1:]):
            print(word, about, sep="\t")
        return ExitCode.DONE
    print(completion.script(COMMANDS["completion"].parser().parse_args(arguments).shell), end="")
    return ExitCode.DONE


def _check_home() -> None:
    """Refuses a home that others may write to: the lab runs the programs in it.

    Raises:
        WrongUseError: others may write to it.
    """
    home = lab_home()
    with contextlib.suppress(OSError):  # A missing home is created later, for its owner only.
        if home.stat().st_mode & stat.S_IWOTH:
            raise WrongUseError(f"{home}: others on this machine may change what the lab runs; run chmod o-w {home}")


def main() -> int:
    """Runs the command, or returns ``NOT_HERE``."""
    _check_home()
    done = answer(sys.argv[1:], installed=(lab_home() / "venv" / "bin" / "python").exists())
    return NOT_HERE if done is None else done


if __name__ == "__main__":
    sys.exit(run_command(main))
