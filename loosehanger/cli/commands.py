"""The commands of ``./lab`` that need the installation."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

from loosehanger.arguments import Parser
from loosehanger.cli import class_archives, exercise, jobs, links
from loosehanger.cli.cleaning import cleanup
from loosehanger.cli.command_line import COMMANDS, KAFKA_TOOLS, wants_help
from loosehanger.cli.credentials import connection_of, show_credentials
from loosehanger.cli.durations import Durations
from loosehanger.cli.inventories import check_same_inventory, given_inventories, with_inventory
from loosehanger.cli.next_steps import next_steps
from loosehanger.cli.playbook import run_playbook
from loosehanger.cli.remembered import remembered_after, shown, with_remembered
from loosehanger.cli.variables import checked_variables
from loosehanger.errors import ExitCode, LabError, NothingSetUpError, WrongUseError
from loosehanger.lab import console_password, targets
from loosehanger.lab.diagram import mermaid
from loosehanger.lab.kit_users import ADMINISTRATOR
from loosehanger.lab.programs import consumers
from loosehanger.lab.progress import LOCAL, Progress, required_progress
from loosehanger.lab.record import Lab, Region, WebConsole, check_stage, load_lab, read_progress
from loosehanger.lab.recovery import Recovery
from loosehanger.lab.scenario import Scenario, read_scenario
from loosehanger.lab.scenario_index import SETUP, scenario_names
from loosehanger.lab.snapshots import read_snapshots
from loosehanger.paths import ROOT, caller_path, lab_home
from loosehanger.platforms import registry
from loosehanger.times import span
from loosehanger.waiting import wait_for

_NOW = "latest"
"""Where ``./lab consume`` begins by default, as the consumer's log does."""
_REMEDY = "./lab logs REGION/NAME shows the cause; running a setup or stage again restores the state that it describes."
_DRY_RUN, _FORCE = "--dry-run", "--force"
_RECOVERY_SECONDS = 20
"""How long to wait for the last times of a switch before they are shown."""
_CHANGES_NOTHING = {"--check", "-C", "--syntax-check", "--list-tasks", "--list-hosts"}
"""With these, Ansible changes nothing."""


def scenarios(arguments: Sequence[str]) -> int:
    """Prints a scenario's flowchart: ``scenarios --diagram NAME``; the list itself needs no installation."""
    print(mermaid(read_scenario(COMMANDS["scenarios"].parse(arguments).diagram)), end="")
    return ExitCode.DONE


def setup(arguments: Sequence[str]) -> int:
    """Sets a scenario up: ``setup NAME [ANSIBLE-ARGUMENT …]``."""
    name, rest = COMMANDS["setup"].take_name(arguments, f"a scenario: {', '.join(scenario_names())}")
    return _run_stage(read_scenario(name), SETUP, rest, read_progress())


def stage(arguments: Sequence[str]) -> int:
    """Takes the scenario to a stage, or lists its stages: ``stage [NAME [ANSIBLE-ARGUMENT …]]``."""
    progress = required_progress()
    progress.check_version()
    scenario = read_scenario(progress.scenario)
    if not arguments:
        _show_stages(scenario, progress)
        return ExitCode.DONE
    name, rest = COMMANDS["stage"].take_name(arguments, f"a stage of {scenario.name}: {', '.join(scenario.stages)}")
    return _run_stage(scenario, name, rest, progress)


