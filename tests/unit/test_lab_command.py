"""``./lab``: what it says with nothing installed, what it refuses, and what it hands on to a stand-in for Ansible."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loosehanger.cli import commands
from loosehanger.cli.command_line import COMMANDS, GROUPS
from loosehanger.errors import run_command
from loosehanger.events.options import parser as consumer_options
from loosehanger.lab import job_options
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.progress import Progress, read_progress
from loosehanger.lab.record import region_record
from loosehanger.lab.scenario import MIRROR, read_scenario
from loosehanger.lab.scenario_index import read_outline, scenario_names
from loosehanger.paths import ROOT
from loosehanger.waiting import wait_for

SHORTCUTS = {
    "setup-03-broadcast.sh": ["setup", "03-broadcast"],
    "consumer-europe.sh": ["consume", "europe"],
    "consumer-northamerica.sh": ["consume", "north-america"],
    "consumer-southamerica.sh": ["consume", "south-america"],
    "prove.sh": ["prove"],
    "cleanup.sh": ["cleanup"],
}
SWITCHING = """\
title: 'A region''s failure' # and its return
teaches: Applications go on in another region, and come back.
control_room: asia
topics: [X.]
stages:
  setup: {next: "./lab consume asia\\nand look"}
  failover: {after: [setup]}
  failback: {after: [failover]}
"""
PLAIN = 'title: Plain\nteaches: "One region: all in it."\ntopics: [X.]\nstages: {setup: {}}\n'
# In place of Ansible: notes how it was called, and leaves the record that the last play of a stage leaves.
ANSIBLE = """\
import json, os, pathlib, shutil, signal, sys
from loosehanger.lab.progress import Progress, read_progress
_, playbook, *arguments = sys.argv[1:]
playbook, home = pathlib.Path(playbook), pathlib.Path(os.environ["LAB_HOME"])
(home / "ports").write_text(os.environ.get("LAB_PORT_BASE", ""))
(home / "inherited").write_text(" ".join(sorted(os.environ)))
with (home / "runs").open("a") as runs:
    runs.write(json.dumps([f"{playbook.parent.name}/{playbook.name}", *arguments]) + "\\n")
if "HANG" in os.environ:
    # A worker, in a session of its own as Ansible's are; and what Ansible says when Ctrl-C meets it between two tasks.
    if worker := os.fork():
        signal.signal(signal.SIGINT, lambda *_: sys.exit("[ERROR]: Unexpected Exception, this is probably a bug"))
        (home / "worker.new").write_text(str(worker))
        (home / "worker.new").rename(home / "worker")
    else:
        os.setsid()
        os.closerange(0, 3)
    signal.pause()
if "DEAF" in os.environ:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    (home / "deaf").touch()
    signal.pause()
if "DIES" in os.environ:
    print("[ERROR]: its last word", file=sys.stderr)
    sys.exit(250) if os.environ["DIES"] == "250" else os.kill(os.getpid(), int(os.environ["DIES"]))
if playbook.stem == "status":
    (given,) = (word[1:] for word in arguments if word.startswith("@"))
    file = json.loads(pathlib.Path(given).read_text().removeprefix("status_file: !unsafe "))
    pathlib.Path(file).write_text((home.parent / "status.json").read_text())
elif playbook.parent.name != "playbooks" and "--check" not in arguments:
    before = read_progress(home)
    fails = "FAIL" in os.environ
    reached = before.stage if before and fails else "" if fails else playbook.stem
    inventory = str(pathlib.Path(arguments[arguments.index("-i") + 1]).absolute())
    kept = tuple(json.loads(os.environ["LAB_VARIABLES"]))
    unfinished = playbook.stem if fails else ""
    Progress(playbook.parent.name, "local", inventory, reached, unfinished, variables=kept).write(home)
    for record in (home.parent / "records").glob("*.json"):
        shutil.copy(record, home / "access")
    sys.exit(2 if fails else 0)
