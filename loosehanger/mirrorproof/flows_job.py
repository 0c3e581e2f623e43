"""The job of ``mirrorproof prove --config``: the proof of every flow of a configuration file, in one run."""

from __future__ import annotations

import argparse
import os
import sys

from loosehanger.arguments import Parser
from loosehanger.jobs import prove
from loosehanger.lab import job_options
from loosehanger.mirrorproof.configuration import Configuration, read_configuration
from loosehanger.paths import caller_path


def add_options(parser: Parser) -> None:
    """Adds the file and the choice of flows."""
    group = parser.add_argument_group("many flows, in place of two clusters")
    group.add_argument(
        "--config",
        type=caller_path,
        metavar="FILE",
        help="the configuration file; or MM2's properties, a KafkaMirrorMaker2 manifest, Replicator's configuration",
    )
    group.add_argument("--flow", action="append", default=[], metavar="NAME", help="only this flow; can be repeated")


def complete(options: argparse.Namespace, configuration: Configuration) -> None:
    """Takes from the file what the command line leaves open.

    Raises:
        WrongUseError: a result cannot be written where it is wanted.
    """
    results = configuration.results
    options.report = options.report or results.get("html")
    options.junit = options.junit or results.get("junit")
    options.json_file = results.get("json")
    options.configs = options.configs or configuration.judge.settings
    for path in filter(None, (options.report, options.junit, options.json_file)):
        job_options.check_writable(path)


def main() -> int:
    """Runs the proof; returns its exit code."""
    parser = Parser(prog="mirrorproof prove", allow_abbrev=False)
    job_options.prove(parser)
    add_options(parser)
    options = parser.parse_args()
    if options.config is None:
        parser.error("--config is missing")
    configuration = read_configuration(options.config)
    complete(options, configuration)
    lab = configuration.lab(os.environ, options.flow, lambda line: print(line, file=sys.stderr))
    return prove.prove(options, lab, configuration.judge.order)


if __name__ == "__main__":
    sys.exit(prove.run(main))