def _run_stage(scenario: Scenario, name: str, arguments: Sequence[str], progress: Progress | None) -> int:
    password = os.environ.pop(console_password.ENVIRONMENT, "")  # What the lab starts must not inherit it.
    check_stage(scenario, name, progress)
    if _DRY_RUN in arguments:
        return _show_conditions(scenario, name)
    if _FORCE in arguments:
        arguments = [*(word for word in arguments if word != _FORCE), "-e", "carry_out_force=true"]
    check_same_inventory(arguments, progress)
    playbook = f"playbooks/{scenario.name}/{name}.yaml"
    given = _checked(with_inventory(arguments, progress), playbook, progress)
    found = with_remembered(given, progress)
    variables = remembered_after(progress, given)
    if variables:
        print(f"With {shown(variables)}.", file=sys.stderr, flush=True)
    _keep_password(password, arguments)
    known = _web_consoles(load_lab()) if progress else set()
    # A stage that was reached before has less to do.
    estimated = not _CHANGES_NOTHING & set(arguments) and (progress is None or name not in (progress.stage, SETUP))
    durations, what = Durations(lab_home()), " ".join([scenario.name, name, *given_inventories(found)])
    if estimated and (last := durations.last(what)):
        print(f"The last time this took {span(last)}.", file=sys.stderr, flush=True)
    began = time.monotonic()
    changes = not _CHANGES_NOTHING & set(arguments)
    with _kept_for_exercises(scenario, changes=changes), _scraped(scenario.stage(name).lost, progress, changes=changes):
        run_playbook(playbook, found, variables=variables)
    if estimated:
        durations.keep(what, time.monotonic() - began)
    if not _CHANGES_NOTHING & set(arguments):
        lab = load_lab()
        if lab.platform == LOCAL:
            class_archives.start()
            _prepare_monitoring(lab)
        if scenario.stage(name).snapshot:
            _show_recovery(lab, name)
        _show_rescues(name)
        print(f"\n{next_steps(lab, scenario, name)}")
        if _web_consoles(lab) - known:
            print()
            show_credentials(lab)
            print("\n./lab status --credentials shows this again.")
    return ExitCode.DONE


def _prepare_monitoring(lab: Lab) -> None:
    """Writes a configuration for Prometheus; a stage may have made the region of the control room anew."""
    from loosehanger.cli import monitoring as monitoring_command  # slow to import

    if monitoring_command.scraped(lab):
        monitoring_command.prepare(lab, _password)


def _password(region: Region, user: str) -> str:
    return connection_of(region, user).password or ""


@contextlib.contextmanager
def _scraped(lost: Iterable[str], progress: Progress | None, *, changes: bool) -> Iterator[None]:
    """Has the lab's Prometheus scrape what is there, and not the regions that a stage kills."""
    if changes and progress:
        targets.follow(lab_home(), load_lab(), {*lost})
    try:
        yield
    finally:
        # A record that cannot be read is reported by the commands that need it.
        with contextlib.suppress(LabError):
            if changes and read_progress():
                targets.follow(lab_home(), load_lab())


@contextlib.contextmanager
def _kept_for_exercises(scenario: Scenario, *, changes: bool) -> Iterator[None]:
    """Keeps the scenario's files as they are now, once something is set up."""
    files = exercise.scenario_files(scenario.name) if changes and read_progress() is None else {}
    try:
        yield
    finally:
        if files and read_progress():
            exercise.keep(files, lab_home())


def _keep_password(password: str, arguments: Sequence[str]) -> None:
    """Keeps the password for the consoles, if one was given.

    Raises:
        WrongUseError: it cannot be used.
    """
    if not password:
        return
    console_password.check_password(password)
    if not _CHANGES_NOTHING & set(arguments):
        console_password.keep_password(lab_home(), password)


def _checked(arguments: list[str], playbook: str, progress: Progress | None) -> list[str]:
    return checked_variables(arguments, playbook, given_inventories(arguments), progress)


def _show_conditions(scenario: Scenario, name: str) -> int:
    """Lists the conditions of a stage, and whether they hold."""
    from loosehanger.stages import steps  # slow to import

    after = scenario.stage(name).after
    found = steps.conditions(load_lab(), lab_home(), registry.run_step_in_pod, scenario, name) if after else []
    for condition in found:
        print(f"{'holds' if condition.holds else 'FAILS'}   {condition.what}: {condition.value} ({condition.wanted})")
    if not found:
        print(f"The stage '{name}' has no conditions besides its predecessors; it may run now.")
    return ExitCode.DONE if all(condition.holds for condition in found) else ExitCode.FAILED