"""


def document(kind: str, name: str, region: str, spec: dict[str, Any]) -> Document:
    """A resource of a region."""
    return Document("made up", 1, {"kind": kind, "metadata": {"name": name, "namespace": region}, "spec": spec})


def program(name: str, region: str, command: list[str], **variables: str) -> Document:
    """A Deployment."""
    env = [{"name": key, "value": value} for key, value in variables.items()]
    pod = {"containers": [{"command": command, "env": env}]}
    return document("Deployment", name, region, {"template": {"spec": pod}})


# Asia has a cluster, a consumer and the control room; Africa only a consumer, which reads Asia's cluster.
ADDRESS = "asia-kafka-bootstrap.asia.svc:9098"
DESCRIBED = {
    "asia": [
        document("Kafka", "asia", "asia", {"kafka": {"listeners": [{"port": 9098}]}}),
        document("KafkaTopic", "lh-orders", "asia", {"topicName": "LH.ORDERS", "partitions": 1, "replicas": 1}),
        program("reader-a", "asia", ["python", "-m", "consumers"], KAFKA_BOOTSTRAP_SERVERS=ADDRESS, KAFKA_USERNAME="a"),
        program(
            "room",
            "asia",
            ["python", "-m", "loosehanger.console"],
            CONSOLE_CONTROL_ROOM="true",
            CONSOLE_NAME="the room",
        ),
    ],
    "africa": [
        program(
            "reader-b", "africa", ["python", "-m", "consumers"], KAFKA_BOOTSTRAP_SERVERS=ADDRESS, KAFKA_USERNAME="b"
        ),
    ],
    "antarctica": [program("writer", "antarctica", ["python", "-m", "producer"])],
}
HEALTHY = {"kind": "Kafka", "name": "asia", "state": "Running", "detail": "", "healthy": True}
STATUS = {
    "asia": {"resources": [HEALTHY]},
    "africa": {"resources": [HEALTHY]},
    "antarctica": {"resources": [HEALTHY]},
    "unused": {"resources": []},
}


class Checkout:
    """A copy of the command, with scenarios of its own, in a folder whose name has a blank."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / ".lab"

    def variables(self, **more: str) -> dict[str, str]:
        """The environment in which the command runs."""
        # Parallel tests have the columns of a terminal that is not there.
        left_out = ("LAB_", "PYTHON", "COLUMNS")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        return {**kept, "PYTHONPATH": str(self.root), "NO_COLOR": "1", **more}

    def lab(self, *arguments: str, program: str = "lab", **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs the command, from another folder."""
        return subprocess.run(
            [self.root / program, *arguments],
            cwd=self.root.parent,
            env=self.variables(**variables),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def set_up(self) -> None:
        """Leaves what the set-up of the first scenario leaves, without running it."""
        inventory = str(self.root / "inventories/local")
        Progress("05-switching", "local", inventory, "setup").write(self.home)
        shutil.copytree(self.root / "records", self.home / "access", dirs_exist_ok=True)

    @property
    def runs(self) -> list[list[str]]:
        """How Ansible was called: the playbook, and its arguments."""
        file = self.home / "runs"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Python keeps what it has compiled; once for all of these tests, for it takes longer than they do."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def checkout(tmp_path: Path, cache: Path) -> Checkout:
    """A checkout in which everything is installed, with two scenarios."""
    root = tmp_path / "check out"
    for package in ("loosehanger", "consumers", "producer", "roles"):
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "scripts").mkdir()
    for file in ("lab", "scripts/bootstrap.sh", *SHORTCUTS):
        shutil.copy(ROOT / file, root / file)
    for scenario, text, stages in (
        ("05-switching", SWITCHING, ("setup", "failover", "failback")),
        ("11-plain", PLAIN, ("setup",)),
    ):
        folder = root / "playbooks" / scenario
        folder.mkdir(parents=True)
        (folder / "scenario.yaml").write_text(text, encoding="utf-8")
        for stage in stages:
            (folder / f"{stage}.yaml").write_text("[]\n", encoding="utf-8")
    (root / "playbooks/common").mkdir()
    for name in ("local", "strimzi"):
        (root / "inventories" / name).mkdir(parents=True)
        (root / "inventories" / name / "regions.yaml").touch()
    (root / "ansible").mkdir()
    (root / "ansible/__init__.py").touch()
    (root / "ansible/__main__.py").write_text(ANSIBLE, encoding="utf-8")
    (root / "records").mkdir()
    for region, documents in DESCRIBED.items():
        consoles = [{"name": "the room", "url": "http://127.0.0.1:5/", "username": "a"}] if region == "asia" else []
        user = root / f"{region}.properties"
        user.write_text(
            "bootstrap.servers=127.0.0.1:1\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="a" password="secret";\n',
            encoding="utf-8",
        )
        clients = {"a": str(user), "b": str(user)} if region == "asia" else {}
        record = region_record(region, documents, clients=clients, logs={}, consoles=consoles, connect={})
        (root / "records" / f"{region}.json").write_text(record, encoding="utf-8")
    (root / "status.json").write_text(json.dumps(STATUS), encoding="utf-8")
    (root / ".lab").mkdir(mode=0o700)
    (root / ".lab/venv").symlink_to(sys.prefix)
    (root / ".lab/cache").symlink_to(cache)
    return Checkout(root)


@pytest.fixture
def bare(checkout: Checkout) -> Checkout:
    """The same with nothing installed; the installer is not there either."""
    shutil.rmtree(checkout.home)
    return checkout


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that reports a mistake."""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: "), line
    assert done.stdout == ""
    return line.removeprefix("error: ")


# With nothing installed.


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]], ids=["alone", "--help", "-h", "help"])
def test_the_list_of_commands_needs_no_installation_and_leaves_no_trace(bare: Checkout, arguments: list[str]) -> None:
    done = bare.lab(*arguments)
    assert done.returncode == 0, done.stderr
    for name, command in COMMANDS.items():
        assert f"\n  {name}" in done.stdout
        assert command.summary in done.stdout
    assert done.stdout.endswith("Nothing is set up. Begin with ./lab scenarios, then ./lab setup NAME.\n")
    assert not bare.home.exists()
    assert not list(bare.root.rglob("__pycache__"))


@pytest.mark.parametrize("command", [*COMMANDS, "topic set", "fault inject"])
def test_a_commands_help_needs_no_installation(bare: Checkout, command: str) -> None:
    done = bare.lab(*command.split(), "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: lab {command}")
    assert not bare.home.exists()


def test_the_version_names_the_kit_and_kafka(bare: Checkout) -> None:
    for file in ("pyproject.toml", "jars.lock"):
        shutil.copy(ROOT / file, bare.root / file)
    done = bare.lab("--version")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"loosehanger-lab \d+\.\d+\.\d+ \(Apache Kafka \d+\.\d+\.\d+\)\n", done.stdout)


def test_help_of_a_command_is_the_same_in_both_spellings(bare: Checkout) -> None:
    assert bare.lab("help", "status").stdout == bare.lab("status", "--help").stdout


def test_the_options_of_a_consumer_are_listed_before_anything_is_installed(bare: Checkout) -> None:
    listed = bare.lab("consume", "--help").stdout
    assert listed.startswith("usage: lab consume REGION")
    own = {action.option_strings[-1] for action in consumer_options({})._actions}
    assert {option for option in own if option not in listed} == set()
    assert not bare.home.exists()


@pytest.mark.parametrize("job", ["prove", "aggregate", "watch"])
def test_the_options_of_a_job_are_listed_before_anything_is_installed(bare: Checkout, job: str) -> None:
    listed = bare.lab(job, "--help").stdout
    own = {action.option_strings[-1] for action in job_options.parser(job)._actions}
    assert {option for option in own if option not in listed} == set()
    assert "--master" in listed
    assert not bare.home.exists()


def test_the_list_of_scenarios_needs_no_installation(bare: Checkout) -> None:
    done = bare.lab("scenarios")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        "05-switching\n    A region's failure. Applications go on in another region, and come back.\n\n"
        "11-plain\n    Plain. One region: all in it.\n"
    )
    document = json.loads(bare.lab("scenarios", "--json").stdout)
    assert [scenario["name"] for scenario in document["scenarios"]] == ["05-switching", "11-plain"]
    assert document["scenarios"][1] == {
        "name": "11-plain",
        "title": "Plain",
        "teaches": "One region: all in it.",
        "set_up": False,
        "stage": "",
        "unfinished": "",
    }


def test_what_the_front_imports_is_pythons_own_and_the_kits() -> None:
    run = "import sys, loosehanger.cli.bootstrap_cli; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-c", run],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded <= {*sys.stdlib_module_names, "loosehanger", "__main__"}


