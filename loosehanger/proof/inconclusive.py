"""The document of a proof that failed early, so that readers of JSON always get one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loosehanger.errors import InconclusiveError, LabError
from loosehanger.lab.claims.claims import Claim
from loosehanger.proof.evidence.evidence import Evidence
from loosehanger.proof.report.output import print_proof
from loosehanger.proof.verdict import judge


def document(reason: str, scenario: str = "", seconds: float = 0.0, claims: Sequence[Claim] = ()) -> dict[str, Any]:
    """The document of a proof without results.

    Args:
        reason: why it has none.
        scenario: the scenario that is set up, where that is known.
        seconds: how long it took.
        claims: the claims to prove, where they are known.
    """
    evidence = Evidence(claims=tuple(claims))
    evidence.add("inconclusive", None, {"reason": reason})
    return judge(evidence, scenario, seconds)


def give_up(error: Exception, arguments: Sequence[str]) -> InconclusiveError:
    """The error to raise in place of a failure before the proof, whose exit code would mean *disproved*.

    Args:
        error: the failure.
        arguments: of the command; with ``--json`` this prints the document.
    """
    reason = str(error) if isinstance(error, LabError) else f"{type(error).__name__}: {error}"
    if "--json" in arguments and not (isinstance(error, LabError) and error.shown):
        print_proof(document(reason))
    return InconclusiveError(reason)
