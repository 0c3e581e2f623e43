"""The job of a proof that cannot start, such as without the connector: reports why, as every proof does."""

from __future__ import annotations

import sys

from loosehanger.errors import ExitCode, LabError, run_command
from loosehanger.proof.inconclusive import give_up


def main() -> int:
    """Prints the document where ``--json`` asks for it.

    Raises:
        InconclusiveError: always.
    """
    reason, *arguments = sys.argv[1:]
    raise give_up(LabError(reason), arguments)


if __name__ == "__main__":
    sys.exit(run_command(main, failed=ExitCode.INCONCLUSIVE))
