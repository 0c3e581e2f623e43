"""The commands behind the wrappers."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lab import bundle, topics
from lab.access import ROOT, Lab, Region, caller_path, lab_home, load_lab
from lab.connection import Connection
from lab.errors import ExitCode, LabError, NothingSetUpError, WrongUseError
from lab.playbook import run_playbook

DEFAULT_INVENTORY = "inventories/local"
_LOOPBACK = "127.0.0.1"
INSTALLED = ("venv", "uv", "jars", "java", "java-spark", "installed", "install.lock", "cache", "molecule-ansible")
MADE = ("regions", "access", "artifacts", "logs", "ansible", "watch", "playbook.lock")


def setup(arguments: Sequence[str]) -> int:
    """Sets a scenario up: ``setup SCENARIO [ANSIBLE-ARGUMENT …]``."""
    scenario, *rest = arguments
    if {"-h", "--help"} & set(rest):
        print(_SETUP_HELP.format(scenario=scenario))
        return ExitCode.DONE
    before = _lab_or_none()
    if before and before.scenario != scenario:
        raise WrongUseError(f"the scenario {before.scenario} is set up; run ./cleanup.sh before another one")
    given = _inventories(rest)
    if before and given and (ROOT / given[0]).resolve() != Path(before.inventory).resolve():
        raise WrongUseError(
            f"-i {given[0]}: the lab is set up with {before.inventory}; run ./cleanup.sh before another inventory"
        )
    run_playbook(f"playbooks/{scenario}/setup.yaml", _with_inventory(rest, before))
    if not {"--check", "-C", "--syntax-check", "--list-tasks", "--list-hosts"} & set(rest):
        print(_NEXT_STEPS.format(scenario=scenario))
        _introduce_consoles(before)
    return ExitCode.DONE


def cleanup(arguments: Sequence[str]) -> int:
    """Deletes everything that the kit made: ``cleanup [--all] [ANSIBLE-ARGUMENT …]``."""
    parser = argparse.ArgumentParser(
        prog="cleanup.sh",
        description="Stops and deletes everything that the lab made, and nothing else. Asks nothing.",
        epilog="Further arguments go to ansible-playbook. Exit codes: 0 done, 1 something is left, 2 wrong use.",
    )
    parser.add_argument("--all", action="store_true", help="also remove what was installed into .lab")
    options, rest = parser.parse_known_args(arguments)
    home = lab_home()
    # A named inventory may have what another machine made.
    if _inventories(rest) or any((home / name).exists() for name in MADE):
        run_playbook("playbooks/cleanup.yaml", _with_inventory(rest, _lab_or_none()))
        _remove(home, MADE)
        print("Everything that the lab made is deleted.")
    else:
        print("There is nothing to clean up.")
    if options.all:
        _remove(home, INSTALLED)
        with contextlib.suppress(OSError):
            home.rmdir()
        print(f"What was installed into {home} is removed.")
    return ExitCode.DONE


def status(arguments: Sequence[str]) -> int:
    """Shows the health of everything, how to sign in, or packs a bundle: see ``status --help``."""
    parser = argparse.ArgumentParser(
        prog="status.sh",
        description="Every cluster, mirror, producer and consumer: healthy or not, and why not.",
        epilog="Exit codes: 0 all healthy, 1 something is not, 3 nothing is set up.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    parser.add_argument(
        "--credentials", action="store_true", help="only show address, user and password of every web console"
    )
    parser.add_argument(
        "--bundle", metavar="FILE", help="write what a maintainer needs to help into a tar.gz: no secrets are in it"
    )
    options = parser.parse_args(arguments)
    lab = load_lab()
    if options.credentials:
        return _show_credentials(lab, as_json=options.json)
    if options.bundle:
        return bundle.write(lab, caller_path(options.bundle))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "status.json"
        run_playbook("playbooks/status.yaml", ["-i", lab.inventory, "-e", f"status_file={file}"], quiet=True)
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    regions = {name: answer["resources"] for name, answer in found.items()}
    healthy = all(resource["healthy"] for resources in regions.values() for resource in resources)
    if options.json:
        document = {"scenario": lab.scenario, "platform": lab.platform, "healthy": healthy, "regions": regions}
        print(json.dumps(document, indent=1, ensure_ascii=False))
    else:
        _show_status(lab, regions)
    return ExitCode.DONE if healthy else ExitCode.FAILED


def topic(arguments: Sequence[str]) -> int:
    """Shows and changes topics: see ``topic --help``."""
    options, lab = topics.parse(arguments), load_lab()
    if lab.pod is None:
        return topics.run(lab, options)
    from lab import pods, topic_resources  # what they need takes a while to load

    if options.changes and not options.only_wait:
        declared = topic_resources.change(lab.region(options.region), options.topic, options.changes)
        arguments = [*arguments, *(["--only-wait"] if declared else [])]
    return pods.run(lab, lab.pod, "topic", arguments)


def consumer(arguments: Sequence[str]) -> int:
    """Shows the events of a region: ``consumer REGION [OPTION …]``."""
    name, *rest = arguments
    region = load_lab().region(name)
    _perhaps_in_a_pod("consumer", arguments)
    if {"-h", "--help"} & set(rest):
        _become("consumers", "--help")
    user = next((user for user in region.clients if user.startswith("consumer-")), None)
    if user is None:
        raise WrongUseError(f"{name}: the set-up got not so far as to a consumer; run it again")
    if rest or user not in region.logs:
        _become("consumers", "--config", str(region.clients[user]), *rest)
    _become("consumers.follow", str(region.logs[user]))


def prove(arguments: Sequence[str]) -> int:
    """Proves that everything arrived: see ``prove --help``."""
    _perhaps_in_a_pod("prove", arguments)
    _become("pipeline.submit", "prove", *arguments, folder=lab_home())


def aggregate(arguments: Sequence[str]) -> int:
    """Aggregates the events of every region: see ``aggregate --help``."""
    _perhaps_in_a_pod("aggregate", arguments)
    _become("pipeline.submit", "aggregate", *arguments, folder=lab_home())


def watch(arguments: Sequence[str]) -> int:
    """Shows what happens in every region while it happens: see ``watch --help``."""
    _perhaps_in_a_pod("watch", arguments)
    _become("pipeline.submit", "watch", *arguments, folder=lab_home())


def _perhaps_in_a_pod(command: str, arguments: Sequence[str]) -> None:
    """Where the lab's clusters cannot be reached from here: runs a command in a pod, and ends with its exit code."""
    elsewhere = {"-h", "--help"} & set(arguments) or any(word.startswith("--source-config") for word in arguments)
    lab = _lab_or_none()
    if elsewhere or lab is None or lab.pod is None:
        return
    from lab import pods  # what it needs takes a while to load

    sys.exit(pods.run(lab, lab.pod, command, arguments))


