"""Sums up what each region's consumers see: an ordinary Spark application, see README.md."""

from __future__ import annotations

import sys

from loosehanger.jobs import aggregate

if __name__ == "__main__":
    sys.exit(aggregate.run())
