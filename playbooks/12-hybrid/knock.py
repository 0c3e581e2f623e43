"""Knocks at Europe's cluster from North America, as a program there would: by the addresses that Europe has for it.

    knock.py

Run it from the root of the kit while the scenario is set up. Exit code 0, or 1 if a connection was let in.
"""

from __future__ import annotations

import ssl
import sys

from loosehanger.errors import ExitCode, LabError, run_command
from loosehanger.paths import lab_home
from loosehanger.platforms.local.services import offers

FROM, SERVICE = "north-america", "europe-kafka-bootstrap.europe.svc:9098"
BOUND_S = 10


def is_let_in(address: str) -> bool:
    """Whether a connection comes as far as the broker's certificate.

    Raises:
        LabError: the link neither refuses it nor answers.
    """
    host, _, port = address.rpartition(":")
    try:
        ssl.get_server_certificate((host, int(port)), timeout=BOUND_S)
    except ConnectionError:
        return False
    except TimeoutError as error:
        raise LabError(
            f"{address}: no answer within {BOUND_S} s; ./lab link shows whether the link is silent"
        ) from error
    return True


def main() -> int:
    """Knocks at each node."""
    service = offers(lab_home()).get(SERVICE)
    if service is None or FROM not in service.elsewhere:
        raise LabError(f"{FROM} has no address of {SERVICE}; set the scenario up first: ./lab setup 12-hybrid")
    found = {address: is_let_in(address) for address in service.elsewhere[FROM]}
    for let_in in found.values():
        print(f"{FROM} -> {SERVICE}: {'let in' if let_in else 'refused'}")
    return ExitCode.FAILED if any(found.values()) else ExitCode.DONE


if __name__ == "__main__":
    sys.exit(run_command(main))