@pytest.mark.parametrize("command", [name for name, command in COMMANDS.items() if command.needs_lab])
def test_nothing_set_up_is_exit_code_3_before_anything_is_installed(bare: Checkout, command: str) -> None:
    of_some = {
        "topic": "show",
        "consume": "asia",
        "stage": "failover",
        "experiment": "read-where",
        "client": "asia",
        "kafka": "asia",
        "produce": "asia --topic LH.ORDERS --value x",
        "exercise": "undo",
        "fault": "status",
    }
    done = bare.lab(command, *of_some.get(command, "").split())
    assert done.returncode == 3
    assert said(done) == "nothing is set up; ./lab scenarios shows what there is"
    assert not bare.home.exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["statsu"], "there is no command 'statsu'; did you mean 'status'?"),
        (["xyzzy"], "there is no command 'xyzzy'; ./lab lists them"),
        (["help", "statsu"], "there is no command 'statsu'; did you mean 'status'?"),
        (["setup", "switching"], "there is no scenario 'switching'; did you mean '05-switching'?"),
        (["setup", "5-switching"], "there is no scenario '5-switching'; did you mean '05-switching'?"),
        (["logs", "-n", "ten"], "'ten' is not a number of lines, such as 20"),
        (["client", "asia", "--java", "--env"], "not allowed with argument"),
        (["setup"], "name a scenario: 05-switching, 11-plain; ./lab setup --help explains"),
        (["setup", "-v"], "name a scenario: 05-switching, 11-plain; ./lab setup --help explains"),
        (["setup", "99-none"], "there is no scenario '99-none'; there are: 05-switching, 11-plain"),
        (["setup", "../playbooks/11-plain"], "there is no scenario '../playbooks/11-plain'; there are: 05-"),
        (["setup", "common"], "there is no scenario 'common'; there are: 05-switching, 11-plain"),
        (["status", "--jsno"], "unrecognized arguments: --jsno; ./lab status --help explains"),
        (["status", "--js"], "unrecognized arguments: --js; ./lab status --help explains"),
        (["topic"], "the following arguments are required: COMMAND; ./lab topic --help explains"),
        (["topic", "set", "asia"], "; ./lab topic set --help explains"),
        (["scenarios", "x"], "unrecognized arguments: x; ./lab scenarios --help explains"),
        (["completion", "tcsh"], "invalid choice: 'tcsh'"),
        (["fault"], "the following arguments are required: COMMAND; ./lab fault --help explains"),
        (["fault", "inject"], "name a fault, or ask for one with --surprise; ./lab fault list shows them"),
        (["fault", "inject", "--surprise", "connector-paused"], "'connector-paused' is not a level from 1 to 3"),
        (["fault", "inject", "x", "--surprise"], "name a fault or ask for a surprise, not both"),
        (["fault", "inject", "--exercise", "first"], "'first' is not the number of an exercise, such as 1"),
        (["fault", "inject", "x", "--exercise", "1"], "an exercise names all of it; leave out NAME or --exercise"),
        (["fault", "inject", "--exercise", "1", "--surprise"], "leave out --surprise or --exercise"),
        (["fault", "inject", "x", "--source", "asia", "--target", "asia"], "asia cannot be both source and target"),
        (
            ["prove", "--timeout", "-1"],
            "argument --timeout: '-1' is not a number of seconds from 0 on; ./lab prove --help explains",
        ),
        (["prove", "--timeout", "nan"], "--timeout: 'nan' is not a number of seconds"),
        (["prove", "--examples", "many"], "--examples: 'many' is not a whole number from 0 on"),
        (["prove", "--since", "-yesterday"], "--since: expected one argument"),
        (["prove", "--since", "yesterday"], "--since: 'yesterday' is neither an ISO 8601 time, as in 2026-11-21T08:00"),
        (["prove", "--report", "/nowhere/at/all.html"], "cannot be written: there is no folder /nowhere/at"),
        (["prove", "--bogus"], "unrecognized arguments: --bogus; ./lab prove --help explains"),
        (["prove", "--topics", "x"], "comparing two clusters also needs --source-config and --target-config"),
        (
            ["prove", "--topics", "x", "--source-config", "/nowhere/a", "--target-config", "/nowhere/b"],
            "/nowhere/a: cannot be read (No such file or directory)",
        ),
        (["watch", "--for", "0"], "--for: '0' is not a number of seconds above 0 and below 1,000,000"),
        (["watch", "--keep", "0.5"], "--keep: '0.5' is not a number of hours from 1 on and below 1,000,000"),
        (["watch", "--minutes", "1001"], "--minutes: '1001' is not a whole number from 1 to 1,000"),
        (["aggregate", "x"], "unrecognized arguments: x; ./lab aggregate --help explains"),
        (["link", "asia", "africa", "--delay", "-80ms"], "'-80ms' is negative; write a time as in 80ms or 0.5s"),
        (["link", "asia", "africa", "--rate", "-.5MB/s"], "'-.5MB/s'"),
    ],
)
def test_a_typing_mistake_is_one_line_and_installs_nothing(bare: Checkout, arguments: list[str], expected: str) -> None:
    done = bare.lab(*arguments)
    assert done.returncode == 2
    assert expected in said(done)
    assert not bare.home.exists()


def test_a_home_that_others_may_write_to_is_refused(checkout: Checkout) -> None:
    checkout.home.chmod(0o707)
    done = checkout.lab("setup", "11-plain")
    assert done.returncode == 2
    assert said(done).endswith(f"run chmod o-w {checkout.home}")
    assert checkout.runs == []


def test_the_doctor_needs_no_installation(bare: Checkout) -> None:
    for file in ("scripts/install.py", "inventories/local/group_vars/all.yaml", "inventories/regions.yaml"):
        (bare.root / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, bare.root / file)
    nowhere = "http://127.0.0.1:1/"
    done = bare.lab("doctor", UV_DEFAULT_INDEX=nowhere, LAB_MAVEN_REPOSITORY=nowhere)
    assert done.returncode == 1
    assert "set HTTPS_PROXY if there is a proxy, or PIP_INDEX_URL to the address of a package index" in done.stdout
    assert done.stdout.endswith("Nothing is set up. Begin with ./lab scenarios, then ./lab setup NAME.\n")
    assert not bare.home.exists()


def test_where_nothing_is_there_is_nothing_to_clean_up(bare: Checkout) -> None:
    done = bare.lab("cleanup")
    assert (done.returncode, done.stdout) == (0, "There is nothing to clean up.\n")
    assert not bare.home.exists()
    (bare.home / "jars").mkdir(parents=True)
    done = bare.lab("cleanup", "--all")
    assert done.returncode == 0, done.stderr
    assert "nothing to clean up" in done.stdout
    assert not bare.home.exists()


def test_a_python_that_is_too_old_is_named(bare: Checkout) -> None:
    done = bare.lab(LAB_PYTHON="false")
    assert done.returncode == 2
    assert "false is not Python 3.11, 3.12 or 3.13" in said(done)


