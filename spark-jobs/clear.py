"""Copies a topic without what must not leave: an ordinary Spark application, see README.md."""

from __future__ import annotations

import sys

from loosehanger.jobs import clear

if __name__ == "__main__":
    sys.exit(clear.run())
