"""``python -m loosehanger.platforms.kubernetes.pod_entry COMMAND …``: runs a command of the kit in a pod.

A pod's log does not separate errors from output, and files of a finished pod are out of reach. So each line of the log
begins with a letter: ``o`` output, ``e`` error, ``f`` a part of a file. ``pods`` reads it.
"""

from __future__ import annotations

import base64
import os
import pwd
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import IO

from loosehanger.platforms.pod_files import FILES, STEP

_STEP = ["loosehanger.stages.remote_entry"]
_CHUNK = 6000


def main(arguments: list[str]) -> int:
    """Runs the command, and returns its exit code."""
    FILES.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", *(_STEP if arguments == [STEP] else ["loosehanger.cli", *arguments])],
        env=os.environ | user_name(os.getuid(), FILES.parent),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )

    def pass_on(number: int, _: FrameType | None) -> None:
        process.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    assert process.stdout is not None
    assert process.stderr is not None
    lock = threading.Lock()
    readers = [
        threading.Thread(target=_mark, args=(stream, mark, lock))
        for stream, mark in ((process.stdout, "o"), (process.stderr, "e"))
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    code = process.wait()
    for path in sorted(FILES.iterdir()):
        data = path.read_bytes()
        for start in range(0, max(len(data), 1), _CHUNK):
            part = base64.b64encode(data[start : start + _CHUNK]).decode()
            print(f"f{path.name} {part}", flush=True)
    return code if code >= 0 else 128 - code


def user_name(uid: int, folder: Path) -> dict[str, str]:
    """Returns the environment that names a user: OpenShift's users have no name, and Java's login needs one.

    Args:
        uid: the user's id.
        folder: the folder for a list of users, if one is needed.
    """
    try:
        pwd.getpwuid(uid)
    except KeyError:
        users = folder / "passwd"
        users.write_text(f"lab:x:{uid}:0:lab:/tmp:/bin/sh\n", encoding="ascii")
        names = {"NSS_WRAPPER_PASSWD": str(users), "NSS_WRAPPER_GROUP": "/etc/group"}
        return {**names, "LD_PRELOAD": "libnss_wrapper.so"}
    return {}


def _mark(stream: IO[bytes], mark: str, lock: threading.Lock) -> None:
    for line in stream:
        with lock:
            sys.stdout.buffer.write(mark.encode() + line.rstrip(b"\n") + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
