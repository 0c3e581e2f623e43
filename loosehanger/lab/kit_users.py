"""The kit's own users. Needs the standard library only."""

from __future__ import annotations

ADMINISTRATOR, PROVER = "admin", "prover"
"""They exist in every region with a cluster."""
