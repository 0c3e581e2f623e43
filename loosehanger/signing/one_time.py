"""One-time tokens that sign a browser in to a web console, and the pages in the lab's home that post them.

``./lab open`` and the consoles of a lab both make them, from a key that only the lab's user can read. A token is valid
for one console and for seconds, and its console accepts it once.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
import time
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from itsdangerous import BadData, URLSafeSerializer

from loosehanger.errors import LabError
from loosehanger.files import make_folder, replacing, write_file

VALID_S = 30
"""How long a token is valid."""
AHEAD_S = 2
"""Seconds by which the clock of a token's maker may be ahead of the console's."""
MOST_TOKEN = 400
"""Most characters of a token: a longer one is refused unread."""
MOST_USED = 10_000
"""Most used tokens that a console remembers; it accepts no further ones until some of them expire."""
_KEY = Path("access", "sign-in.key")
_PAGES = Path("access", "open")
_KEY_BYTES = 32


def lab_key(home: Path) -> bytes:
    """The key with which the consoles of a lab sign people in to each other; made when it is missing.

    Args:
        home: the lab's home.

    Raises:
        LabError: the key cannot be read or written, or others could read or replace it.
    """
    path = home / _KEY
    try:
        if not path.exists():
            _make_key(path)
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(handle, "rb") as stream:
            found = os.fstat(stream.fileno())
            key = stream.read(_KEY_BYTES + 1)
    except OSError as error:
        raise LabError(f"{path}: cannot be read ({error.strerror})") from error
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077 or len(key) != _KEY_BYTES:
        raise LabError(
            f"{path}: it must have {_KEY_BYTES} bytes that only you can read; delete it, and it is made anew"
        )
    return key


def password_key(console: str, password: str) -> bytes:
    """The key of a console alone, which follows from its password.

    Args:
        console: the console's name.
        password: the password with which people sign in there.
    """
    return hmac.digest(password.encode(), b"one-time sign-in to " + console.encode(), "sha256")


def new_token(key: bytes, console: str, clock: Callable[[], float] = time.time) -> str:
    """Makes a token.

    Args:
        key: a key that the console knows.
        console: the name of the only console that accepts it.
        clock: seconds since the epoch.
    """
    content = {"console": console, "nonce": secrets.token_urlsafe(16), "made": round(clock(), 3)}
    text: str = _serializer(key).dumps(content)
    return text


class OneTimeTokens:
    """The tokens of a console: judges them, and remembers those that were used until they expire.

    Tokens that were made before this object are refused: an earlier run of the console may have accepted them.

    Args:
        console: the console's name.
        keys: returns the keys that are valid now.
        clock: seconds since the epoch.
    """

    def __init__(
        self, console: str, keys: Callable[[], Sequence[bytes]], clock: Callable[[], float] = time.time
    ) -> None:
        self._console = console
        self._keys = keys
        self._clock = clock
        self._began = clock()
        self._used: dict[str, float] = {}

    def accept(self, token: str) -> bool:
        """Whether a token is valid here and now. It is used afterwards."""
        if len(token) > MOST_TOKEN:
            return False
        now = self._clock()
        self._used = {nonce: expires for nonce, expires in self._used.items() if expires > now}
        for key in self._keys():
            try:
                content = _serializer(key).loads(token)
                console, nonce, made = str(content["console"]), str(content["nonce"]), float(content["made"])
            except (BadData, KeyError, TypeError, ValueError, RecursionError):
                continue
            valid = console == self._console and max(self._began, now - VALID_S) <= made <= now + AHEAD_S
            if not valid or nonce in self._used or len(self._used) >= MOST_USED:
                return False
            self._used[nonce] = made + VALID_S + AHEAD_S
            return True
        return False


def write_page(home: Path, console: str, address: str, token: str) -> Path:
    """Writes a page that posts a token to a console as soon as a browser opens it; only its owner can read it.

    The token is in the file alone: a browser's command line and history name only the file.

    Args:
        home: the lab's home.
        console: the console's name.
        address: the address to post to.
        token: the token.

    Returns:
        The page's path. ``remove_pages`` deletes it when its token has expired.
    """
    path = home / _PAGES / f"{console}-{secrets.token_hex(8)}.html"
    write_file(path, _PAGE.format(console=escape(console), address=escape(address), token=escape(token)))
    return path


def remove_pages(home: Path, clock: Callable[[], float] = time.time) -> None:
    """Deletes the pages whose tokens have expired."""
    for path in (home / _PAGES).glob("*.html"):
        try:
            if path.lstat().st_mtime < clock() - VALID_S:
                path.unlink()
        except OSError:
            continue  # Another console has deleted it.


def _serializer(key: bytes) -> URLSafeSerializer:
    return URLSafeSerializer(
        key, salt="one-time sign-in", signer_kwargs={"key_derivation": "hmac", "digest_method": hashlib.sha256}
    )


def _make_key(path: Path) -> None:
    """Writes a new key; where another program is faster, its key stays."""
    make_folder(path.parent)
    with replacing(path, keep=True) as stream:
        stream.write(secrets.token_bytes(_KEY_BYTES))


_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>Sign in: {console}</title>
</head>
<body>
<main>
<h1>Sign in: {console}</h1>
<form method="post" action="{address}">
<input type="hidden" name="token" value="{token}">
<p>This page signs you in once, within 30 seconds. <button>Sign in</button></p>
</form>
</main>
<script>document.forms[0].submit()</script>
</body>
</html>
"""