@pytest.mark.parametrize(("command", "code"), [("prove", 4), ("setup", 1)])
def test_an_installation_that_fails_disproves_nothing(bare: Checkout, command: str, code: int) -> None:
    (bare.root / "scripts/bootstrap.sh").write_text(
        f'#!/bin/sh\n[ "$1" = --python ] && echo "{sys.executable}" && exit\nexit 1\n', encoding="utf-8"
    )
    (bare.root / "a").touch()
    clusters = ["--source-config", bare.root / "a", "--target-config", bare.root / "a", "--topics", "x"]
    arguments = [*map(str, clusters)] if command == "prove" else ["11-plain"]
    assert bare.lab(command, *arguments).returncode == code


def test_commands_run_nothing_of_the_callers_folder_and_keep_their_files_private(checkout: Checkout) -> None:
    for name in ("loosehanger", "argparse", "json", "ansible"):
        (checkout.root.parent / f"{name}.py").write_text("raise SystemExit(77)\n", encoding="utf-8")
    done = checkout.lab("setup", "11-plain")
    assert done.returncode == 0, done.stderr
    assert (checkout.home / "runs").stat().st_mode & 0o077 == 0


def test_a_home_may_be_named_from_where_one_is(checkout: Checkout) -> None:
    home = checkout.root.parent / "my lab"
    home.mkdir()
    (home / "venv").symlink_to(sys.prefix)
    Progress("11-plain", "local", "inventories/local", "setup").write(home)
    done = checkout.lab("scenarios", LAB_HOME="my lab")
    assert "11-plain   set up (stage: setup)\n" in done.stdout