def _show_recovery(lab: Lab, stage: str) -> None:
    """Shows how long a switch took, as soon as that is known."""
    from loosehanger.stages import steps  # slow to import

    found: Recovery | None = None

    def unknown() -> str | None:
        nonlocal found
        found = steps.legs(lab, lab_home(), registry.run_step_in_pod, stage)
        return None if found is None or found.complete else "the switch is not complete"

    with contextlib.suppress(LabError):  # A time that is still unknown is shown as "not yet".
        wait_for(unknown, _RECOVERY_SECONDS, stage)
    if found is None:
        return
    print(f"\nSeconds from {found.begins}:")
    width = max(len(leg.name) for leg in found.legs) + 2
    for leg in found.legs:
        print(f"  {leg.name:<{width}}{'not yet' if leg.seconds is None else f'{leg.seconds:6.1f}'}")


def _show_rescues(stage: str) -> None:
    """Shows the records that were rescued."""
    for rescue in read_snapshots(lab_home(), stage).rescues:
        file = os.path.relpath(rescue.file, caller_path("."))
        print(f"\n{rescue.records:,} records of {rescue.source} were never mirrored: {file}")
        if rescue.written:
            print(f"{rescue.written:,} of them are written to {rescue.target}, each with the header lh-rescued.")
        else:
            print(f"They are not written to {rescue.target}: -e carry_out_write_rescued=true writes them.")


def _show_stages(scenario: Scenario, progress: Progress) -> None:
    print(f"{scenario.name}: {scenario.title}\n")
    width = max(map(len, scenario.stages)) + 3
    for name in scenario.stages:
        print(f"  {name:<{width}}{_may_run(scenario, name, progress)}")
    print("\n./lab stage NAME takes the lab there.")


def _may_run(scenario: Scenario, name: str, progress: Progress) -> str:
    try:
        check_stage(scenario, name, progress)
    except WrongUseError:
        after = scenario.stage(name).after
        return f"after {' or '.join(after)}" if after else "comes first"
    if name == progress.unfinished:
        return "was begun and not finished: run it again"
    return "reached; may run again" if name == progress.stage else "may run now"


def topic(arguments: Sequence[str]) -> int:
    """Shows and changes topics: see ``topic --help``."""
    from loosehanger.cli import topics  # slow to import

    options, lab = topics.parse(arguments), load_lab()
    if lab.pod is None:
        return topics.run(lab, options)
    if options.changes and not options.only_wait:
        declared = registry.change_declared_topic(lab.region(options.region), options.topic, options.changes)
        arguments = [*arguments, *(["--only-wait"] if declared else [])]
    return registry.run_in_pod(lab, lab.pod, "topic", arguments)


def link(arguments: Sequence[str]) -> int:
    """Shows and changes the links between regions: see ``link --help``."""
    return links.run(load_lab(), COMMANDS["link"].parse(arguments))


def diff(arguments: Sequence[str]) -> int:
    """Compares the manifests with what was applied of them: see ``diff --help``."""
    from loosehanger.cli import diff as diff_command  # slow to import

    return diff_command.run(load_lab(), COMMANDS["diff"].parse(arguments))


def show_status(arguments: Sequence[str]) -> int:
    """Shows the health of everything: see ``status --help``."""
    from loosehanger.cli import status  # slow to import

    return status.run(arguments)


def doctor(arguments: Sequence[str]) -> int:
    """Checks the machine and the lab that is set up: see ``doctor --help``."""
    from loosehanger.cli import status  # slow to import
    from loosehanger.cli.doctor import examine

    COMMANDS["doctor"].parse(arguments)
    progress = required_progress()
    code = examine(progress)
    print()
    if progress.unfinished:
        status.show(load_lab(), {})
        return ExitCode.FAILED
    health = status.run(())
    print(f"\n{'./lab prove checks that every record arrived.' if health == ExitCode.DONE else _REMEDY}")
    return code or health


def prefetch(arguments: Sequence[str]) -> int:
    """Checks the machine, once everything is installed: see ``prefetch --help``."""
    from loosehanger.cli.doctor import examine

    COMMANDS["prefetch"].parse(arguments)
    code = examine(read_progress())
    print(f"\nEverything is installed in {lab_home()}. A set-up needs no network.")
    return code


