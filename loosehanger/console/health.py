"""``python -m loosehanger.console.health``: the health check of a console for platforms that run a command.

It reads CONSOLE_ADDRESS, CONSOLE_PORT and CONSOLE_CERTIFICATE_FILE, and imports little because it runs often.
"""

from __future__ import annotations

import http.client
import os
import ssl
import sys

from loosehanger.ports import LOOPBACK, answering


def main() -> int:
    """Requests ``/health``; returns 0 when the console is healthy."""
    where = answering(os.environ.get("CONSOLE_ADDRESS") or LOOPBACK)
    port = int(os.environ.get("CONSOLE_PORT") or 8080)
    connection: http.client.HTTPConnection
    if os.environ.get("CONSOLE_CERTIFICATE_FILE"):
        # The certificate carries the name that people use, and the console is on this machine.
        context = ssl._create_unverified_context()  # noqa: S323
        connection = http.client.HTTPSConnection(where, port, timeout=5, context=context)
    else:
        connection = http.client.HTTPConnection(where, port, timeout=5)
    try:
        connection.request("GET", "/health")
        return 0 if connection.getresponse().status == http.client.OK else 1
    except OSError as error:
        print(f"{where}:{port} does not answer: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
