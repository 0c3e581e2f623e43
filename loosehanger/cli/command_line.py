"""The command line of ``./lab``: every command with its help and options.

It needs only Python's standard library, so that help, completion and most mistakes need no installation.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loosehanger.arguments import HelpFormatter, Parser, count, number
from loosehanger.cli.columns import beside
from loosehanger.errors import WrongUseError
from loosehanger.experiments.catalogue import EXPERIMENTS
from loosehanger.lab import job_options
from loosehanger.lab.kit_users import ADMINISTRATOR
from loosehanger.lab.link_settings import parse_rate, parse_time
from loosehanger.suggestions import instead

ANSIBLE = "ANSIBLE-ARGUMENT"
OPTION = "OPTION"
SHELLS = ("bash", "zsh", "fish")
"""The shells that ``./lab completion`` has a script for."""
MOST_ROUNDS = 20


def _nothing(parser: Parser) -> None:
    """No options."""


def _nothing_to_check(options: argparse.Namespace) -> None:
    """Accepts any options."""


def _scenarios(parser: Parser) -> None:
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    shown.add_argument(
        "--diagram", metavar="NAME", help="print a scenario's regions, programs and mirrors as a Mermaid flowchart"
    )


def _status(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    parser.add_argument(
        "--credentials", action="store_true", help="show only address, user and password of every web console"
    )
    parser.add_argument(
        "--bundle", metavar="FILE", help="write a support bundle for a maintainer, a tar.gz without secrets"
    )


def _topic(parser: Parser) -> None:
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    show = commands.add_parser("show", help="one topic, or all, in every region")
    show.add_argument("topic", nargs="?", help="as in LH.ORDERS; all topics if left out")
    show.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    change = commands.add_parser("set", help="change settings of a topic, and wait until the mirrors have followed")
    change.add_argument("region")
    change.add_argument("topic")
    change.add_argument("settings", nargs="+", metavar="NAME=VALUE", help="as in retention.ms=3600000, or partitions=6")
    unset = commands.add_parser("unset", help="reset settings of a topic to their defaults, and wait likewise")
    unset.add_argument("region")
    unset.add_argument("topic")
    unset.add_argument("settings", nargs="+", metavar="NAME")
    for command in (change, unset):
        command.add_argument("--only-wait", action="store_true", help="only wait until region and mirrors have it")


@dataclass(frozen=True)
class KafkaTool:
    """One of Kafka's own command-line tools."""

    main_class: str
    about: str


KAFKA_TOOLS = {
    "topics": KafkaTool("org.apache.kafka.tools.TopicCommand", "list, describe, create, alter, delete topics"),
    "configs": KafkaTool("kafka.admin.ConfigCommand", "configurations of topics, brokers, users"),
    "consumer-groups": KafkaTool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "lag, members, reset of offsets"
    ),
    "groups": KafkaTool("org.apache.kafka.tools.GroupsCommand", "groups of every kind"),
    "console-consumer": KafkaTool("org.apache.kafka.tools.consumer.ConsoleConsumer", "read records"),
    "console-producer": KafkaTool("org.apache.kafka.tools.ConsoleProducer", "write a record for each line"),
    "get-offsets": KafkaTool("org.apache.kafka.tools.GetOffsetShell", "first and end offsets"),
    "acls": KafkaTool("org.apache.kafka.tools.AclCommand", "access control lists"),
    "transactions": KafkaTool("org.apache.kafka.tools.TransactionsCommand", "open transactions; abort a hanging one"),
    "log-dirs": KafkaTool("org.apache.kafka.tools.LogDirsCommand", "size of each partition on disk"),
    "delete-records": KafkaTool("org.apache.kafka.tools.DeleteRecordsCommand", "delete records up to an offset"),
    "broker-api-versions": KafkaTool(
        "org.apache.kafka.tools.BrokerApiVersionsCommand", "API versions that brokers support"
    ),
}


