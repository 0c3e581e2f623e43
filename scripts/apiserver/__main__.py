"""Runs an API server with Strimzi's custom resources until Ctrl-C: ``python -m scripts.apiserver KUBECONFIG``.

It is for trials by hand, and writes the administrator's kubeconfig into the file that is named.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

from loosehanger.errors import WrongUseError, run_command
from scripts.apiserver.build import programs
from scripts.apiserver.crds import strimzi_definitions
from scripts.apiserver.server import ApiServer


def main() -> int:
    """Starts the server, waits for a signal, and stops the server."""
    if len(sys.argv) != 2:
        raise WrongUseError("usage: python -m scripts.apiserver KUBECONFIG")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder:
        server = ApiServer(programs(), Path(folder))
        try:
            server.start()
            server.install(strimzi_definitions())
            server.administrator().write_kubeconfig(Path(sys.argv[1]))
            print(f"export KUBECONFIG={Path(sys.argv[1]).absolute()}", flush=True)
            signal.pause()
        finally:
            server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
