"""Tokens with which scripts use the API: shown once, kept as hashes, revocable, and with the least rights."""

from __future__ import annotations

import hmac
import json
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from loosehanger.console.sign_in import Session
from loosehanger.errors import LabError, WrongUseError
from loosehanger.files import write_file

MOST_TOKENS = 50
MOST_NAME = 60
"""Characters of the longest name."""
MOST_TEXT = 100
"""Most characters of a token: a longer one is refused unread."""
PREFIX = "lh_"
"""What every token begins with, so that scanners for secrets can find one that was published."""
SAVE_S = 60
"""How old the saved time of a token's last use may be."""


@dataclass
class ApiToken:
    """A token, without its text."""

    id: str
    name: str
    change: bool
    """Whether it may change something; otherwise it only reads."""
    created: float
    """Seconds since the epoch."""
    last_used: float | None
    """Seconds since the epoch; None for a token that was never used."""
    digest: str

    @property
    def session(self) -> Session:
        """What the token's requests have in place of a session. Its token for changes matches no form."""
        return Session(f"token {self.name}", f"token-{self.id}", secrets.token_urlsafe(16), float("inf"))


class ApiTokens:
    """The tokens of a console.

    They are kept as hashes under a key that follows from the console's password, so that a new password ends them, as
    it ends every session.

    Args:
        path: the file that keeps them, which only its owner can read; None to keep them while the program runs.
        console: the console's name.
        password: the password with which people sign in.
        clock: seconds since the epoch.
    """

    def __init__(self, path: Path | None, console: str, password: str, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._key = hmac.digest(password.encode(), b"tokens of the API of " + console.encode(), "sha256")
        self._tokens = {token.id: token for token in self._read()}
        self._saved = clock()
        self._unsaved = False

    def all(self) -> list[ApiToken]:
        """Every token, in the order in which they were made."""
        return list(self._tokens.values())

    def make(self, name: str, *, change: bool) -> str:
        """Makes a token; returns its text, which is kept nowhere.

        Raises:
            WrongUseError: the name is not usable or is taken, or there are too many tokens.
            LabError: the tokens cannot be saved.
        """
        name = " ".join(name.split())
        if not name or len(name) > MOST_NAME or not name.isprintable():
            raise WrongUseError(
                f"a token needs a name of 1 to {MOST_NAME} printable characters, such as nightly report"
            )
        if any(token.name == name for token in self._tokens.values()):
            raise WrongUseError(f"there is a token '{name}' already; revoke it, or choose another name")
        if len(self._tokens) >= MOST_TOKENS:
            raise WrongUseError(f"there are {MOST_TOKENS} tokens already; revoke one first")
        text = PREFIX + secrets.token_urlsafe(32)
        token = ApiToken(secrets.token_hex(8), name, change, self._clock(), None, self._digest(text))
        self._tokens[token.id] = token
        try:
            self.save()
        except LabError:
            del self._tokens[token.id]
            raise
        return text

    def revoke(self, identity: str) -> str:
        """Revokes a token at once; returns its name.

        Raises:
            WrongUseError: there is no such token.
            LabError: the tokens cannot be saved; the token is revoked until the console restarts.
        """
        token = self._tokens.pop(identity, None)
        if token is None:
            raise WrongUseError("there is no such token; it may have been revoked before")
        self.save()
        return token.name

    def find(self, text: str) -> ApiToken | None:
        """The token with this text, and notes its use; None where there is none."""
        if len(text) > MOST_TEXT or not text.startswith(PREFIX):
            return None
        digest = self._digest(text)
        found = None
        for token in self._tokens.values():
            if hmac.compare_digest(token.digest, digest):
                found = token
        if found is not None:
            found.last_used = self._clock()
            self._unsaved = True
        return found

    def tidy(self) -> None:
        """Saves the times of the last uses, once a minute at most."""
        if self._unsaved and self._clock() - self._saved >= SAVE_S:
            self.close()

    def close(self) -> None:
        """Saves what is not saved."""
        if self._unsaved:
            try:
                self.save()
            except LabError as error:
                print(error, file=sys.stderr, flush=True)

    def save(self) -> None:
        """Writes the file.

        Raises:
            LabError: it cannot be written.
        """
        self._saved, self._unsaved = self._clock(), False
        if self._path is None:
            return
        content = {"key": self._fingerprint(), "tokens": [asdict(token) for token in self._tokens.values()]}
        try:
            write_file(self._path, json.dumps(content, indent=1, ensure_ascii=False))
        except OSError as error:
            raise LabError(f"{self._path}: cannot be written ({error.strerror})") from error

    def _read(self) -> list[ApiToken]:
        if self._path is None or not self._path.exists():
            return []
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            if content["key"] != self._fingerprint():
                return []  # The password has changed.
            known = [field.name for field in fields(ApiToken)]
            return [ApiToken(**{name: one[name] for name in known}) for one in content["tokens"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"{self._path}: cannot be read, so no token is valid ({error})", file=sys.stderr, flush=True)
            return []

    def _digest(self, text: str) -> str:
        return hmac.digest(self._key, text.encode("utf-8", "replace"), "sha256").hex()

    def _fingerprint(self) -> str:
        return hmac.digest(self._key, b"fingerprint", "sha256").hex()[:16]
