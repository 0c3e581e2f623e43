"""Viewers of the control room: each is a process of its own, which costs the benchmark next to nothing."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

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
    return sign_in(console.url, console.username, connection_for(region, console.password_of).password or ""), console


def sign_in(url: str, username: str, password: str) -> requests.Session:
    """A viewer of the console at an address."""
    browser = requests.Session()
    browser.trust_env = False
    form = {"username": username, "password": password}
    browser.post(f"{url}/sign-in", data=form, timeout=30, allow_redirects=False).raise_for_status()
    return browser


@contextlib.contextmanager
def viewers(kit: Kit, number: int, *, restless: bool) -> Iterator[None]:
    """So many people look at the control room of a lab, as ``viewers_of`` does."""
    browser, console = signed_in(kit, "control-room")
    with viewers_of(browser, console.url, kit.home, number, restless=restless):
        yield


@contextlib.contextmanager
def viewers_of(browser: requests.Session, url: str, folder: Path, number: int, *, restless: bool) -> Iterator[None]:
    """So many people look, half of them at the map, half at live messages; every tenth reads slowly.

    Args:
        browser: one who is signed in; the others use the same session.
        url: the console.
        folder: where the session is kept for them.
        number: how many at once.
        restless: whether they go, and come back, every three to seven seconds.

    Raises:
        LabError: curl is missing, which the viewers use, or a viewer received nothing.
    """
    curl = shutil.which("curl")
    if curl is None:
        raise LabError("curl is not there: the viewers need it")
    # Every user of the machine can read a command line.
    session = folder / "viewers.curl"
    write_file(session, "".join(f'cookie = "{cookie.name}={cookie.value}"\n' for cookie in browser.cookies))
    turns = itertools.count()

    def come(place: int) -> subprocess.Popen[bytes]:
        stays = 3 + (place + next(turns)) % 5 if restless else 86400
        return subprocess.Popen(
            [
                *(curl, "--disable", "--config", str(session), "--silent", "--fail", "--no-buffer", "--noproxy", "*"),
                *("--max-time", str(stays)),
                *(["--limit-rate", _SLOW] if place % 10 == 0 else []),
                *("--output", "/dev/null", f"{url}{MAP if place % 2 else MESSAGES}"),
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
