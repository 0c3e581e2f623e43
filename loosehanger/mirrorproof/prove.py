"""``mirrorproof prove SOURCE TARGET``: proves a mirror between two clusters."""

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
_REPORT_NEEDS = "matplotlib"


def add_options(parser: Parser) -> None:
    """Adds the clusters, the proof's options and Spark's."""
    add_clusters(parser)
    job_options.between_clusters(parser)
    job_options.any_proof(parser)
    job_options.spark(parser, "~/.cache/mirrorproof")


def add_clusters(parser: Parser) -> None:
    """Adds the client properties of two clusters."""
    parser.add_argument("source", type=caller_path, metavar="SOURCE", help="a file with client properties")
    parser.add_argument("target", type=caller_path, metavar="TARGET", help="the same for the copies' cluster")


def run(options: argparse.Namespace) -> NoReturn:
    """Becomes the proof's job, whose exit code and signals are the command's own.

    Raises:
        LabError: the job cannot start.
    """
    arguments = job_arguments(options)
    job_options.check_prove(job_options.parser("prove").parse_args(arguments))
    if options.report and not importlib.util.find_spec(_REPORT_NEEDS):
        raise WrongUseError("--report needs charts; install mirrorproof[report]")
    try:
        start(arguments, options)
    except WrongUseError:
        raise
    except (LabError, OSError) as error:
        if not importlib.util.find_spec("pyspark"):
            raise
        from loosehanger.proof.inconclusive import give_up  # slow to import

        raise give_up(error, arguments) from error


def start(arguments: list[str], options: argparse.Namespace) -> NoReturn:
    """Replaces this process with the job.

    Raises:
        LabError: Spark, Java or the connector is missing.
    """
    from loosehanger.mirrorproof.spark import job_environment  # slow to import

    work: Path = options.work.absolute() if options.work else cache()
    found = job_environment(options.master, options.driver_memory, options.conf, work)
    sys.stdout.flush()
    # Spark creates a folder in its working directory.
    os.chdir(work)
    job = [sys.executable, "-P", "-m", "loosehanger.mirrorproof.job", *arguments]
    os.execve(job[0], job, found)  # noqa: S606 (no shell is wanted)


def job_arguments(options: argparse.Namespace) -> list[str]:
    """Returns the options as the job of the proof takes them."""
    given = {
        **vars(options),
        "source_config": options.source,
        "target_config": options.target,
        "topics": options.topics or ALL_TOPICS,
    }
    arguments = []
    for action in job_options.parser("prove")._actions:
        value = given.get(action.dest)
        if value is None or value is False:
            continue
        name = action.option_strings[-1]
        text = value.isoformat() if isinstance(value, datetime) else str(value)
        arguments.append(name if value is True else f"{name}={text}")
    return arguments
