"""What was sold, region by region, from the events that can be read there."""

from __future__ import annotations

import sys

from loosehanger.errors import ExitCode, run_command
from loosehanger.lab import job_options
from loosehanger.lab.record import load_lab
from loosehanger.proof.report import output
from loosehanger.proof.report.output import console
from loosehanger.proof.report.tables import show_aggregates
from loosehanger.proof.session import start_session
from loosehanger.sales.sales import sum_up


def main() -> int:
    """Aggregates what is there now.

    Returns:
        The exit code.

    Raises:
        LabError: a region cannot be read.
    """
    options = job_options.parser("aggregate").parse_args()
    document = sum_up(
        lambda records: start_session("aggregate", records=records), load_lab(), options.products, _report
    )
    if options.json:
        return ExitCode.DONE if output.print_document(document) else ExitCode.FAILED
    show_aggregates(document, console())
    return ExitCode.DONE


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def run() -> int:
    """Runs the job as a program of its own; returns its exit code."""
    output.separate_streams(sys.argv)
    return run_command(main)