def _diff(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def _monitoring(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print the folder, the address and the commands as JSON")


def _logs(parser: Parser) -> None:
    parser.add_argument(
        "what", nargs="?", metavar="REGION[/NAME]", help="the log; without NAME all of a region; left out: a list"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="follow the log until Ctrl-C")
    parser.add_argument("-n", "--lines", metavar="N", type=_lines, default=20, help="how many of the last lines (20)")


def _lines(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 7):
        raise WrongUseError(f"'{text}' is not a number of lines, such as 20")
    return int(text)


def _open(parser: Parser) -> None:
    parser.add_argument(
        "console", nargs="?", metavar="REGION|control-room", help="the console; the one of all regions if left out"
    )
    parser.add_argument(
        "--print", action="store_true", help="print the path of the page that signs in, and start no browser"
    )


def _client(parser: Parser) -> None:
    parser.add_argument("region", metavar="REGION")
    parser.add_argument("--user", default=ADMINISTRATOR, help="the user to sign in as (%(default)s)")
    kinds = parser.add_mutually_exclusive_group()
    for name, about in (
        ("java", "properties of Java clients and of Kafka's own tools (the default)"),
        ("librdkafka", "properties of librdkafka: kcat -F FILE, confluent-kafka and others"),
        ("python", "keyword arguments of kafka-python"),
        ("env", "environment variables, to be sourced by a shell"),
    ):
        kinds.add_argument(f"--{name}", dest="kind", action="store_const", const=name, help=about)
    parser.set_defaults(kind="java")
    parser.add_argument("--show", action="store_true", help="print the settings, password included, and not the path")


def _mirror_properties(parser: Parser) -> None:
    parser.add_argument("mirrors", nargs="*", metavar="REGION/NAME", help="which mirrors; all if left out")
    parser.add_argument("--topics", metavar="REGEX", help="copy these topics, and not those of the manifests")
    parser.add_argument(
        "--alias",
        metavar="PREFIX",
        default="dedicated-",
        help="what the clusters' aliases begin with (dedicated-); with the lab's own aliases, internal topics collide",
    )
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--show", action="store_true", help="print the file, passwords included, and not its path")
    ways.add_argument("--run", action="store_true", help="run MirrorMaker 2 with it, here, until Ctrl-C")


def _produce(parser: Parser) -> None:
    parser.add_argument("region", metavar="REGION")
    parser.add_argument("--topic", required=True, metavar="TOPIC", help="an existing topic")
    parser.add_argument("--key", help="the key of each record; without one, any partition takes it")
    values = parser.add_mutually_exclusive_group()
    values.add_argument("--value", help="the value of each record")
    values.add_argument("--null", action="store_true", help="no value: a tombstone, which needs --key")
    values.add_argument("--file", metavar="FILE", help="one value a line; - for standard input")
    parser.add_argument(
        "--header", action="append", default=[], type=_header, metavar="NAME=VALUE", help="may be repeated"
    )
    parser.add_argument("--partition", type=count(0, 2**31 - 1), metavar="N", help="write to this partition")
    parser.add_argument(
        "--rate", type=number(0, 10_001, "a number of records", above=True), metavar="N",
        help="N records a second, until Ctrl-C; without a value, numbered ones",
    )  # fmt: skip
    parser.add_argument("--count", type=count(1), metavar="N", help="N records at most")
    parser.add_argument(
        "--seconds", type=number(0, 1_000_000, "a number of seconds", above=True), metavar="S", help="S seconds at most"
    )
    parser.add_argument("--user", default=ADMINISTRATOR, help="the user to sign in as (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON document for each record")


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE, for example source=test")
    return name, value


def _check_produce(options: argparse.Namespace) -> None:
    if options.null and options.key is None:
        raise WrongUseError("--null needs --key: a tombstone deletes the records of a key")
    given = options.value is not None or options.null or options.file is not None
    if not given and options.rate is None:
        raise WrongUseError("name what to write: --value, --null, --file or --rate; ./lab produce --help explains")


def _kafka(parser: Parser) -> None:
    parser.add_argument("--user", metavar="USER", help="before TOOL: the user to sign in as (admin)")


def _link(parser: Parser) -> None:
    parser.add_argument("regions", nargs="*", metavar="REGION", help="two regions; every link if left out")
    for name, read, such_as in (
        ("delay", parse_time, "added one-way delay: 80ms, 0.5s; 0ms for none"),
        ("jitter", parse_time, "variation of the delay, up and down: 5ms"),
        ("rate", parse_rate, "bytes a second for all connections together: 20MB/s, 100Mbit/s; or unlimited"),
    ):
        parser.add_argument(f"--{name}", type=read, metavar=name.upper(), help=such_as)
    parser.add_argument("--one-way", action="store_true", help="only the direction from the first region to the second")
    parser.add_argument(
        "--outbound-only", action=argparse.BooleanOptionalAction,
        help="put a firewall around the first region, which refuses all connections from the second, or take it away",
    )  # fmt: skip
    actions = parser.add_mutually_exclusive_group()
    for name, about in (
        ("cut", "refuse new connections, and reset open ones"),
        ("silent", "accept all data, and deliver none"),
        ("heal", "end a cut or a silence; after a silence all connections continue"),
        ("forget", "end it likewise, but drop data in flight, and reset every connection"),
    ):
        actions.add_argument(f"--{name}", dest="action", action="store_const", const=name, help=about)
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def _check_link(options: argparse.Namespace) -> None:
    shaped = options.action or any(getattr(options, name) is not None for name in ("delay", "jitter", "rate"))
    changes = shaped or options.outbound_only is not None
    if len(options.regions) not in (0, 2):
        raise WrongUseError("name the two regions of a link, for example ./lab link REGION REGION --delay 80ms")
    if options.regions and options.regions[0] == options.regions[1]:
        raise WrongUseError(f"{options.regions[0]} has no link to itself; name two regions")
    if changes and not options.regions:
        raise WrongUseError("name the two regions of the link to change, for example ./lab link REGION REGION --heal")
    if options.one_way and not shaped:
        raise WrongUseError("--one-way needs a change, for example --delay 80ms")
    if options.one_way and options.action in ("cut", "forget"):
        raise WrongUseError(
            f"--{options.action} closes connections in both directions; use --silent --one-way to stop one direction"
        )


def _experiment(parser: Parser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="which one; left out, they are listed")
    parser.add_argument("--source", metavar="REGION", help="the region where records are written (the first mirror's)")
    parser.add_argument("--target", metavar="REGION", help="the region that has a copy (the first mirror's)")
    parser.add_argument("--rounds", metavar="N", type=_rounds, help="number of repetitions (3)")
    parser.add_argument("--quick", action="store_true", help="one round with fewer steps: within 4 minutes")
    parser.add_argument("--output", metavar="FOLDER", help="where NAME.html and NAME.json go (.lab/experiments)")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def _rounds(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_ROUNDS:
        raise WrongUseError(f"'{text}' is not a number of rounds from 1 to {MOST_ROUNDS}")
    return int(text)


def _check_experiment(options: argparse.Namespace) -> None:
    if options.name is None:
        if options.quick or any(getattr(options, name) for name in ("source", "target", "rounds", "output")):
            raise WrongUseError(f"name an experiment: {', '.join(EXPERIMENTS)}")
    elif options.name not in EXPERIMENTS:
        hint = instead(options.name, EXPERIMENTS, "the experiments are")
        raise WrongUseError(f"there is no experiment '{options.name}'{hint}")
    if options.source and options.source == options.target:
        raise WrongUseError(f"{options.source} cannot be both source and target; name two regions")


def _fault(parser: Parser) -> None:
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="the faults of the catalogue, and which the lab can have")
    inject = commands.add_parser("inject", help="break one thing, as it breaks in the field")
    inject.add_argument("name", nargs="?", metavar="NAME", help="which fault")
    inject.add_argument(
        "--surprise", nargs="?", const=0, type=_level, metavar="LEVEL",
        help="one that is not named, of a level from 1 (a tool names it) to 3 (nothing plain shows it)",
    )  # fmt: skip
    inject.add_argument(
        "--exercise", type=_number, metavar="NUMBER",
        help="one that is not named, of the exercises that the scenario has",
    )  # fmt: skip
    inject.add_argument("--mirror", metavar="REGION/NAME", help="the mirror (the first that runs and fits)")
    inject.add_argument("--source", metavar="REGION", help="the mirror's source")
    inject.add_argument("--target", metavar="REGION", help="the mirror's target")
    inject.add_argument("--topic", help="a topic that the mirror copies (the first with records)")
    guess = commands.add_parser("guess", help="was that the surprise? and how others would have found it")
    guess.add_argument("name", metavar="NAME")
    heal = commands.add_parser("heal", help="undo a fault, or all of them, the last one first")
    heal.add_argument("name", nargs="?", metavar="NAME", help="which fault (all)")
    status = commands.add_parser("status", help="what is injected; a surprise is not named before it is found")
    for command in (listing, inject, guess, heal, status):
        command.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def _level(text: str) -> int:
    if text not in ("1", "2", "3"):
        raise WrongUseError(f"'{text}' is not a level from 1 to 3; a surprise has no name")
    return int(text)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 4):
        raise WrongUseError(f"'{text}' is not the number of an exercise, such as 1")
    return int(text)


def _check_fault(options: argparse.Namespace) -> None:
    if options.command == "inject" and options.exercise is not None:
        given = {"NAME": options.name, "--surprise": options.surprise, "--mirror": options.mirror}
        given |= {"--source": options.source, "--target": options.target, "--topic": options.topic}
        if more := [word for word, value in given.items() if value is not None]:
            raise WrongUseError(f"an exercise names all of it; leave out {more[0]} or --exercise")
    elif options.command == "inject":
        if options.name is None and options.surprise is None:
            raise WrongUseError("name a fault, or ask for one with --surprise; ./lab fault list shows them")
        if options.name is not None and options.surprise is not None:
            raise WrongUseError(f"name a fault or ask for a surprise, not both; leave out {options.name} or --surprise")
        if options.source and options.source == options.target:
            raise WrongUseError(f"{options.source} cannot be both source and target; name two regions")


def _cleanup(parser: Parser) -> None:
    parser.add_argument("--all", action="store_true", help="also remove the installation in .lab")
    parser.add_argument(
        "--keep-password", action="store_true", help="keep the consoles' password of LAB_PASSWORD for the next set-up"
    )


def _job(add: Callable[[Parser], None]) -> Callable[[Parser], None]:
    def both(parser: Parser) -> None:
        add(parser)
        job_options.spark(parser)

    return both


def _prefetch(parser: Parser) -> None:
    parser.add_argument(
        "--from", dest="source", metavar="FILE", help="install what export-install has written, without a network"
    )


def _export_install(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", help="the file to write: a tar archive of about 800 MB")
    parser.add_argument("--platform", help="linux-x86_64, linux-aarch64 or macos-arm64 (this machine's)")
    parser.add_argument("--python", choices=("3.11", "3.12", "3.13"), help="the Python that it is for (this one)")


def _learn(parser: Parser) -> None:
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    parser.set_defaults(command="list", json=False, no_setup=False)
    parser.add_argument(
        "--report-to", metavar="URL", help="share your progress with a room: https://HOST:PORT/CODE, or off to stop"
    )
    parser.add_argument("--name", default="", metavar="NAME", help="with --report-to: your name on the room's page")
    parser.add_argument(
        "--collect", metavar="ADDRESS", help="show a room's progress: listens on HOST or HOST:PORT, over TLS"
    )
    parser.add_argument(
        "--new-code", action="store_true", help="with --collect: a new room, with a new join code and password"
    )
    for name, about in (
        ("list", "the labs and their exercises, and your progress"),
        ("start", "begin an exercise: brings the lab to its beginning, and records the lab's state there"),
        ("check", "is it done? and if not, what is missing, and where to look"),
        ("hint", "where to look; each time a little more"),
        ("solve", "do it for you, and say what was done and why"),
        ("reset", "bring the lab to the beginning of the exercise again"),
        ("next", "begin the next exercise"),
    ):
        command = commands.add_parser(name, help=about)
        if name not in ("list", "next"):
            command.add_argument(
                "exercise", nargs="?", metavar="EXERCISE", help="LAB/NUMBER, or NUMBER; the current one if left out"
            )
        if name == "start":
            command.add_argument(
                "--no-setup", action="store_true", help="fail where the lab is not at the exercise's beginning already"
            )
        command.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def _check_learn(options: argparse.Namespace) -> None:
    if options.report_to and options.collect:
        raise WrongUseError("--report-to is for a learner and --collect for the trainer; leave one out")
    if (options.report_to or options.collect) and (options.command != "list" or options.json):
        raise WrongUseError("--report-to and --collect stand alone; leave the command and --json out")
    if options.name and not options.report_to:
        raise WrongUseError("--name goes with --report-to; add it, or leave --name out")
    if options.new_code and not options.collect:
        raise WrongUseError("--new-code goes with --collect; add it, or leave --new-code out")


def _exercise(parser: Parser) -> None:
    parser.add_argument(
        "action", choices=("undo",), help="restore the scenario's YAML files as they were at the set-up"
    )


def _completion(parser: Parser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="which shell")


def consume_parser() -> argparse.ArgumentParser:
    """The parser of ``./lab consume REGION``: that of the consumer, and the user to sign in as."""
    from loosehanger.events.options import parser  # only this command needs it

    command = parser({}, "lab consume REGION", "latest")
    command.add_argument("--user", help="the user to sign in as (the region's consumer)")
    return command


@dataclass(frozen=True)
class Command:
    """One command of ``./lab``."""

    name: str
    arguments: str
    """Its positional arguments, for the usage line."""
    summary: str
    """Its purpose, in the list of commands."""
    description: str
    """Its purpose, in its own help."""
    further: str = ""
    """Arguments that it passes on: ``ANSIBLE`` to Ansible, ``OPTION`` to a program with a help of its own."""
    needs_lab: bool = True
    """Whether it needs a lab that is set up."""
    exit_codes: str = "0 done, 1 it failed"
    """The meanings of 0, 1 and 4."""
    more: str = ""
    """Additional help, such as examples."""
    options: Callable[[Parser], None] = _nothing
    """Adds its own options."""
    check: Callable[[argparse.Namespace], None] = _nothing_to_check
    """Checks that its options fit together."""

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parses a command line without arguments to pass on.

        Raises:
            WrongUseError: it is invalid.
        """
        options = self.parser().parse_args(arguments)
        self.check(options)
        return options

    def parser(self) -> Parser:
        """The parser of its own arguments."""
        further = f"[{self.further} ...]" if self.further else ""
        given = " ".join(filter(None, ("lab", self.name, self.arguments, further)))
        codes = f"{self.exit_codes}, 2 wrong use (nothing was changed){', 3 nothing is set up' * self.needs_lab}"
        parser = Parser(
            prog=f"lab {self.name}",
            usage=given if further else None,
            description=self.description,
            epilog="\n\n".join(filter(None, (self.more, f"exit codes: {codes}"))),
            formatter_class=HelpFormatter,
            allow_abbrev=False,
        )
        self.options(parser)
        return parser

    def take_name(self, arguments: Sequence[str], what: str) -> tuple[str, list[str]]:
        """Splits off the name at the beginning of a command's arguments.

        Args:
            arguments: the arguments after the command.
            what: the kind of name, and the known names, for the message.

        Raises:
            WrongUseError: the arguments do not begin with a name.
        """
        if not arguments or arguments[0].startswith("-"):
            self.parser().error(f"name {what}")
        return arguments[0], list(arguments[1:])


_OFTEN_USED = """\
often used:
  -i inventories/strimzi   another platform than this machine's processes
  -e kafka_replicas=3      three Kafka nodes in every region
  -e my_name=value         a variable of your own; other names that the kit does not know are refused
  --check --diff           only show what would change
  -v, -vvv                 Ansible's own output, and more of it"""

GROUPS = {
    "Choose a scenario, and set it up": (
        Command(
            name="scenarios",
            arguments="",
            summary="list the scenarios: what each teaches, and which one is set up",
            description="Lists the scenarios: what each teaches, and which one is set up.",
            needs_lab=False,
            options=_scenarios,
        ),
        Command(
            name="setup",
            arguments="NAME",
            summary="set a scenario up; a second time it changes nothing, and says so",
            description="Sets the scenario NAME up. The first run installs everything it needs into .lab; a second run "
            "changes nothing. Further arguments go to ansible-playbook.",
            further=ANSIBLE,
            needs_lab=False,
            exit_codes="0 done, 1 the work failed",
            more=f"{_OFTEN_USED}\n\n"
            "variables: LAB_PORT_BASE (19000: ports from 19100 on), LAB_HOME (.lab), LAB_PYTHON, LAB_MAVEN_REPOSITORY, "
            "NO_COLOR, LAB_PASSWORD (of all web consoles)",
        ),
        Command(
            name="stage",
            arguments="[NAME]",
            summary="take it to its next stage, such as a failover; without NAME, which there are",
            description="Takes the scenario that is set up to its stage NAME, such as a failover. Without NAME it "
            "lists the stages, and which may run now. A stage that was interrupted may always run again. Further "
            "arguments go to ansible-playbook.",
            further=ANSIBLE,
            exit_codes="0 done, 1 the work failed, or with --dry-run: a condition does not hold",
            more="--dry-run   only list the conditions of the stage, and whether they hold\n"
            "--force     begin although a condition does not hold; ./lab prove shows the consequences",
        ),
    ),
    "Look at it": (
        Command(
            name="status",
            arguments="",
            summary="is everything healthy? with --credentials: how to sign in to the web consoles",
            description="Every cluster, mirror, producer and consumer: healthy or not, and why not.",
            exit_codes="0 all healthy, 1 something is not, 4 a running mirror's lag could not be measured",
            options=_status,
        ),
        Command(
            name="diff",
            arguments="",
            summary="what the manifests say and the lab does not have yet",
            description="Compares the scenario's manifests with what was applied of them, and checks them as a set-up "
            "does. It changes nothing.",
            exit_codes="0 the lab is as they say, 1 it is not",
            options=_diff,
        ),
        Command(
            name="open",
            arguments="[REGION]",
            summary="a web console in your browser, signed in",
            description="Opens a region's web console in your browser, or the one of all regions, and signs you in. "
            "The browser gets a file that only you can read. It signs in once, within 30 seconds, and no address "
            "contains a password or a token.",
            options=_open,
        ),
        Command(
            name="consume",
            arguments="REGION",
            summary="the events of a region, as they arrive there",
            description="Shows the events of a region as they arrive there, until Ctrl-C. --from earliest begins with "
            "the oldest events.",
            further=OPTION,
        ),
        Command(
            name="produce",
            arguments="REGION --topic TOPIC",
            summary="write records: one, the lines of a file, or so many a second",
            description="Writes records to a topic of a region's cluster, and prints the partition and offset of each "
            "one that all in-sync replicas have.",
            exit_codes="0 all were acknowledged, 1 not all, 4 a record may or may not be there",
            more="for example:\n"
            "  ./lab produce REGION --topic LH.ORDERS --key 17 --value '{\"id\": 17}' --header source=test\n"
            "  ./lab produce REGION --topic LH.ORDERS --rate 5 --seconds 60\n"
            "  ./lab produce REGION --topic LH.ORDERS --file - <orders.json",
            options=_produce,
            check=_check_produce,
        ),
        Command(
            name="doctor",
            arguments="",
            summary="can this machine run a lab? is the one that is set up healthy, and what comes next?",
            description="Checks memory, disk, ports, network and the remains of an earlier lab; and of the lab that is "
            "set up, the health of everything. Each problem has a remedy beside it.",
            needs_lab=False,
            exit_codes="0 no problem, 1 a problem, 4 a running mirror's lag could not be measured",
        ),
        Command(
            name="prefetch",
            arguments="",
            summary="install everything now, and check the machine, so that a set-up needs no network",
            description="Installs everything that labs need into .lab, from the network or from a file of "
            "export-install, and checks memory, disk, ports and proxy as doctor does.",
            needs_lab=False,
            exit_codes="0 no problem, 1 a problem, or the installation failed",
            options=_prefetch,
        ),
        Command(
            name="export-install",
            arguments="FILE",
            summary="the installation in one file, for machines without a network",
            description="Fetches the wheels that the locks list, for one platform and Python, and writes them with the "
            "jars into one file. It holds no secrets and no environment. Each is checked by its hash, here and there.",
            needs_lab=False,
            more="on the other machine, in a clone of the same version:\n  ./lab prefetch --from FILE",
            options=_export_install,
        ),
        Command(
            name="logs",
            arguments="[REGION[/NAME]]",
            summary="the logs of brokers, mirrors, producers and consumers",
            description="Shows the last lines of a log, and follows it with -f. Without an argument it lists the logs "
            "of every region.",
            options=_logs,
        ),
        Command(
            name="monitoring",
            arguments="",
            summary="a ready configuration of Prometheus, Alertmanager and Grafana for this lab",
            description="Writes the configuration, the rules and the dashboards to .lab/monitoring, and shows the "
            "commands that start Prometheus, Alertmanager and Grafana with them: what is installed, else containers.",
            options=_monitoring,
        ),
        Command(
            name="watch",
            arguments="",
            summary="every region live, and which records are in flight or missing",
            description="Shows orders, stock, doors and sensors of every region live, and which records are in flight "
            "or missing.",
            exit_codes="0 ended by Ctrl-C or --for, 1 a region cannot be read",
            options=_job(job_options.watch),
            check=job_options.check_watch,
        ),
        Command(
            name="aggregate",
            arguments="",
            summary="the sales, as each region sees them",
            description="Adds up the sales from the events that can be read in each region.",
            options=_job(job_options.aggregate),
        ),
    ),
    "Change it": (
        Command(
            name="topic",
            arguments="",
            summary="topics side by side in all regions; change one, and see the mirrors follow",
            description="Shows topics side by side in all regions, and changes their configuration.",
            exit_codes="0 done, 1 the change was not applied everywhere",
            options=_topic,
        ),
        Command(
            name="link",
            arguments="[REGION REGION]",
            summary="the network links between regions; make them slow, cut them, heal them",
            description="Shows the links between regions with their traffic, and changes them while everything runs. "
            "Settings that are not named stay as they are.",
            more="for example:\n"
            "  ./lab link                                        every link\n"
            "  ./lab link ONE OTHER --delay 80ms --rate 20MB/s   both directions of the link between two regions\n"
            "  ./lab link ONE OTHER --silent --one-way           no data from ONE arrives in OTHER\n"
            "  ./lab link ONE OTHER --outbound-only              ONE opens connections to OTHER, and lets none in\n"
            "  ./lab link ONE OTHER --heal                       everything continues",
            options=_link,
            check=_check_link,
        ),
    ),
    "Use your own tools": (
        Command(
            name="client",
            arguments="REGION",
            summary="settings for a client of your own: Java, librdkafka, Python, environment",
            description="Writes the settings with which a client reaches a region's cluster into a file that only "
            "you can read, and shows its path.",
            options=_client,
        ),
        Command(
            name="mirror-properties",
            arguments="[REGION/NAME ...]",
            summary="the mirrors as a properties file, for MirrorMaker 2's dedicated mode",
            description="Writes what the manifests say of the mirrors into a file that only you can read, as "
            "connect-mirror-maker.sh takes it, and shows its path. docs/dedicated-mode.md explains it.",
            options=_mirror_properties,
        ),
        Command(
            name="kafka",
            arguments="REGION TOOL",
            summary="Kafka's own command-line tools, signed in",
            description="Runs one of Kafka's own command-line tools on a region's cluster. Further arguments go to "
            "the tool; --bootstrap-server and --command-config are given.",
            further=OPTION,
            exit_codes="the tool's own",
            more="tools:\n"
            + "\n".join(f"  {name:<20}{tool.about}" for name, tool in KAFKA_TOOLS.items())
            + "\n\nfor example:\n"
            "  ./lab kafka REGION topics --describe --topic LH.ORDERS\n"
            "  ./lab kafka REGION consumer-groups --describe --all-groups\n"
            "  ./lab kafka REGION --user USER console-consumer --topic LH.ORDERS --max-messages 3",
            options=_kafka,
        ),
    ),
    "Prove it": (
        Command(
            name="prove",
            arguments="",
            summary="did everything arrive, once and unchanged? numbers, and an exit code",
            description="Compares, record by record, the sources of the mirrors with their targets.",
            exit_codes="0 proved, 1 disproved, 4 inconclusive",
            options=_job(job_options.prove),
            check=job_options.check_prove,
        ),
    ),
    "Measure it": (
        Command(
            name="experiment",
            arguments="[NAME]",
            summary="what distance costs: readers, writers and compression across the ocean",
            description="Measures what distance costs on the lab that is set up, and sums up the result in a sentence. "
            "Without NAME it lists the experiments. It changes the link between two regions while it runs, and "
            "restores it afterwards; it uses topics of its own, and deletes them.",
            options=_experiment,
            check=_check_experiment,
        ),
    ),
    "Learn with it": (
        Command(
            name="learn",
            arguments="",
            summary="the exercises of the labs: begin one, have it checked, get a hint, continue",
            description="Lists the exercises of the labs, checks by the lab's state whether one is done, helps, and "
            "keeps your progress in .lab/learn.json, on this machine only unless you join a room with "
            "--report-to. A clean-up keeps it.",
            needs_lab=False,
            exit_codes="0 done, 1 the exercise is not done yet, or the work failed",
            more="for example:\n  ./lab learn list\n  ./lab learn start LAB/2\n  ./lab learn check\n"
            "  ./lab learn next\n"
            "  ./lab learn --collect 192.168.1.5      for a trainer: a room's progress\n"
            "  ./lab learn --report-to https://192.168.1.5:19443/CODE --name Kim",
            options=_learn,
            check=_check_learn,
        ),
        Command(
            name="fault",
            arguments="",
            summary="break one thing as it breaks in the field, find it, and mend it",
            description="Injects faults of a catalogue into the lab that is set up, and heals them. Each can be "
            "undone, and a clean-up needs no healing. docs/faults.md shows what each tool says of each fault.",
            exit_codes="0 done, 1 it failed, or a guess was wrong",
            more="for example:\n"
            "  ./lab fault list\n"
            "  ./lab fault inject connector-paused\n"
            "  ./lab fault inject --surprise 1\n"
            "  ./lab fault inject --exercise 1\n"
            "  ./lab fault guess connector-paused\n"
            "  ./lab fault heal",
            options=_fault,
            check=_check_fault,
        ),
        Command(
            name="exercise",
            arguments="undo",
            summary="undo the changes of an exercise to the scenario's files",
            description="Restores the YAML files of the scenario that is set up as they were at its first set-up, and "
            "keeps your versions in .lab/access/undone. Running the set-up or stage again applies them.",
            options=_exercise,
        ),
    ),
    "End it": (
        Command(
            name="cleanup",
            arguments="[--all] [--keep-password]",
            summary="delete everything that the lab made, and nothing else",
            description="Stops and deletes everything that the lab made, and nothing else, without confirmation. "
            "Further arguments go to ansible-playbook.",
            further=ANSIBLE,
            needs_lab=False,
            exit_codes="0 done, 1 something could not be deleted",
            options=_cleanup,
        ),
    ),
    "In your shell": (
        Command(
            name="completion",
            arguments="|".join(SHELLS),
            summary="a script with which the shell completes commands, options and names",
            description="Prints a script with which the shell completes commands, options, and the names of scenarios, "
            "stages, regions, topics, users and mirrors.",
            needs_lab=False,
            more="for this session:    source <(./lab completion bash)\n"
            "                     ./lab completion fish | source\n"
            "for every session:   ./lab completion bash >>~/.bashrc\n"
            "                     ./lab completion fish >~/.config/fish/completions/lab.fish",
            options=_completion,
        ),
    ),
}
"""Every command, in the order of the list."""
COMMANDS = {command.name: command for commands in GROUPS.values() for command in commands}


def overview() -> str:
    """The text that ``./lab`` without arguments prints."""
    listed = [f"{command.name} {command.arguments}" for command in COMMANDS.values()]
    width = max(map(len, listed)) + 2
    about = "Event streaming across regions with Apache Kafka and MirrorMaker 2: a lab that proves what it shows."
    lines = ["usage: ./lab COMMAND [ARGUMENT ...]", "", beside("", about)]
    for title, commands in GROUPS.items():
        lines += ["", title]
        lines += [beside(f"  {f'{one.name} {one.arguments}':<{width}}", one.summary) for one in commands]
    lines += [
        "",
        "./lab COMMAND --help explains a command.",
        "exit codes: 0 done; 1 it failed, or the claim is false; 2 wrong use, and",
        "            nothing was changed; 3 nothing is set up; 4 inconclusive",
    ]
    return "\n".join(lines)


def wants_help(arguments: Sequence[str]) -> bool:
    """Whether the arguments ask for help."""
    return bool({"-h", "--help"} & set(arguments))
