"""Audits every mirror while records flow: an ordinary Spark application, see README.md."""

from __future__ import annotations

import sys

from loosehanger.jobs import watch

if __name__ == "__main__":
    sys.exit(watch.run())
