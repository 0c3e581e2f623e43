"""The credentials of the web consoles, for ``./lab status --credentials`` and the end of a set-up."""

from __future__ import annotations

import json
import shutil
import sys

from rich.console import Console
from rich.table import Table

from loosehanger.errors import ExitCode, LabError
from loosehanger.kafka.connection import Connection, connection_for
from loosehanger.lab import console_password
from loosehanger.lab.record import Lab, Region
from loosehanger.paths import lab_home
from loosehanger.platforms import registry
from loosehanger.ports import LOOPBACK

_ANY_WIDTH = 200
_CHOSEN = f"as in {console_password.ENVIRONMENT}"


def show_credentials(lab: Lab, *, as_json: bool = False) -> int:
    """Shows address, user and password of every web console.

    Args:
        lab: the lab.
        as_json: as one JSON document.

    Raises:
        LabError: it has no console.
    """
    found = [
        {
            "console": console.name,
            "url": console.url,
            "username": console.username,
            "password": connection_of(region, console.password_of).password or "",
        }
        for region in lab.regions.values()
        for console in region.consoles
    ]
    if not found:
        raise LabError(f"{lab.scenario} has no web console; run the set-up again")
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        if chosen := console_password.console_password(lab_home()):
            for row in found:
                # The user knows it, and it may be in use elsewhere.
                row["password"] = _CHOSEN if row["password"] == chosen else row["password"]
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
        for heading in ("Web console", "Address", "User", "Password"):
            table.add_column(heading, no_wrap=True)
        for row in found:
            table.add_row(*row.values())
        # A wrapped password could not be copied as a whole.
        console = Console(soft_wrap=True, highlight=False, width=_ANY_WIDTH)
        if sys.stdout.isatty() and console.measure(table).maximum > shutil.get_terminal_size().columns:
            for row in found:
                print(f"{row['console']}\n  {row['url']}\n  user      {row['username']}\n  password  {row['password']}")
        else:
            console.print(table, crop=False)
        if lab.pod is not None and any(f"//{LOOPBACK}" in row["url"] for row in found):
            print(f"\nConsoles at {LOOPBACK} listen within their pods; to reach one:")
            print("kubectl -n NAMESPACE port-forward deployment/NAME PORT")
    return ExitCode.DONE


def connection_of(region: Region, user: str) -> Connection:
    """Returns a user's connection to a region's cluster."""
    if region.pod is None:
        return connection_for(region, user)
    return registry.connection_in_pod(region.pod, user)
