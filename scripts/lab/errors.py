"""Errors a user can do something about, and the exit codes every command of the kit shares."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import IntEnum


class ExitCode(IntEnum):
    """What a command's exit status says."""

    DONE = 0
    FAILED = 1
    """The claim is false, or the work failed."""
    WRONG_USE = 2
    NOTHING_SET_UP = 3
    INCONCLUSIVE = 4


class LabError(Exception):
    """A failure that one line explains: what was wrong, where, and what to do."""

    exit_code = ExitCode.FAILED


class WrongUseError(LabError):
    """The user's input cannot be used; nothing was changed."""

    exit_code = ExitCode.WRONG_USE


class NothingSetUpError(LabError):
    """There is no lab to work on."""

    exit_code = ExitCode.NOTHING_SET_UP


def run_command(main: Callable[[], int]) -> int:
    """Runs a command's body; a ``LabError`` becomes one line on standard error and its exit code.

    An interrupt (Ctrl-C) ends quietly with 130, as shells have it. Anything else is a defect and keeps its traceback.
    """
    try:
        return main()
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return int(error.exit_code)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
