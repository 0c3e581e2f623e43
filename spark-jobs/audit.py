"""Audits the lab that is set up as one of its services: an ordinary Spark application, see README.md."""

from __future__ import annotations

import sys

from loosehanger.jobs import audit

if __name__ == "__main__":
    sys.exit(audit.run())
