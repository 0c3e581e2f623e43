"""Writes the JSON schema of mirrorproof's configuration file into ``docs/``."""

from __future__ import annotations

import json

from loosehanger.mirrorproof.configuration import schema
from loosehanger.paths import ROOT


def main() -> None:
    """Writes the file."""
    path = ROOT / "docs" / "mirrorproof.schema.json"
    path.write_text(json.dumps(schema(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