def export_install(arguments: Sequence[str]) -> int:
    """Writes the installation into a file: see ``export-install --help``."""
    from loosehanger.cli import export_install as exporting  # slow to import

    return exporting.run(COMMANDS["export-install"].parse(arguments))


def monitoring(arguments: Sequence[str]) -> int:
    """Writes a configuration of Prometheus: see ``monitoring --help``."""
    from loosehanger.cli import monitoring as monitoring_command  # slow to import

    options = COMMANDS["monitoring"].parse(arguments)
    return monitoring_command.run(load_lab(), options, _password)


def logs(arguments: Sequence[str]) -> int:
    """Shows logs: see ``logs --help``."""
    from loosehanger.cli import logs as log_command  # slow to import

    return log_command.run(load_lab(), COMMANDS["logs"].parse(arguments))


def open_console(arguments: Sequence[str]) -> int:
    """Opens a web console in the browser, signed in: see ``open --help``."""
    from loosehanger.cli import open_console as opening  # slow to import

    def password(region: Region, console: WebConsole) -> str:
        return connection_of(region, console.password_of).password or ""

    return opening.run(load_lab(), COMMANDS["open"].parse(arguments), password)


def client(arguments: Sequence[str]) -> int:
    """Writes settings for other clients: see ``client --help``."""
    from loosehanger.cli import client_settings  # slow to import

    return client_settings.run(load_lab(), COMMANDS["client"].parse(arguments))


def write_mirror_properties(arguments: Sequence[str]) -> int:
    """Writes, or runs, a properties file of the mirrors: see ``mirror-properties --help``."""
    from loosehanger.cli import mirror_properties  # slow to import

    return mirror_properties.run(load_lab(), COMMANDS["mirror-properties"].parse(arguments))


def kafka(arguments: Sequence[str]) -> int:
    """Runs one of Kafka's own tools: see ``kafka --help``."""
    if wants_help(arguments[:1]):
        COMMANDS["kafka"].parser().print_help()
        return ExitCode.DONE
    lab = load_lab()
    region, rest = COMMANDS["kafka"].take_name(arguments, f"a region: {', '.join(lab.clusters)}")
    user = ADMINISTRATOR
    if rest[:1] == ["--user"] and len(rest) > 1:
        user, rest = rest[1], rest[2:]
    tool, rest = COMMANDS["kafka"].take_name(rest, f"a tool: {', '.join(KAFKA_TOOLS)}")
    from loosehanger.cli import kafka_tools  # slow to import

    return kafka_tools.run(lab, region, user, tool, rest)


def experiment(arguments: Sequence[str]) -> int:
    """Measures what distance costs: see ``experiment --help``."""
    from loosehanger.cli import experiments  # slow to import

    return experiments.run(load_lab(), COMMANDS["experiment"].parse(arguments))


def fault(arguments: Sequence[str]) -> int:
    """Injects faults and heals them: see ``fault --help``."""
    from loosehanger.cli import faults  # slow to import

    return faults.run(COMMANDS["fault"].parse(arguments))


def learn(arguments: Sequence[str]) -> int:
    """Lists, checks and solves exercises: see ``learn --help``."""
    from loosehanger.cli import learn as learning  # slow to import

    return learning.run(COMMANDS["learn"].parse(arguments))


