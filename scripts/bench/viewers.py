"""Viewers of the control room: each is a process of its own, which costs the benchmark next to no processor time."""

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
"""curl's exit code when a viewer's time is up."""
_SLOW = "2k"
"""Bytes a second of slow viewers: the console must drop messages rather than buffer them."""


def signed_in(kit: Kit, name: str) -> tuple[requests.Session, WebConsole]:
    """Signs a viewer in to a console of a lab; returns the session and the console."""
    region, console = next(
        (region, console) for region in kit.lab.regions.values() for console in region.consoles if console.name == name
    )
    return sign_in(console.url, console.username, connection_for(region, console.password_of).password or ""), console


def sign_in(url: str, username: str, password: str) -> requests.Session:
    """Signs a viewer in to the console at an address; returns the session."""
    browser = requests.Session()
    browser.trust_env = False
    form = {"username": username, "password": password}
    browser.post(f"{url}/sign-in", data=form, timeout=30, allow_redirects=False).raise_for_status()
    return browser


@contextlib.contextmanager
def viewers(kit: Kit, number: int, *, restless: bool) -> Iterator[None]:
    """Lets a number of viewers look at the control room of a lab: see ``viewers_of``."""
    browser, console = signed_in(kit, "control-room")
    with viewers_of(browser, console.url, kit.home, number, restless=restless):
        yield


@contextlib.contextmanager
def viewers_of(browser: requests.Session, url: str, folder: Path, number: int, *, restless: bool) -> Iterator[None]:
    """Lets a number of viewers look, half of them at the map, half at live messages; every tenth reads slowly.

    Args:
        browser: a session that is signed in; all viewers use it.
        url: the address of the console.
        folder: where the session is kept for the viewers.
        number: how many viewers look at the same time.
        restless: whether viewers leave, and come back, every three to seven seconds.

    Raises:
        LabError: curl, which the viewers use, is missing; or the console refused a viewer.
    """
    curl = shutil.which("curl")
    if curl is None:
        raise LabError("curl is not installed, and the viewers need it; install it")
    # In a file, for every user of the machine can read a command line.
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
            raise LabError(
                f"curl of a viewer exited with {', '.join(map(str, sorted(refused)))}; the console refused it"
            )
