"""The kit's commands: ``python -m lab COMMAND``. The wrappers at the top of the checkout call it."""

from __future__ import annotations

import sys

from lab import commands
from lab.errors import run_command

COMMANDS = {
    "setup": commands.setup,
    "cleanup": commands.cleanup,
    "status": commands.status,
    "topic": commands.topic,
    "consumer": commands.consumer,
    "prove": commands.prove,
    "aggregate": commands.aggregate,
    "watch": commands.watch,
}


def main() -> int:
    """Runs the command that the arguments name."""
    command, *arguments = sys.argv[1:]
    return COMMANDS[command](arguments)


if __name__ == "__main__":
    sys.exit(run_command(main))
