"""Where ``mirrorproof`` keeps what it fetches and writes, and what its wheel ships beside the code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from loosehanger.paths import ROOT

REPOSITORY = "MIRRORPROOF_MAVEN_REPOSITORY"
"""The variable that names a Maven repository in place of Maven Central."""
JARS = "MIRRORPROOF_JARS"
"""The variable that names a folder with the jars, for a machine without a repository."""
_IN_THE_CHECKOUT = {
    "connectors.lock": "spark-jobs/connectors.lock",
    "jars.lock": "jars.lock",
    "log4j2.properties": "spark-jobs/conf/log4j2.properties",
    "spark-defaults.conf": "spark-jobs/conf/spark-defaults.conf",
}


def cache(environment: Mapping[str, str] = os.environ) -> Path:
    """Returns the user's own folder: ``mirrorproof`` in ``XDG_CACHE_HOME``, or in ``~/.cache``."""
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "mirrorproof"


def shipped(name: str) -> Path:
    """Returns a file that the wheel ships; in a checkout, the file that the wheel is made from."""
    path = Path(__file__).parent / "shipped" / name
    return path if path.exists() else ROOT / _IN_THE_CHECKOUT[name]
