"""The other consoles of the lab: their addresses, and how a browser is signed in to one of them from here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from loosehanger.console.settings import Settings
from loosehanger.errors import LabError
from loosehanger.lab.progress import recorded_consoles
from loosehanger.signing.one_time import lab_key, password_key

ONE_TIME = "/sign-in/once"
"""The path to which a one-time token is posted."""


class Neighbours:
    """The consoles that the lab's record names, or this console's settings where the record is on another machine.

    Args:
        settings: this console's. Without the lab's home it needs the password that all consoles share.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._changed: list[tuple[str, int]] | None = None
        self._known: dict[str, str] = {}
        self._complained = False

    def names(self) -> list[str]:
        """The names of the other consoles, in the record's order; none where this console cannot sign in to them."""
        return [name for name in self._addresses() if self.key_of(name) is not None]

    def address(self, name: str, host: str) -> str | None:
        """The address at which a browser reaches another console; None where the record does not name it.

        A browser that uses this console's own host name gets the other's own: each then keeps its cookie to itself.
        Any other host name leads to the same machine for both, for example through a tunnel.

        Args:
            name: the other console.
            host: the host name in the browser's request, without its port.
        """
        url = self._addresses().get(name)
        if url is None:
            return None
        parts = urlsplit(url)
        other = f"{name}.localhost" if host == self._settings.own_host else f"[{host}]" if ":" in host else host
        return f"{parts.scheme}://{other}:{parts.port}"

    def key_of(self, name: str) -> bytes | None:
        """The key of the tokens that another console accepts from here; None where there is none that is safe to use.

        Consoles with the lab's home have its key. Elsewhere, the key that follows from a console's password will do if
        all have the same: who knows that password may sign in to each of them anyway.
        """
        if self._settings.lab_home is None and self._settings.shared_password:
            return password_key(name, self._settings.password)
        return self._key()

    def _key(self) -> bytes | None:
        """The lab's key."""
        if self._settings.lab_home is None:
            return None
        try:
            return lab_key(self._settings.lab_home)
        except LabError as error:
            if not self._complained:
                self._complained = True
                print(f"one-time sign-in between consoles is off: {error}", file=sys.stderr, flush=True)
            return None

    def keys(self) -> Sequence[bytes]:
        """The keys of the tokens that this console accepts: its own, and the lab's."""
        own = password_key(self._settings.name, self._settings.password)
        return [own, *([key] if (key := self._key()) is not None else [])]

    def _addresses(self) -> dict[str, str]:
        home = self._settings.lab_home
        if home is None:
            return dict(self._settings.neighbours)
        changed = _changed(home)
        if changed != self._changed:
            self._changed = changed
            self._known = {name: url for name, url in recorded_consoles(home).items() if name != self._settings.name}
        return self._known


def _changed(home: Path) -> list[tuple[str, int]]:
    """When each file of the record was changed, so that it is read again only then."""
    found = []
    for path in sorted((home / "access").glob("*.json")):
        with suppress(OSError):
            found.append((path.name, path.stat().st_mtime_ns))
    return found
