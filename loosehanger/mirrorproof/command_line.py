"""The command line of ``mirrorproof``: its sub-commands, their help and their exit codes.

Help needs the standard library only: a sub-command's module imports at its top what its options need, and the rest when
it runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import NoReturn

from loosehanger.arguments import Parser
from loosehanger.errors import ExitCode, WrongUseError, run_command
from loosehanger.suggestions import did_you_mean
from loosehanger.version import PROGRAM, version


@dataclass(frozen=True)
class SubCommand:
    """A sub-command; its module has ``add_options(parser)`` and ``run(options)``, which returns the exit code."""

    about: str
    module: str
    exit_codes: str
    failed: ExitCode = ExitCode.FAILED
    """The exit code of a failure that has none of its own."""

    def load(self) -> ModuleType:
        """Imports its module."""
        return import_module(f"loosehanger.mirrorproof.{self.module}")

    def parser(self, name: str) -> ToolParser:
        """Its parser, with its options."""
        made = ToolParser(
            prog=f"{PROGRAM} {name}",
            description=self.about,
            epilog=f"exit codes: {self.exit_codes}",
            allow_abbrev=False,
        )
        self.load().add_options(made)
        return made


class ToolParser(Parser):
    """A parser whose errors name this command's help."""

    def error(self, message: str) -> NoReturn:
        """Raises an error that names the problem and the help."""
        raise WrongUseError(f"{message}; {self.prog} --help explains")


SUB_COMMANDS: dict[str, SubCommand] = {
    "prove": SubCommand(
        "Compares two clusters, record by record.",
        "prove",
        "0 proved, 1 disproved, 2 wrong use, 4 inconclusive or failed",
        failed=ExitCode.INCONCLUSIVE,
    ),
    "watch": SubCommand(
        "Audits mirrors while records flow: what is missing, doubled or altered, how late, and what may be lost next.",
        "watch",
        "0 ended by Ctrl-C or --for, 1 a cluster cannot be read at the start, 2 wrong use",
    ),
    "plan": SubCommand(
        "Shows what a proof of a configuration's flows would compare, and what it could not.",
        "plan",
        "0 everything would be compared, 1 something would not, 2 wrong use, 4 a cluster does not answer",
    ),
    "doctor": SubCommand(
        "Checks both clusters: reachable, signed in, rights, advertised addresses.",
        "doctor",
        "0 a proof can run, 1 a check failed, 2 wrong use",
    ),
    "demo": SubCommand(
        "Starts two brokers on this machine, and shows a proof of a faulty copy and of a whole one.",
        "demo",
        "0 both proofs were right, 1 failed, 2 wrong use",
    ),
    "verify": SubCommand(
        "Checks evidence: whether it is as it was signed, and whether the clusters still hold what was compared.",
        "verify",
        "0 intact, and everything is still there; 1 not as it was signed, or records were changed since; 2 wrong use; "
        "4 intact, but not everything can be read any more",
        failed=ExitCode.INCONCLUSIVE,
    ),
    "key": SubCommand(
        "Makes a pair of keys to sign evidence with, in minisign's format.",
        "key",
        "0 done, 1 failed, 2 wrong use",
    ),
    "jars": SubCommand(
        "Fetches the jars of Spark's Kafka connector into a folder, for a machine without a repository.",
        "connector",
        "0 done, 1 failed, 2 wrong use",
    ),
}
"""By name, in the order in which help shows them."""


def main(arguments: Sequence[str]) -> int:
    """Runs a sub-command.

    Args:
        arguments: its name and arguments.

    Raises:
        LabError: it fails, or the arguments cannot be used.
    """
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return ExitCode.DONE
    name, *rest = arguments
    if name in ("--version", "version"):
        print(f"{PROGRAM} {version()}")
        return ExitCode.DONE
    if name not in SUB_COMMANDS:
        hint = did_you_mean(name, SUB_COMMANDS) or f"; {PROGRAM} --help lists them"
        raise WrongUseError(f"there is no sub-command '{name}'{hint}")
    command = SUB_COMMANDS[name]
    options: argparse.Namespace = command.parser(name).parse_args(rest)
    return int(command.load().run(options))


def overview() -> str:
    """The help of the command itself."""
    width = max(map(len, SUB_COMMANDS), default=0) + 2
    listed = "".join(f"\n  {name:<{width}}{command.about}" for name, command in SUB_COMMANDS.items())
    return (
        f"usage: {PROGRAM} COMMAND …\n\n"
        "Proves, record by record, that a mirror copied everything between two Kafka clusters, whatever tool copies.\n"
        f"{listed}\n\n"
        f"{PROGRAM} COMMAND --help explains a command; {PROGRAM} --version names the version."
    )


def run() -> int:
    """The entry point: runs the command, and returns its exit code."""
    arguments = sys.argv[1:]
    command = SUB_COMMANDS.get(arguments[0]) if arguments else None
    return run_command(lambda: main(arguments), failed=command.failed if command else ExitCode.FAILED)


if __name__ == "__main__":
    sys.exit(run())
