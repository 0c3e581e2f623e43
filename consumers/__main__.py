"""``python -m consumers``: shows the records of a cluster as they arrive."""

from __future__ import annotations

import sys

from loosehanger.errors import run_command
from loosehanger.events.consume import main

if __name__ == "__main__":
    sys.exit(run_command(main))
