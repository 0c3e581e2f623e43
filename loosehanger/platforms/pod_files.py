"""The files that a command in a pod and its caller exchange beside the output streams."""

from __future__ import annotations

from pathlib import Path
from typing import Final

HOME: Final = "/opt/lab"
"""The lab's home in the kit's image."""
FILES: Final = Path("/tmp/files")  # noqa: S108 - in a pod of its own
"""The folder whose files go to the caller of the command."""
STEP: Final = "step"
"""The argument, in place of a command, for a step of a stage."""
STEP_FILE: Final = "step"
"""The step as JSON, beside the lab's record."""
ANSWER: Final = "answer.json"
"""The result or the error of a step, and the files that it wrote."""
