"""Runs an API server with Strimzi's custom resources until Ctrl-C: ``python -m apiserver KUBECONFIG``.

For trying things by hand. It writes the administrator's kubeconfig into the file named.
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
    """Starts it, waits for the signal, and ends it."""
    if len(sys.argv) != 2:
        raise WrongUseError("usage: python -m apiserver KUBECONFIG")
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