def consume(arguments: Sequence[str]) -> int:
    """Shows the events of a region: ``consume REGION [OPTION …]``."""
    from loosehanger.events.consume import main as show_events  # slow to import
    from loosehanger.events.reader import UnknownTopicError

    lab = load_lab()
    name, given = COMMANDS["consume"].take_name(arguments, f"a region: {', '.join(lab.regions)}")
    region = lab.region(name)
    _perhaps_in_a_pod("consume", arguments)
    user, rest = _split_user(given)
    found = consumers(lab.topology)
    consumer = next((consumer for consumer in found if consumer.region == name), None)
    if not rest and user is None and consumer and consumer.name in region.logs:
        _become("loosehanger.events.follow", str(region.logs[consumer.name]))
    names_topic = any(word.partition("=")[0] == "--topic" for word in rest)
    if user is not None or (consumer is None and names_topic and region.clients):
        from loosehanger.cli.client_settings import properties_file

        properties = properties_file(region, user or ADMINISTRATOR)
    elif consumer is None:
        there = ", ".join(dict.fromkeys(consumer.region for consumer in found))
        raise WrongUseError(f"{name}: no consumer is set up here; the regions with one are: {there or 'none'}")
    else:
        properties = lab.region(consumer.cluster_region).client_file(consumer.user)
    # Without --topic it shows the consumer's topics, a mirror's prefixed copies included.
    pattern = ["--pattern", consumer.pattern] if consumer and consumer.pattern else []
    options = ["--config", str(properties), *pattern, *rest]
    try:
        return show_events(options, prog=f"lab consume {name}", start=_NOW)
    except UnknownTopicError as error:
        if user is not None:
            raise
        raise WrongUseError(f"{error}; --user {ADMINISTRATOR} sees every topic") from error


def _split_user(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    parser = Parser(prog="lab consume", add_help=False, allow_abbrev=False)
    parser.add_argument("--user")
    found, rest = parser.parse_known_args(arguments)
    return found.user, rest


def produce(arguments: Sequence[str]) -> int:
    """Writes records: see ``produce --help``."""
    from loosehanger.cli import produce as produce_command  # slow to import

    return produce_command.run(load_lab(), COMMANDS["produce"].parse(arguments))


def prove(arguments: Sequence[str]) -> int:
    """Proves that everything arrived: see ``prove --help``."""
    try:
        _perhaps_in_a_pod("prove", arguments)
    except (LabError, OSError) as error:
        if isinstance(error, LabError) and error.exit_code != ExitCode.FAILED:
            raise
        from loosehanger.proof.inconclusive import give_up  # slow to import

        raise give_up(error, arguments) from error
    return jobs.run("prove", arguments)


def aggregate(arguments: Sequence[str]) -> int:
    """Aggregates the events of every region: see ``aggregate --help``."""
    _perhaps_in_a_pod("aggregate", arguments)
    return jobs.run("aggregate", arguments)


def watch(arguments: Sequence[str]) -> int:
    """Shows every region live: see ``watch --help``."""
    _perhaps_in_a_pod("watch", arguments)
    return jobs.run("watch", arguments)


def _perhaps_in_a_pod(command: str, arguments: Sequence[str]) -> None:
    """Runs a command in a pod and exits with its exit code, if the lab's clusters cannot be reached from here."""
    elsewhere = wants_help(arguments) or any(word.startswith("--source-config") for word in arguments)
    lab = _lab_or_none()
    if elsewhere or lab is None or lab.pod is None:
        return
    sys.exit(registry.run_in_pod(lab, lab.pod, command, arguments))


def _become(module: str, *arguments: str) -> NoReturn:
    """Replaces this process, so that signals and exit codes are the program's own."""
    jobs.enter(ROOT)
    os.execv(sys.executable, [sys.executable, "-P", "-m", module, *arguments])  # noqa: S606 (no shell is wanted)


def _lab_or_none() -> Lab | None:
    try:
        return load_lab()
    except NothingSetUpError:
        return None


def _web_consoles(lab: Lab) -> set[WebConsole]:
    return {console for region in lab.regions.values() for console in region.consoles}


RUN: Mapping[str, Callable[[Sequence[str]], int]] = {
    "scenarios": scenarios,
    "setup": setup,
    "stage": stage,
    "status": show_status,
    "diff": diff,
    "open": open_console,
    "consume": consume,
    "produce": produce,
    "doctor": doctor,
    "prefetch": prefetch,
    "export-install": export_install,
    "logs": logs,
    "monitoring": monitoring,
    "client": client,
    "mirror-properties": write_mirror_properties,
    "kafka": kafka,
    "watch": watch,
    "aggregate": aggregate,
    "topic": topic,
    "link": link,
    "experiment": experiment,
    "fault": fault,
    "learn": learn,
    "prove": prove,
    "exercise": lambda _: exercise.undo(required_progress()),
    "cleanup": lambda arguments: cleanup(arguments, _checked),
}