@pytest.mark.parametrize("arguments", [[], ["scenarios"], ["scenarios", "--json"]])
def test_output_that_has_no_room_is_one_line(bare: Checkout, arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [bare.root / "lab", *arguments],
            env=bare.variables(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=300,
        )
    assert (done.returncode, done.stderr) == (1, "error: No space left on device; make room on that disk\n")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_home_that_is_full_or_read_only_is_one_line(capsys: pytest.CaptureFixture[str], number: int) -> None:
    def fail() -> int:
        raise OSError(number, os.strerror(number), "/home/of/the/lab/access")

    assert run_command(fail) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert re.fullmatch(rf"error: /home/of/the/lab/access: {os.strerror(number)}; (make room|use a) .+\n", output.err)


@pytest.mark.parametrize(("free", "kept"), [(1000, False), (10_000_000, True)])
def test_no_bytecode_is_kept_where_it_could_be_cut_off(checkout: Checkout, free: int, kept: bool) -> None:
    """Python fails on bytecode that a full disk has cut off, and never writes it again."""
    (checkout.home / "cache").unlink()
    df = checkout.root / "df"
    df.write_text(f"#!/bin/sh\necho Filesystem\necho disk 9999 999 {free} 10% /\n", encoding="utf-8")
    df.chmod(0o700)
    assert checkout.lab("stage", PATH=f"{checkout.root}:{os.environ['PATH']}").returncode == 3
    assert checkout.lab("setup", "11-plain", PATH=f"{checkout.root}:{os.environ['PATH']}").returncode == 0
    assert (checkout.home / "cache").exists() == kept


# Scenarios and stages.


def test_a_set_up_runs_its_playbook_and_says_what_next(checkout: Checkout) -> None:
    done = checkout.lab("setup", "05-switching", "-e", "kafka_replicas=3", "-v")
    assert done.returncode == 0, done.stderr
    assert checkout.runs == [["05-switching/setup.yaml", "-i", "inventories/local", "-e", "kafka_replicas=3", "-v"]]
    text = done.stdout
    assert "The lab is ready: 05-switching. What next?\n\n  ./lab consume asia\n  and look\n" in text
    # From what is set up: the control room's address, the regions with a consumer, the stages that may follow.
    assert "shows every region at http://127.0.0.1:5/;" in text
    assert "./lab consume REGION   the events of a region, as they arrive there: africa, asia\n" in text
    assert "./lab stage failover" in text
    assert "failback" not in text
    assert "http://127.0.0.1:5/   a      secret" in text
    again = checkout.lab("setup", "05-switching")
    assert again.returncode == 0
    assert "secret" not in again.stdout, "the consoles are introduced once"


def test_a_stage_uses_the_variables_of_the_set_up(checkout: Checkout) -> None:
    checkout.lab("setup", "05-switching", "-e", "producer_rate=50", "-e", "my_token=hunter2")
    done = checkout.lab("stage", "failover")
    assert "With producer_rate=50.\n" in done.stderr
    assert checkout.runs[-1][:4] == ["05-switching/failover.yaml", "-e", "producer_rate=50", "-i"]
    assert "hunter2" not in (checkout.home / "access/lab.json").read_text()
    # The last value holds, for this stage and the next ones.
    checkout.lab("stage", "failover", "-e", "producer_rate=9")
    assert checkout.runs[-1][1:3] + checkout.runs[-1][-2:] == ["-e", "producer_rate=50", "-e", "producer_rate=9"]
    assert "with producer_rate=9\n" in checkout.lab("status").stdout
    # An older version of the kit has recorded none.
    record = checkout.home / "access/lab.json"
    content = json.loads(record.read_text())
    del content["variables"]
    record.write_text(json.dumps(content), encoding="utf-8")
    assert "With" not in checkout.lab("stage", "failover").stderr


@pytest.mark.parametrize("given", ["kafka_replica=3", "producer_rate=-5"])
def test_a_variable_that_cannot_be_used_is_refused_before_anything_runs(checkout: Checkout, given: str) -> None:
    checkout.set_up()
    for command in (("setup", "05-switching"), ("stage", "failover"), ("cleanup",)):
        done = checkout.lab(*command, "-e", given)
        assert done.returncode == 2
        assert said(done).startswith(f"-e {given.partition('=')[0]}")
    assert checkout.runs == []


def test_a_file_of_variables_is_found_from_where_one_is(checkout: Checkout) -> None:
    (checkout.root.parent / "mine.yml").write_text("producer_rate: 50\nmy_note: text\n", encoding="utf-8")
    assert checkout.lab("setup", "05-switching", "-e", "@mine.yml").returncode == 0
    assert checkout.runs[-1][-1] == f"@{checkout.root.parent / 'mine.yml'}"
    (checkout.root.parent / "mine.yml").write_text("producer_rte: 50\n", encoding="utf-8")
    assert "did you mean 'producer_rate'?" in said(checkout.lab("setup", "05-switching", "-e", "@mine.yml"))


def test_a_lab_keeps_its_ports(checkout: Checkout) -> None:
    checkout.set_up()
    progress = read_progress(checkout.home)
    assert progress
    replace(progress, port_base=29000).write(checkout.home)
    refused = "LAB_PORT_BASE=30000: the lab is set up with 29000; unset it, or run ./lab cleanup before another value"
    for command in (("status",), ("setup", "05-switching"), ("stage", "failover"), ("topic", "show"), ("prove",)):
        done = checkout.lab(*command, LAB_PORT_BASE="30000")
        assert (done.returncode, said(done)) == (2, refused), command
    assert checkout.runs == []
    for given in ("", "29000"):
        assert checkout.lab("status", LAB_PORT_BASE=given).returncode == 0
        assert (checkout.home / "ports").read_text() == "29000"
    assert checkout.lab("cleanup", LAB_PORT_BASE="30000").returncode == 0, "whatever the ports, it is deleted"


def test_a_lab_whose_record_has_no_ports_is_read_and_cleaned_up(checkout: Checkout) -> None:
    """An older version of the kit has set it up."""
    checkout.set_up()
    record = checkout.home / "access/lab.json"
    content = json.loads(record.read_text())
    del content["port_base"]
    record.write_text(json.dumps(content), encoding="utf-8")
    for command in (("status",), ("stage", "failover"), ("cleanup",)):
        assert checkout.lab(*command, LAB_PORT_BASE="30000").returncode == 0, command
        assert (checkout.home / "ports").read_text() == "30000"


@pytest.mark.parametrize("given", ["abc", "-1", "0", "80", "65535", "1e4", "19000.5", "٢٩٠٠٠"])
def test_a_port_base_that_is_none_is_refused(checkout: Checkout, given: str) -> None:
    done = checkout.lab("setup", "05-switching", LAB_PORT_BASE=given)
    expected = f"LAB_PORT_BASE={given}: not a number from 1024 to 65000, such as 29000"
    assert (done.returncode, said(done)) == (2, expected)
    checkout.set_up()
    done = checkout.lab("status", LAB_PORT_BASE=given)
    assert (done.returncode, said(done)) == (2, expected)
    assert checkout.runs == []


def test_what_only_tells_is_followed_by_nothing(checkout: Checkout) -> None:
    done = checkout.lab("setup", "05-switching", "--check")
    assert (done.returncode, done.stdout) == (0, "")


def test_the_way_through_the_stages(checkout: Checkout) -> None:
    checkout.set_up()
    listed = checkout.lab("stage").stdout
    assert "  setup      reached; may run again\n  failover   may run now\n  failback   after failover\n" in listed

    early = checkout.lab("stage", "failback")
    assert early.returncode == 2
    assert "'failback' comes after 'failover', and 'setup' was reached; nothing was changed" in said(early)

    done = checkout.lab("stage", "failover", "-v")
    assert done.returncode == 0, done.stderr
    assert "05-switching: the stage 'failover' is reached. What next?" in done.stdout
    assert checkout.runs[-1][0] == "05-switching/failover.yaml"
    assert checkout.runs[-1][1].startswith("-i")
    assert "05-switching   set up (stage: failover)" in checkout.lab("scenarios").stdout
    assert checkout.lab().stdout.endswith("05-switching is set up (stage: failover).\n")

    back = checkout.lab("setup", "05-switching")
    assert back.returncode == 2
    assert "'setup' comes first, and 'failover' was reached; nothing was changed" in said(back)
    runs = len(checkout.runs)
    assert checkout.lab("stage", "failover").returncode == 0, "the last one may run again"
    assert len(checkout.runs) == runs + 1


def test_an_interrupted_stage_may_run_again_and_nothing_else_may(checkout: Checkout) -> None:
    checkout.set_up()
    assert checkout.lab("stage", "failover", FAIL="1").returncode != 0
    text = checkout.lab("status").stdout
    assert "05-switching on local, stage: setup\n" in text
    assert "the stage 'failover' was begun and not finished; run ./lab stage failover again\n" in text
    assert "  failover   was begun and not finished: run it again\n" in checkout.lab("stage").stdout
    assert "its stage 'failover' was begun and not finished" in checkout.lab("scenarios").stdout
    other = checkout.lab("setup", "05-switching")
    assert other.returncode == 2
    assert "'failover' was begun and not finished; run it again before 'setup'" in said(other)
    assert checkout.lab("stage", "failover").returncode == 0
    assert json.loads(checkout.lab("status", "--json").stdout)["stage"] == "failover"


def test_a_stage_that_ended_before_a_wiped_region_was_made_again_is_told_as_unfinished(checkout: Checkout) -> None:
    checkout.set_up()
    target = {"alias": "asia", "bootstrapServers": ADDRESS}
    source = {"alias": "atlantis", "bootstrapServers": "atlantis-kafka-bootstrap.atlantis.svc:9098"}
    mirror = document(MIRROR, "mm2", "asia", {"target": target, "mirrors": [{"source": source, "sourceConnector": {}}]})
    record = region_record("asia", [*DESCRIBED["asia"], mirror], clients={}, logs={}, consoles=[], connect={})
    (checkout.home / "access/asia.json").write_text(record, encoding="utf-8")
    progress = read_progress(checkout.home)
    assert progress
    replace(progress, unfinished="failover").write(checkout.home)
    assert "'failover' was begun and not finished; run it again before 'setup'" in said(
        checkout.lab("setup", "05-switching")
    )
    assert "the stage 'failover' was begun and not finished" in checkout.lab("status").stdout
    assert checkout.lab("stage", "failover").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_what_outlives_an_interrupted_stage_keeps_others_away(checkout: Checkout, number: signal.Signals) -> None:
    checkout.set_up()
    file = checkout.home / "worker"
    process = subprocess.Popen(
        [checkout.root / "lab", "stage", "failover"],
        cwd=checkout.root.parent,
        env=checkout.variables(HANG="1"),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for(lambda: None if file.exists() else "no worker", 120, "the stand-in for Ansible")
    finally:
        # As a terminal does it, to the whole group.
        os.killpg(process.pid, number)
        _, error = process.communicate(timeout=120)
    try:
        assert process.returncode == (130 if number == signal.SIGINT else -number)
        assert "bug" not in error
        assert "another set-up or clean-up of this lab is running" in said(checkout.lab("stage", "failover"))
    finally:
        os.kill(int(file.read_text()), signal.SIGKILL)
    assert checkout.lab("stage", "failover").returncode == 0


def test_an_interrupted_ansible_that_does_not_end_is_ended(checkout: Checkout) -> None:
    checkout.set_up()
    process = subprocess.Popen(
        [checkout.root / "lab", "stage", "failover"],
        cwd=checkout.root.parent,
        env=checkout.variables(DEAF="1"),
        stderr=subprocess.PIPE,
        text=True,
    )
    deaf = checkout.home / "deaf"
    try:
        wait_for(lambda: None if deaf.exists() else "none", 120, "the stand-in for Ansible")
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=120)
    finally:
        process.kill()
    assert (process.returncode, "Traceback" in error) == (130, False)
    assert checkout.lab("stage", "failover").returncode == 0


@pytest.mark.parametrize(
    ("dies", "expected"),
    [
        ("9", "Ansible was killed by signal 9 while it ran playbooks/05-switching/failover.yaml"),
        ("250", "its last word"),
    ],
)
def test_an_ansible_that_breaks_down_is_no_wrong_use(checkout: Checkout, dies: str, expected: str) -> None:
    checkout.set_up()
    done = checkout.lab("stage", "failover", DIES=dies)
    assert done.returncode == 1
    assert expected in done.stderr.splitlines()[-1]


def test_an_interrupted_set_up_is_told_with_its_own_command(checkout: Checkout) -> None:
    assert checkout.lab("setup", "05-switching", FAIL="1").returncode != 0
    assert "'setup' was begun and not finished; run ./lab setup 05-switching again" in checkout.lab("status").stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["setup", "11-plain"], "the scenario 05-switching is set up; run ./lab cleanup before another one"),
        (["stage", "drain"], "05-switching has no stage 'drain'; it has: setup, failover, failback"),
        (["stage", "-v"], "name a stage of 05-switching: setup, failover, failback; ./lab stage --help explains"),
        (["stage", "failover", "-i", "inventories/strimzi"], "run ./lab cleanup before another inventory"),
        (["setup", "05-switching", "-i", "none"], "-i none: there is no such inventory; see inventories/ in the"),
        (["setup", "05-switching", "-i"], "expected one argument"),
        (["consume", "pangaea"], "unknown region 'pangaea'; the regions are: africa, antarctica, asia"),
        (["consume", "antartica"], "unknown region 'antartica'; did you mean 'antarctica'?"),
        (["client", "asia", "--user", "c"], "asia has no user 'c'; its users are: a, b"),
        (["client", "africa"], "africa has no cluster of its own"),
        (["logs", "asia"], "asia has no logs yet; ./lab logs lists all"),
        (["logs", "asai"], "unknown region 'asai'; did you mean 'asia'?"),
        (["kafka"], "name a region: asia; ./lab kafka --help explains"),
        (["kafka", "asia"], "name a tool: topics, "),
        (["kafka", "asia", "--user", "a", "topcis"], "there is no tool 'topcis'; did you mean 'topics'?"),
        (["kafka", "asia", "topics"], "asia has no user 'admin'; its users are: a, b"),
        (
            ["kafka", "asia", "--user", "a", "topics", "--bootstrap-server=x"],
            "leave it out, and use --user for another",
        ),
        (["consume"], "name a region: africa, antarctica, asia; ./lab consume --help explains"),
        (["consume", "antarctica"], "antarctica: no consumer is set up here; the regions with one are: africa, asia"),
        (["stage", "failovr"], "05-switching has no stage 'failovr'; did you mean 'failover'?"),
        (["produce", "asa", "--topic", "t", "--value", "x"], "unknown region 'asa'; did you mean 'asia'?"),
        (["consume", "asia", "--user", "c"], "asia has no user 'c'; its users are: a, b"),
        (["consume", "asia", "--nope"], "unrecognized arguments: --nope; lab consume asia --help explains"),
    ],
)
def test_what_does_not_fit_what_is_set_up_is_refused(checkout: Checkout, arguments: list[str], expected: str) -> None:
    checkout.set_up()
    record = (checkout.home / "access/lab.json").read_text()
    runs = checkout.runs
    done = checkout.lab(*arguments)
    assert done.returncode == 2, done.stderr
    assert expected in said(done)
    assert checkout.runs == runs
    assert (checkout.home / "access/lab.json").read_text() == record


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("--java", "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule"),
        ("--librdkafka", "sasl.password=secret\n"),
        ("--python", "'sasl_plain_password': 'secret',\n"),
        ("--env", "export KAFKA_PASSWORD=secret\n"),
    ],
)
def test_settings_of_other_clients_are_a_private_file(checkout: Checkout, kind: str, expected: str) -> None:
    checkout.set_up()
    done = checkout.lab("client", "asia", "--user", "a", kind)
    assert done.returncode == 0, done.stderr
    file = Path(done.stdout.strip())
    assert expected in file.read_text(encoding="utf-8")
    if kind != "--java":  # which is the test's own file
        assert file.stat().st_mode & 0o077 == 0
    assert "secret" not in done.stdout
    assert checkout.lab("client", "asia", "--user", "a", kind, "--show").stdout == file.read_text(encoding="utf-8")


