"""Standard output: for people, or under ``--json`` exactly one document, whatever fails."""

from __future__ import annotations

import fcntl
import io
import json
import os
import stat
import sys
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console

_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""Set where ``spark-submit`` has started this process."""
_MOST_REASONS = 10


def console() -> Console:
    """Standard output for people. Rich honours ``NO_COLOR``."""
    return Console(highlight=False, soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else 100)


def separate_streams(arguments: list[str]) -> None:
    """Sends standard error to Java's where ``spark-submit`` has joined it with standard output.

    ``spark-submit`` gives Python one pipe for both, so progress and errors would mix with the document.

    Args:
        arguments: of the job; without ``--json`` both streams are for people, and stay unchanged.
    """
    if "--json" not in arguments or _GATEWAY not in os.environ or not os.path.sameopenfile(1, 2):
        return
    try:
        from pyspark import SparkContext

        SparkContext._ensure_initialized()
        gateway = SparkContext._gateway
        assert gateway is not None
        sys.stderr = _Lines(gateway.jvm.java.lang.System.err.print)
    except Exception:
        # Without Java the proof fails as well, and the document has the reason.
        sys.stderr = _Lines(lambda _: None)


class _Lines(io.TextIOBase):
    """A text stream that passes everything to a function.

    Args:
        take: takes the text.
    """

    def __init__(self, take: Callable[[str], object]) -> None:
        self._take = take

    def write(self, text: str) -> int:
        """Passes the text on, until Java has ended."""
        try:
            self._take(text)
        except Exception:
            self._take = lambda _: None
        return len(text)


def print_proof(document: Mapping[str, Any]) -> bool:
    """Prints a proof's document; if the file has no room for it, a short one with the same verdict.

    Returns:
        Whether all of it could be written.

    Raises:
        BrokenPipeError: the reader has closed the pipe.
    """
    return _print(document, lambda error: _short(document, error))


def print_document(document: Mapping[str, Any]) -> bool:
    """Prints a document; if the file has no room for it, removes the part that was written.

    Returns:
        Whether it could be written.

    Raises:
        BrokenPipeError: the reader has closed the pipe.
    """
    return _print(document, lambda _: None)


def _print(document: Mapping[str, Any], instead: Callable[[OSError], Mapping[str, Any] | None]) -> bool:
    sys.stdout.flush()
    try:
        descriptor = sys.stdout.fileno()
    except io.UnsupportedOperation:
        print(_text(document), end="")
        return True
    begin = _end_of(descriptor)
    try:
        _write(descriptor, _text(document))
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"error: standard output: cannot be written: {error.strerror}", file=sys.stderr)
        if begin is None:
            return False
        # Half a document cannot be parsed.
        os.ftruncate(descriptor, begin)
        os.lseek(descriptor, begin, os.SEEK_SET)
        if short := instead(error):
            try:
                _write(descriptor, _text(short))
            except OSError:
                os.ftruncate(descriptor, begin)
        return False
    return True


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False, default=str) + "\n"


def _write(descriptor: int, text: str) -> None:
    # Bypasses Python's buffer, which would keep unwritten bytes and write them again at exit.
    left = text.encode("utf-8", errors="replace")
    while left:
        left = left[os.write(descriptor, left) :]


def _end_of(descriptor: int) -> int | None:
    """The document's first position in the file; None for a pipe or a terminal."""
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        return None
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND:
        return about.st_size
    return os.lseek(descriptor, 0, os.SEEK_CUR)


def _short(document: Mapping[str, Any], error: OSError) -> dict[str, Any]:
    verdict = "disproved" if document["verdict"] == "disproved" else "inconclusive"
    lost = f"the whole document could not be written to standard output: {error.strerror}"
    reasons = [*document["reasons"][:_MOST_REASONS], lost]
    empty: dict[str, Any] = {"claims": [], "cut": {}, "flows": [], "only_at_target": [], "notes": []}
    return {**document, **empty, "verdict": verdict, "reasons": reasons}
