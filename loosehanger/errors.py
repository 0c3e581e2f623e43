"""Errors that a user can do something about, and the exit codes that all commands share.

``scripts/install.py`` has errors of its own: it runs before this package is installed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Callable
from enum import IntEnum
from typing import TextIO


class ExitCode(IntEnum):
    """What a command's exit status means."""

    DONE = 0
    FAILED = 1
    """The claim is false, or the work failed."""
    WRONG_USE = 2
    NOTHING_SET_UP = 3
    INCONCLUSIVE = 4


_ROOM = "make room on that disk"
_RIGHTS = "use a folder that you may write to, such as another LAB_HOME"
_OF_THE_MACHINE = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: _ROOM,
    errno.EROFS: _RIGHTS,
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
}
"""What is not a defect: a full or read-only disk, a missing permission; and the remedy."""


class LabError(Exception):
    """A failure that one line explains: what is wrong, where, and the remedy."""

    exit_code = ExitCode.FAILED
    shown = False
    """Whether the command has shown output before it."""


class WrongUseError(LabError):
    """The user's input cannot be used; nothing was changed."""

    exit_code = ExitCode.WRONG_USE


class NothingSetUpError(LabError):
    """No lab is set up."""

    exit_code = ExitCode.NOTHING_SET_UP


class InconclusiveError(LabError):
    """The question has no certain answer now."""

    exit_code = ExitCode.INCONCLUSIVE


class UnreachableError(LabError):
    """A cluster, a mirror's workers or an API server does not answer in time, or refuses the connection or the user."""


def run_command(main: Callable[[], int], failed: ExitCode = ExitCode.FAILED) -> int:
    """Runs a command's body; a ``LabError`` becomes one line on standard error and its exit code.

    An interrupt (Ctrl-C) exits silently with 130, as in shells. Anything else is a defect and keeps its traceback.

    Args:
        main: the body.
        failed: the exit code of a failure or a defect, where ``FAILED`` would say something else.
    """
    try:
        code = main()
        sys.stdout.flush()
        return code  # noqa: TRY300 - flushing can fail, too
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return int(failed if error.exit_code == ExitCode.FAILED else error.exit_code)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        discard_output()
        return ExitCode.DONE
    except OSError as error:
        if error.errno not in _OF_THE_MACHINE:
            traceback.print_exc()
            return int(failed)
        where = f"{error.filename}: " if error.filename else ""
        print(f"error: {where}{error.strerror}; {_OF_THE_MACHINE[error.errno]}", file=sys.stderr)
        with contextlib.suppress(OSError):
            discard_output()
        return int(failed)
    except Exception:
        traceback.print_exc()
        return int(failed)


def discard_output(stream: TextIO | None = None) -> None:
    """Discards the rest of a stream: Python would fail to flush it and exit with a code of its own.

    Args:
        stream: by default standard output.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())
