"""The kit's commands: ``python -P -m loosehanger.cli COMMAND …``, which ``./lab`` runs when everything is installed."""

from __future__ import annotations

import sys

from loosehanger.cli import bootstrap_cli
from loosehanger.errors import ExitCode, run_command


def main() -> int:
    """Runs the command that the arguments name."""
    done = bootstrap_cli.answer(sys.argv[1:], installed=True)
    if done is not None:
        return done
    command, *arguments = sys.argv[1:]
    if command == "status":
        from loosehanger.cli import status  # without what the other commands need

        return status.run(arguments)
    from loosehanger.cli import jobs

    if command in jobs.NAMES and jobs.can_run_here():
        return jobs.run(command, arguments)
    from loosehanger.cli import commands  # slow to import

    return commands.RUN[command](arguments)


if __name__ == "__main__":
    # For a proof, exit code 1 means disproved, so a failure is inconclusive.
    sys.exit(run_command(main, failed=ExitCode.INCONCLUSIVE if sys.argv[1:2] == ["prove"] else ExitCode.FAILED))