def _become(module: str, *arguments: str, folder: Path = ROOT) -> NoReturn:
    """Replaces this process, so that signals and exit codes are the program's own.

    Spark makes a folder of its own wherever it runs, so its jobs run in the lab's home.
    """
    sys.stdout.flush()
    os.environ["LAB_CALLED_FROM"] = str(Path.cwd())
    os.chdir(folder)
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])  # noqa: S606 (no shell is wanted)


def _inventories(arguments: Sequence[str]) -> list[str]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-i", "--inventory", action="append", default=[])
    given: list[str] = parser.parse_known_args(arguments)[0].inventory
    return given


def _with_inventory(arguments: Sequence[str], lab: Lab | None) -> list[str]:
    if given := _inventories(arguments):
        for inventory in given:
            if "," not in inventory and not Path(inventory).exists() and not (ROOT / inventory).exists():
                raise WrongUseError(f"-i {inventory}: there is no such inventory; see inventories/ in the checkout")
        return list(arguments)
    return ["-i", lab.inventory if lab else DEFAULT_INVENTORY, *arguments]


def _lab_or_none() -> Lab | None:
    try:
        return load_lab()
    except NothingSetUpError:
        return None


def _remove(home: Path, names: Sequence[str]) -> None:
    for name in names:
        path = home / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _show_status(lab: Lab, regions: dict[str, list[dict[str, Any]]]) -> None:
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{lab.scenario} on {lab.platform}")
    for region, resources in regions.items():
        console.print(f"\n[bold]{region}[/]")
        for resource in resources:
            colour = "green" if resource["healthy"] else "bold red"
            name = f"{resource['kind']}/{resource['name']}"
            console.print(f"  [{colour}]{resource['state']:<9}[/] {name:<38} {escape(resource['detail'])}")
        if not resources:
            console.print("  [bold red]Missing[/]   nothing is there; run the set-up again")


