"""Merges class lists of Java processes into ``scripts/{kafka,spark}.classes``; the bootstrap makes archives from them.

A maintainer's tool, for a new Kafka, Spark or Java; an old list only makes starting slower. Have the processes of a
real lab write what they load, and merge that:

    JAVA_TOOL_OPTIONS=-XX:DumpLoadedClassList=/tmp/kafka.%p ./lab setup 03-broadcast
    for job in prove aggregate 'watch --for 30'; do
      JAVA_TOOL_OPTIONS=-XX:DumpLoadedClassList=/tmp/spark.%p ./lab $job
    done
    ./lab cleanup
    .lab/venv/bin/python scripts/lock_classes.py kafka /tmp/kafka.*
    .lab/venv/bin/python scripts/lock_classes.py spark /tmp/spark.*
"""

from __future__ import annotations

import sys
from pathlib import Path

from loosehanger.errors import WrongUseError, run_command
from loosehanger.paths import ROOT

HEADER = "# The classes to archive, as Java's class data sharing wants them. Made by scripts/lock_classes.py.\n"
PROGRAMS = ("kafka", "spark")


def merge(lists: list[str]) -> str:
    """One list of several.

    Numbers, which hold in one process only, go. So do classes that cannot be archived: those of a plugin's own
    loader, and dynamic proxies.
    """
    lines = {line.partition(" id:")[0] for text in lists for line in text.splitlines() if " source:" not in line}
    kept = sorted(line for line in lines if line[:1] not in ("", "#") and ("$Proxy" not in line or line[0] == "@"))
    return HEADER + "".join(f"{line}\n" for line in kept)


def main() -> int:
    """Reads the lists named as arguments and writes the merged one."""
    if len(sys.argv) < 3 or sys.argv[1] not in PROGRAMS:
        raise WrongUseError(f"usage: lock_classes.py {'|'.join(PROGRAMS)} LIST…")
    merged = merge([Path(name).read_text(encoding="utf-8") for name in sys.argv[2:]])
    (ROOT / f"scripts/{sys.argv[1]}.classes").write_text(merged, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