def test_the_doctor_examines_the_lab_and_names_the_next_command(checkout: Checkout) -> None:
    checkout.set_up()
    done = checkout.lab("doctor")
    assert "ok       Python" in done.stdout
    assert "Kafka/asia" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("./lab ")
    assert checkout.lab("stage", "failover", FAIL="1").returncode != 0
    unfinished = checkout.lab("doctor")
    assert unfinished.returncode == 1
    assert "run ./lab stage failover again" in unfinished.stdout


def test_logs_are_listed_shown_and_named(checkout: Checkout) -> None:
    checkout.set_up()
    folder = checkout.home / "regions/asia/logs"
    folder.mkdir(parents=True)
    (folder / "kafka-0.log").write_text("one\ntwo\x1b[31m\nthree\n", encoding="utf-8")
    (folder / "room.log").write_text("four\n", encoding="utf-8")
    (folder / "room.log.1").write_text("older\n", encoding="utf-8")
    listed = checkout.lab("logs").stdout
    assert "asia/kafka-0 " in listed
    assert "room.log.1" not in listed
    assert checkout.lab("logs", "asia/room").stdout == "four\n"
    assert checkout.lab("logs", "asia", "-n", "1").stdout == "kafka-0 | three\nroom    | four\n"
    assert "\x1b" not in checkout.lab("logs", "asia/kafka-0").stdout
    mistake = checkout.lab("logs", "asia/romo")
    assert mistake.returncode == 2
    assert said(mistake) == "asia has no log 'romo'; did you mean 'room'?"


def test_a_scenario_that_cannot_be_used_is_refused_with_its_line(checkout: Checkout) -> None:
    file = checkout.root / "playbooks/11-plain/scenario.yaml"
    file.write_text(PLAIN.replace("topics: [X.]", "topic: [X.]"), encoding="utf-8")
    done = checkout.lab("setup", "11-plain")
    assert done.returncode == 2
    assert "playbooks/11-plain/scenario.yaml:3: topic: unknown field" in said(done)
    assert not checkout.runs