def _show_credentials(lab: Lab, *, as_json: bool = False) -> int:
    found = [
        {
            "console": console.name,
            "url": console.url,
            "username": console.username,
            "password": _connection(region, console.username).password or "",
        }
        for region in lab.regions.values()
        for console in region.consoles
    ]
    if not found:
        raise LabError(f"{lab.scenario} has no web console; run the set-up again")
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
        for heading in ("Web console", "Address", "User", "Password"):
            table.add_column(heading, no_wrap=True)
        for row in found:
            table.add_row(*row.values())
        # However narrow the terminal is: whoever copies a password wants the whole of it.
        Console(soft_wrap=True, highlight=False, width=200).print(table, crop=False)
        if lab.pod is not None and any(f"//{_LOOPBACK}" in row["url"] for row in found):
            print(f"\nThose at {_LOOPBACK} listen within their pods; this leads there:")
            print("kubectl -n NAMESPACE port-forward deployment/NAME PORT")
    return ExitCode.DONE


def _connection(region: Region, user: str) -> Connection:
    if region.pod is None:
        return region.connection(user)
    from lab import pods  # what it needs takes a while to load

    return pods.connection(region.pod, user)


def _introduce_consoles(before: Lab | None) -> None:
    """Tells how to sign in, once: when the consoles are new."""
    known = {console for region in before.regions.values() for console in region.consoles} if before else set()
    lab = load_lab()
    consoles = {console for region in lab.regions.values() for console in region.consoles}
    if consoles - known:
        print()
        _show_credentials(lab)
        print("\n./status.sh --credentials shows this again.")


_NEXT_STEPS = """
The lab is ready: {scenario}. What next?

  your browser                 looks at each region, and at all of them: see ./status.sh --credentials
  ./consumer-northamerica.sh   the events as they arrive in North America (Ctrl-C ends it)
  ./consumer-southamerica.sh   the same in South America
  ./status.sh                  is everything healthy?
  ./prove.sh                   was everything copied? numbers, and an exit code
  ./topic.sh set europe LH.ORDERS retention.ms=3600000
                               change a topic in Europe, and watch the Americas follow
  ./cleanup.sh                 delete everything again

Then open playbooks/{scenario}/mm2-na.yaml, change a value, and run ./setup-{scenario}.sh once more."""

_SETUP_HELP = """\
usage: ./setup-{scenario}.sh [ANSIBLE-ARGUMENT ...]

Sets the scenario {scenario} up. The first run installs everything it needs into .lab; a second run changes nothing.

Often used:
  -i inventories/strimzi   another platform than this machine's processes
  -e kafka_replicas=3      three Kafka nodes in every region
  --check --diff           only tell what would change
  -v, -vvv                 tell more

Variables: LAB_PORT_BASE (first port, 19000), LAB_HOME (.lab), LAB_PYTHON, LAB_MAVEN_REPOSITORY, NO_COLOR.
Exit codes: 0 done, 1 the work failed, 2 wrong use or input that cannot be used (nothing was changed)."""
