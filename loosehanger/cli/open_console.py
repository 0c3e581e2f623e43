"""``./lab open``: opens a web console in the browser, signed in."""

from __future__ import annotations

import argparse
import ipaddress
import os
import ssl
import sys
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Callable
from urllib.parse import urlsplit

from loosehanger.errors import ExitCode, LabError, WrongUseError
from loosehanger.lab.programs import control_room
from loosehanger.lab.record import Lab, Region, WebConsole
from loosehanger.paths import lab_home
from loosehanger.ports import answering
from loosehanger.signing.one_time import VALID_S, new_token, password_key, remove_pages, write_page
from loosehanger.suggestions import did_you_mean

ONE_TIME = "/sign-in/once"
"""Where a console takes a one-time token."""
_HEALTH_S = 5


def run(lab: Lab, options: argparse.Namespace, password_of: Callable[[Region, WebConsole], str]) -> int:
    """Opens a console.

    The browser gets a file that posts a one-time token, so that no address and no process list has a secret.

    Args:
        lab: the lab that is set up.
        options: the command's options.
        password_of: returns the password of a console of a region.

    Raises:
        WrongUseError: the lab has no such console.
        LabError: the console does not answer, or this machine has no browser.
    """
    region, console = _chosen(lab, options.console)
    if not options.print and not _has_browser():
        raise LabError(
            "this machine has no browser; ./lab status --credentials shows how to sign in from another one, and "
            "./lab open --print writes the page for a browser that you start yourself"
        )
    address = browser_address(console)
    _check_answers(lab, console)
    home = lab_home()
    remove_pages(home)
    key = password_key(console.name, password_of(region, console))
    page = write_page(home, console.name, address + ONE_TIME, new_token(key, console.name))
    if options.print:
        print(page)
        print(f"open it in a browser within {VALID_S} seconds; it signs in to {address} once", file=sys.stderr)
    elif webbrowser.open(page.as_uri()):
        print(f"{console.name}: {address}")
    else:
        page.unlink(missing_ok=True)
        raise LabError(f"the browser did not start; open {address} yourself, ./lab status --credentials shows more")
    return ExitCode.DONE


def browser_address(console: WebConsole) -> str:
    """The address of a console in a browser.

    Without TLS it is the console's own host name: browsers keep cookies by host and not by port. A certificate has a
    name of its own, so the recorded address stays.
    """
    parts = urlsplit(console.url)
    if parts.scheme == "http":
        return f"http://{console.name}.localhost:{parts.port}"
    address = parts.hostname or ""
    return f"https://localhost:{parts.port}" if _is_any(address) else console.url


def _chosen(lab: Lab, name: str | None) -> tuple[Region, WebConsole]:
    found = {one.name: (region, one) for region in lab.regions.values() for one in region.consoles}
    if not found:
        raise WrongUseError(f"{lab.scenario} has no web console; run the set-up again")
    if name is None:
        _, everything = control_room(lab.topology) or ("", "")
        return found.get(everything) or next(iter(found.values()))
    if name not in found:
        hint = did_you_mean(name, found) or f"; the consoles are: {', '.join(found)}"
        raise WrongUseError(f"there is no web console '{name}'{hint}")
    return found[name]


def _check_answers(lab: Lab, console: WebConsole) -> None:
    """Checks that a console answers: a browser's message of a refused connection names no cause."""
    parts = urlsplit(console.url)
    host = answering(parts.hostname or "")
    url = f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{parts.port}/health"
    # Only whether it answers matters, and the request carries nothing; the browser checks the certificate.
    context = ssl._create_unverified_context() if parts.scheme == "https" else None  # noqa: S323
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), *([urllib.request.HTTPSHandler(context=context)] if context else [])
    )
    try:
        with opener.open(url, timeout=_HEALTH_S):
            return
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        remedy = "./lab status shows why"
        if lab.pod is not None:
            remedy = f"it listens within its pod: kubectl -n NAMESPACE port-forward deployment/NAME {parts.port}"
        raise LabError(f"the console {console.name} does not answer at {console.url} ({reason}); {remedy}") from error


def _has_browser() -> bool:
    """Whether a browser can be opened here: on Linux that needs a display, unless BROWSER names a program."""
    displayed = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME"))
    if sys.platform.startswith("linux") and not displayed:
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def _is_any(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_unspecified
    except ValueError:
        return False