def test_an_inventory_is_found_from_where_one_is_and_from_any_folder(checkout: Checkout) -> None:
    own = checkout.root.parent / "my own"
    own.mkdir()
    assert checkout.lab("setup", "11-plain", "-i", "my own").returncode == 0
    assert checkout.runs[0] == ["11-plain/setup.yaml", "-i", str(own)]
    assert checkout.lab("setup", "11-plain", "-i", "my own").returncode == 0
    refused = checkout.lab("setup", "11-plain", "-i", "inventories/local")
    assert f"the lab is set up with {own}" in said(refused)


def test_the_events_of_a_region_may_be_in_anothers_cluster(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout.set_up()
    monkeypatch.setenv("LAB_HOME", str(checkout.home))
    seen: list[Any] = []

    def show(arguments: list[str], prog: str, start: str) -> int:
        seen.extend([arguments, prog, start])
        return 0

    monkeypatch.setattr("loosehanger.events.consume.main", show)
    assert commands.consume(["africa", "--max", "1"]) == 0
    assert seen == [["--config", str(checkout.root / "asia.properties"), "--max", "1"], "lab consume africa", "latest"]


# Status.


def test_status_shows_the_stage_and_leaves_out_regions_that_the_scenario_does_not_use(checkout: Checkout) -> None:
    checkout.set_up()
    document = json.loads(checkout.lab("status", "--json").stdout)
    keys = ["scenario", "platform", "stage", "unfinished", "healthy", "problems", "regions", "flows", "started"]
    keys.append("variables")
    assert list(document) == keys
    assert (document["stage"], document["unfinished"], document["healthy"]) == ("setup", "", True)
    assert list(document["regions"]) == ["asia", "africa", "antarctica"]
    assert "unused" not in checkout.lab("status").stdout


@pytest.mark.parametrize(("stage", "again"), [("setup", "setup 05-switching"), ("failover", "stage failover")])
def test_of_a_lab_that_is_down_status_says_how_to_start_it(checkout: Checkout, stage: str, again: str) -> None:
    down = {"kind": "Kafka", "name": "asia", "healthy": False, "state": "Down", "detail": "process asia is not there"}
    stopped = {"kind": "Deployment", "name": "reader", "healthy": True, "state": "Stopped", "detail": "as it should be"}
    reported = {name: {"resources": [down, stopped]} for name in STATUS}
    (checkout.root / "status.json").write_text(json.dumps(reported), encoding="utf-8")
    checkout.set_up()
    progress = read_progress(checkout.home)
    assert progress
    replace(progress, stage=stage).write(checkout.home)
    said_ = f"Nothing of the lab is running; start it with ./lab {again}\n"
    assert checkout.lab("status").stdout.endswith(said_)
    # Where something runs, what does not is a fault of its own.
    reported["asia"]["resources"].append({**down, "healthy": True, "state": "Running"})
    (checkout.root / "status.json").write_text(json.dumps(reported), encoding="utf-8")
    assert "Nothing of the lab" not in checkout.lab("status").stdout


def test_a_region_of_the_lab_with_nothing_in_it_is_not_healthy(checkout: Checkout) -> None:
    (checkout.root / "status.json").write_text(json.dumps({**STATUS, "africa": {"resources": []}}), encoding="utf-8")
    checkout.set_up()
    done = checkout.lab("status")
    assert done.returncode == 1
    assert "africa\n  Missing" in done.stdout


def test_of_a_region_that_was_deleted_the_record_tells_what_is_lost(checkout: Checkout) -> None:
    (checkout.root / "status.json").write_text(json.dumps({**STATUS, "asia": {"resources": []}}), encoding="utf-8")
    checkout.set_up()
    progress = read_progress(checkout.home)
    assert progress
    replace(progress, lost=("asia",)).write(checkout.home)
    document = json.loads(checkout.lab("status", "--json").stdout)
    reported = [(one["kind"], one["name"], one["state"]) for one in document["regions"]["asia"]]
    assert reported == [("Kafka", "asia", "Lost"), ("Deployment", "reader-a", "Lost"), ("Deployment", "room", "Lost")]
    assert document["healthy"]


# Records of other versions, and broken ones.

OLD = '{"scenario": "03-broadcast", "platform": "local", "inventory": "/some/where"}'


@pytest.mark.parametrize(
    "arguments", [["status"], ["setup", "11-plain"], ["stage"], ["topic", "show"], ["consume", "asia"]]
)
def test_a_lab_of_another_version_is_to_be_cleaned_up_first(checkout: Checkout, arguments: list[str]) -> None:
    (checkout.home / "access").mkdir()
    (checkout.home / "access/lab.json").write_text(OLD, encoding="utf-8")
    done = checkout.lab(*arguments)
    assert done.returncode == 2
    assert said(done) == "another version of the kit has set this lab up; run ./lab cleanup, then the set-up again"


@pytest.mark.parametrize("text", ["", "[]", "{}", '"x"', "{", "\x00"])
@pytest.mark.parametrize("arguments", [["status"], ["setup", "11-plain"], ["scenarios"], ["stage"]])
def test_a_record_that_cannot_be_read_is_named(checkout: Checkout, arguments: list[str], text: str) -> None:
    file = checkout.home / "access/lab.json"
    file.parent.mkdir()
    file.write_text(text, encoding="utf-8")
    done = checkout.lab(*arguments)
    assert done.returncode == 2
    assert f"{file}: the record of the lab cannot be read" in said(done)
    assert "run ./lab cleanup" in said(done)
    assert checkout.lab().returncode == 0, "the list of commands is shown all the same"


@pytest.mark.parametrize(
    ("text", "inventory"), [(OLD, "/some/where"), ("{", "inventories/local"), (None, "inventories/local")]
)
def test_a_clean_up_works_whatever_the_record_is(checkout: Checkout, text: str | None, inventory: str) -> None:
    (checkout.home / "access").mkdir()
    if text is not None:
        (checkout.home / "access/lab.json").write_text(text, encoding="utf-8")
    (checkout.home / "access/asia.json").write_text("{", encoding="utf-8")
    (checkout.home / "monitoring").mkdir()
    (checkout.home / "monitoring/token").write_text("a scraper's token", encoding="utf-8")
    done = checkout.lab("cleanup")
    assert done.returncode == 0, done.stderr
    assert checkout.runs == [["playbooks/cleanup.yaml", "-i", inventory]]
    assert ("warning" in done.stderr) == (text == "{")
    assert not (checkout.home / "access").exists()
    assert not (checkout.home / "monitoring").exists()


def test_a_password_for_the_consoles_is_checked_kept_and_not_inherited(checkout: Checkout) -> None:
    done = checkout.lab("setup", "11-plain", LAB_PASSWORD="short")
    assert (done.returncode, checkout.runs) == (2, [])
    assert "12 to 128 characters" in said(done)
    done = checkout.lab("setup", "11-plain", LAB_PASSWORD="correct-horse-battery")
    assert done.returncode == 0, done.stderr
    path = checkout.home / "access" / "console.password"
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("correct-horse-battery", 0o600)
    assert "LAB_PASSWORD" not in (checkout.home / "inherited").read_text().split()
    assert "correct-horse" not in done.stdout + done.stderr


# Completion.


def completed(checkout: Checkout, *words: str) -> list[str]:
    """What may follow, by the command itself."""
    return [line.partition("\t")[0] for line in checkout.lab("completion", "next", *words).stdout.splitlines()]


def test_what_may_follow_is_known_without_an_installation(bare: Checkout) -> None:
    assert completed(bare, "") == list(COMMANDS)
    assert completed(bare, "s") == ["scenarios", "setup", "stage", "status"]
    assert completed(bare, "setup", "") == ["05-switching", "11-plain"]
    assert completed(bare, "setup", "11-plain", "-i", "") == ["inventories/local", "inventories/strimzi"]
    assert completed(bare, "topic", "s") == ["show", "set"]
    assert completed(bare, "completion", "") == ["bash", "zsh", "fish"]
    assert completed(bare, "status", "--") == ["--help", "--json", "--credentials", "--bundle"]
    assert completed(bare, "cleanup", "--a") == ["--all"]
    for words in (["stage", ""], ["consume", ""], ["setup", "11-plain", ""], ["nope", ""], ["prove", ""]):
        assert completed(bare, *words) == []


def test_what_may_follow_depends_on_what_is_set_up(checkout: Checkout) -> None:
    checkout.set_up()
    assert completed(checkout, "stage", "") == ["setup", "failback", "failover"]
    assert completed(checkout, "consume", "a") == ["africa", "antarctica", "asia"]
    assert completed(checkout, "topic", "set", "as") == ["asia"]
    assert completed(checkout, "topic", "show", "") == ["LH.ORDERS"]
    assert completed(checkout, "topic", "set", "asia", "L") == ["LH.ORDERS"]
    assert completed(checkout, "consume", "asia", "--topic", "") == ["LH.ORDERS"]
    assert completed(checkout, "consume", "africa", "--topic", "") == []
    assert completed(checkout, "client", "asia", "--user", "") == ["a", "b"]
    assert completed(checkout, "logs", "a") == ["africa", "antarctica", "asia"]
    assert {"--headers", "--user", "--partition"} <= set(completed(checkout, "consume", "asia", "--"))
    (checkout.home / "access/lab.json").write_text("{", encoding="utf-8")
    assert completed(checkout, "stage", "") == [], "an error has no place in a line that is being typed"


def in_bash(checkout: Checkout, line: str) -> list[str]:
    """What bash offers when Tab is pressed at the end of a line."""
    words = line.split(" ")
    script = f"""
        source <('{checkout.root}/lab' completion bash)
        COMP_WORDS=({" ".join(f"'{word}'" for word in words)}) COMP_CWORD={len(words) - 1}
        complete -p lab
        _lab
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    registered, *offered = done.stdout.splitlines()
    assert registered == "complete -o default -F _lab lab"
    return [word for word in offered if word]


def test_bash_completes(bare: Checkout) -> None:
    assert in_bash(bare, "./lab se") == ["setup"]
    assert in_bash(bare, "lab setup ") == ["05-switching", "11-plain"]
    assert in_bash(bare, "lab prove --report ") == []


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
def test_the_script_for_zsh_is_understood(bare: Checkout, tmp_path: Path) -> None:
    file = tmp_path / "_lab"
    file.write_text(bare.lab("completion", "zsh").stdout, encoding="utf-8")
    script = f"autoload -U compinit; compinit -D; source '{file}'; print -- $_comps[lab]"
    done = subprocess.run(["zsh", "-fc", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("_lab\n", "")


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
def test_fish_completes(bare: Checkout, tmp_path: Path) -> None:
    script = bare.lab("completion", "fish").stdout

    def offered(line: str) -> list[str]:
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"{script}\ncomplete -C '{line}'"],
            cwd=tmp_path,
            env=bare.variables(HOME=str(tmp_path)),
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stderr == ""
        return [found.partition("\t")[0] for found in done.stdout.splitlines()]

    (tmp_path / "a file").touch()
    assert offered("lab se") == ["setup"]
    assert offered("./lab setup ") == ["05-switching", "11-plain"]
    assert offered("lab status --j") == ["--json"]
    assert offered("lab prove --report a") == ["a file"]


# What stands in several places.


def test_every_command_is_listed_once_and_does_something() -> None:
    listed = [command.name for group in GROUPS.values() for command in group]
    assert len(listed) == len(set(listed))
    assert set(listed) - {"completion"} == set(commands.RUN)


@pytest.mark.parametrize("name", scenario_names())
def test_the_list_of_scenarios_says_what_the_scenario_says(name: str) -> None:
    scenario, outline = read_scenario(name), read_outline(name)
    assert (outline.title, outline.teaches) == (scenario.title, scenario.teaches)
    assert set(scenario.stages) <= set(outline.playbooks)


@pytest.mark.parametrize(
    "line", ["title: >-\n  Plain", "title: Plain\n  and more", 'title: "Pl\\u0061in"', "title:\n  Plain"]
)
def test_a_title_that_the_list_could_not_show_is_refused(tmp_path: Path, line: str) -> None:
    folder = tmp_path / "11-plain"
    folder.mkdir()
    (folder / "setup.yaml").touch()
    (folder / "scenario.yaml").write_text(PLAIN.replace("title: Plain", line), encoding="utf-8")
    with pytest.raises(Exception, match=r"scenario\.yaml:1: title: write it in one line"):
        read_scenario("11-plain", tmp_path)


@pytest.mark.parametrize("shortcut", SHORTCUTS)
def test_a_shortcut_hands_on_its_arguments(checkout: Checkout, shortcut: str) -> None:
    (checkout.root / "lab").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    done = checkout.lab("-e", "two words", "--x=*", program=shortcut)
    assert done.stdout.splitlines() == [*SHORTCUTS[shortcut], "-e", "two words", "--x=*"]
    link = checkout.root.parent / "linked"
    link.symlink_to(checkout.root / shortcut)
    assert subprocess.run([link], capture_output=True, text=True, check=True).stdout.splitlines() == SHORTCUTS[shortcut]


def test_every_shortcut_is_tested() -> None:
    assert {path.name for path in ROOT.glob("*.sh")} == {*SHORTCUTS, "test.sh"}
    assert set(SHORTCUTS["setup-03-broadcast.sh"][1:]) <= set(scenario_names())
