"""Announces the provider's next authority: its certificate joins the present one in what clients are given.

    announce.py

Run it from the root of the kit while the scenario is set up. The next set-up or stage gives both certificates to the
mirrors. No node shows a certificate of the new authority before `./lab fault inject authority-changed`.
"""

from __future__ import annotations

import sys

from cryptography.hazmat.primitives import hashes

from loosehanger.errors import ExitCode, run_command
from loosehanger.paths import ROOT, lab_home
from loosehanger.platforms.local.certificates import announce_authority
from loosehanger.platforms.local.region import LocalRegion

PROVIDER = "north-america"


def main() -> int:
    """Announces it; a second time changes nothing."""
    certificate = announce_authority(LocalRegion(lab_home(), ROOT, PROVIDER, 0), PROVIDER)
    print(f"{PROVIDER} announces its next authority: SHA-256 {certificate.fingerprint(hashes.SHA256()).hex(':')}")
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(run_command(main))
