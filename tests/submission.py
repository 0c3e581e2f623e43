"""The submission by ``spark-submit`` that spark-jobs/README.md documents."""

from __future__ import annotations

import re
from pathlib import Path

from loosehanger.paths import ROOT, lab_home


def documented(folder: Path) -> str:
    """The commands, word for word, for a folder that is made to look like the checkout."""
    readme = (ROOT / "spark-jobs" / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^```sh\n(export JAVA_HOME=.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    for name, target in (
        ("spark-jobs", ROOT / "spark-jobs"),
        ("loosehanger", ROOT / "loosehanger"),
        (".lab", lab_home()),
    ):
        (folder / name).symlink_to(target)
    return str(command)
