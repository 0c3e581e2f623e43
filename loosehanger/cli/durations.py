"""The last duration of each set-up and stage, as an estimate for the next time."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from loosehanger.files import write_file


class Durations:
    """The durations of earlier set-ups and stages.

    They depend on the machine and the installation, and are kept with it, since a clean-up deletes everything else.

    Args:
        home: the lab's home.
    """

    def __init__(self, home: Path) -> None:
        self._file = home / "venv" / "durations.json"

    def last(self, what: str) -> float | None:
        """The seconds that it took last time; None where that is not known, or was less than one."""
        found = self._read().get(what)
        return float(found) if isinstance(found, int | float) and found >= 1 else None

    def keep(self, what: str, seconds: float) -> None:
        """Records a duration. An estimate is not worth a failure, so a write error is ignored."""
        with contextlib.suppress(OSError):
            write_file(self._file, json.dumps({**self._read(), what: round(seconds, 1)}, indent=1))

    def _read(self) -> dict[str, object]:
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(self._file.read_text(encoding="utf-8"))
            if isinstance(found, dict):
                return found
        return {}
