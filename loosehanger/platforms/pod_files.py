"""The files by which a command in a pod and its caller exchange what no stream carries."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FILES: Final = Path("/tmp/files")  # noqa: S108 - in a pod of its own
"""What a command writes here goes to its caller."""
STEP: Final = "step"
"""In place of a command: a step of a stage."""
STEP_FILE: Final = "step"
"""The step as JSON, beside the lab's record."""
ANSWER: Final = "answer.json"
"""What a step returned or why it failed, and the files that it wrote."""
