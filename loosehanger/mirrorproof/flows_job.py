"""The job of ``mirrorproof prove --config``: the proof of every flow of a configuration file, in one run."""

from __future__ import annotations

import argparse
import os
import sys

from loosehanger.arguments import Parser
from loosehanger.jobs import prove
from loosehanger.lab import job_options
from loosehanger.mirrorproof.configuration import Configuration, read_configuration
from loosehanger.mirrorproof.prove import add_flows


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
    job_options.check_results(options)


def main() -> int:
    """Runs the proof; returns its exit code."""
    parser = Parser(prog="mirrorproof prove", allow_abbrev=False)
    job_options.prove(parser)
    add_flows(parser)
    options = parser.parse_args()
    if options.config is None:
        parser.error("--config is missing")
    configuration = read_configuration(options.config)
    complete(options, configuration)
    lab = configuration.lab(os.environ, options.flow, lambda line: print(line, file=sys.stderr))
    judge = configuration.judge
    return prove.prove(options, lab, prove.AlsoJudged(judge.order, configuration.groups, judge.groups))


if __name__ == "__main__":
    sys.exit(prove.run(main))
