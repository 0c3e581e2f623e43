"""Viewers of the control room: each is a process of its own, which costs the benchmark next to nothing."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import subprocess
import threading
from collections.abc import Iterator

import requests

from loosehanger.errors import LabError
from loosehanger.files import write_file
from loosehanger.kafka.connection import connection_for
from loosehanger.lab.record import WebConsole
from scripts.sandbox import Kit

MAP, MESSAGES = "/events/views/map", "/events/messages"
_LOOK_S = 0.2
_TIME_IS_UP = 28
"""curl's exit code when a viewer's time is over."""
_SLOW = "2k"
"""Bytes per second of slow viewers, who must lose messages rather than make the console buffer them."""


def signed_in(kit: Kit, name: str) -> tuple[requests.Session, WebConsole]:
    """A viewer of a console."""
    region, console = next(
        (region, console) for region in kit.lab.regions.values() for console in region.consoles if console.name == name
    )
    browser = requests.Session()
    browser.trust_env = False
    form = {"username": console.username, "password": connection_for(region, console.password_of).password}
    browser.post(f"{console.url}/sign-in", data=form, timeout=30, allow_redirects=False).raise_for_status()
    return browser, console


@contextlib.contextmanager
def viewers(kit: Kit, number: int, *, restless: bool) -> Iterator[None]:
    """So many people look, half of them at the map, half at live messages; every tenth reads slowly.

    Args:
        kit: the lab.
        number: how many at once.
        restless: whether they go, and come back, every three to seven seconds.

    Raises:
        LabError: curl is missing, which the viewers use, or a viewer received nothing.
    """
    curl = shutil.which("curl")
    if curl is None:
        raise LabError("curl is not there: the viewers need it")
    browser, console = signed_in(kit, "control-room")
    # A command line is for everybody to read.
    session = kit.home / "viewers.curl"
    write_file(session, "".join(f'cookie = "{cookie.name}={cookie.value}"\n' for cookie in browser.cookies))
    turns = itertools.count()

    def come(place: int) -> subprocess.Popen[bytes]:
        stays = 3 + (place + next(turns)) % 5 if restless else 86400
        return subprocess.Popen(
            [
                *(curl, "--disable", "--config", str(session), "--silent", "--fail", "--no-buffer", "--noproxy", "*"),
                *("--max-time", str(stays)),
                *(["--limit-rate", _SLOW] if place % 10 == 0 else []),
                *("--output", "/dev/null", f"{console.url}{MAP if place % 2 else MESSAGES}"),
            ],
            stdin=subprocess.DEVNULL,
        )

    people = [come(place) for place in range(number)]
    ending, refused = threading.Event(), set[int]()

    def keep_coming() -> None:
        while not ending.wait(_LOOK_S):
            for place, person in enumerate(people):
                if (code := person.poll()) is not None:
                    refused.update({code} - {_TIME_IS_UP})
                    people[place] = come(place)

    keeper = threading.Thread(target=keep_coming)
    keeper.start()
    try:
        yield
    finally:
        ending.set()
        keeper.join()
        for person in people:
            person.terminate()
            person.wait()
        if refused:
            raise LabError(f"curl, which is what viewers look with, ended with {', '.join(map(str, sorted(refused)))}")
