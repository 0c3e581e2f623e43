"""``mirrorproof prove``: proves a mirror between two clusters, or every flow of a configuration file."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from loosehanger.arguments import Parser
from loosehanger.errors import LabError, WrongUseError
from loosehanger.lab import job_options
from loosehanger.mirrorproof.places import cache
from loosehanger.paths import caller_path

ALL_TOPICS = ".*"
_JOB = "job"
_FLOWS_JOB = "flows_job"
_REPORTS_NEED = ("matplotlib", "fpdf")


def add_options(parser: Parser) -> None:
    """Adds the clusters, the proof's options and Spark's."""
    add_clusters(parser, required=False)
    add_flows(parser)
    job_options.between_clusters(parser)
    job_options.any_proof(parser)
    job_options.spark(parser, "~/.cache/mirrorproof")


def add_clusters(parser: Parser, *, required: bool = True) -> None:
    """Adds the client properties of two clusters."""
    number = None if required else "?"
    parser.add_argument(
        "source", type=caller_path, nargs=number, metavar="SOURCE", help="a file with client properties"
    )
    parser.add_argument(
        "target", type=caller_path, nargs=number, metavar="TARGET", help="the same for the cluster with the copies"
    )


def add_flows(parser: Parser) -> None:
    """Adds a configuration file, and the choice of its flows."""
    group = parser.add_argument_group("many flows, in place of SOURCE and TARGET")
    group.add_argument(
        "--config",
        type=caller_path,
        metavar="FILE",
        help="the configuration file; or MM2's properties, a KafkaMirrorMaker2 manifest, Replicator's configuration",
    )
    group.add_argument("--flow", action="append", default=[], metavar="NAME", help="only this flow; can be repeated")


def run(options: argparse.Namespace) -> NoReturn:
    """Becomes the proof's job, whose exit code and signals are the command's own.

    Raises:
        LabError: the job cannot start.
    """
    _check(options)
    arguments = job_arguments(options)
    report = options.report
    if options.config:
        from loosehanger.mirrorproof.configuration import read_configuration  # slow to import

        configuration = read_configuration(options.config)
        # What cannot be used is named before Spark starts.
        configuration.lab(os.environ, options.flow)
        report = report or configuration.results.get("html")
    else:
        job_options.check_prove(job_options.parser("prove").parse_args(arguments))
    if (report or options.pdf) and not all(map(importlib.util.find_spec, _REPORTS_NEED)):
        raise WrongUseError(
            "--report and --pdf need the packages of the extra 'report'; install mirrorproof[report,spark]"
        )
    try:
        start(_FLOWS_JOB if options.config else _JOB, arguments, options)
    except (LabError, OSError) as error:
        from loosehanger.mirrorproof.jars import RepositoryError  # slow to import

        # A repository out of reach is not wrong use of the command.
        if isinstance(error, WrongUseError) and not isinstance(error, RepositoryError):
            raise
        if not importlib.util.find_spec("pyspark"):
            _become_inconclusive(error, arguments)
        from loosehanger.proof.inconclusive import give_up  # slow to import

        raise give_up(error, arguments) from error


def _become_inconclusive(error: Exception, arguments: list[str]) -> NoReturn:
    """Reports the failure by a job that finds the PySpark of the user's own Spark, which this process does not."""
    from loosehanger.mirrorproof.spark import find_spark, python_path  # slow to import

    sys.stdout.flush()
    command = [sys.executable, "-P", "-m", "loosehanger.mirrorproof.inconclusive_job", str(error), *arguments]
    os.execve(  # noqa: S606 (no shell is wanted)
        command[0], command, {**os.environ, "PYTHONPATH": os.pathsep.join(python_path(find_spark()))}
    )


def start(job: str, arguments: list[str], options: argparse.Namespace) -> NoReturn:
    """Replaces this process with a job.

    Args:
        job: the module of this package.
        arguments: the job's.
        options: those about Spark.

    Raises:
        LabError: Spark, Java or the connector is missing.
    """
    from loosehanger.mirrorproof.spark import job_environment  # slow to import

    work: Path = options.work.absolute() if options.work else cache()
    found = job_environment(options.master, options.driver_memory, options.conf, work)
    sys.stdout.flush()
    # Spark creates a folder in its working directory.
    os.chdir(work)
    command = [sys.executable, "-P", "-m", f"loosehanger.mirrorproof.{job}", *arguments]
    os.execve(command[0], command, found)  # noqa: S606 (no shell is wanted)


def _check(options: argparse.Namespace) -> None:
    """Checks that either two clusters are given, or a configuration file.

    Raises:
        WrongUseError: both are, or neither.
    """
    if not options.config:
        if options.flow:
            raise WrongUseError("--flow needs --config")
        if not options.target:
            raise WrongUseError("give --config FILE, or SOURCE and TARGET; mirrorproof prove --help explains")
        return
    of_two = {"SOURCE": options.source, "--topics": options.topics}
    of_two |= {"--groups": options.groups, "--policy": options.policy, "--source-alias": options.source_alias}
    if both := [name for name, value in of_two.items() if value]:
        raise WrongUseError(f"{' and '.join(both)} exclude --config, whose file has clusters, topics and names")


def job_arguments(options: argparse.Namespace) -> list[str]:
    """Returns the options as the job of the proof takes them."""
    given = dict(vars(options))
    arguments = []
    if options.config:
        arguments = [f"--config={options.config}", *(f"--flow={name}" for name in options.flow)]
    else:
        given |= {
            "source_config": options.source,
            "target_config": options.target,
            "topics": options.topics or ALL_TOPICS,
        }
    for action in job_options.parser("prove")._actions:
        value = given.get(action.dest)
        if value is None or value is False:
            continue
        name = action.option_strings[-1]
        text = value.isoformat() if isinstance(value, datetime) else str(value)
        arguments.append(name if value is True else f"{name}={text}")
    return arguments
