"""The job of ``mirrorproof prove``: the proof, in a process that finds Spark."""

from __future__ import annotations

import sys

from loosehanger.jobs import prove

if __name__ == "__main__":
    sys.exit(prove.run())
