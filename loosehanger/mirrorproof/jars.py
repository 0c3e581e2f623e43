"""Fetches the jars that ``jars.lock`` lists from a Maven repository, each checked by its SHA-256.

Usage: ``python -P -m loosehanger.mirrorproof.jars LOCK FOLDER [SET …]``. Only what is missing or damaged is fetched, of
the sets that are named or of all; what the lock no longer lists of these is removed. ``LAB_MAVEN_REPOSITORY`` names
another repository than Maven Central. Proxies and certificate authorities come from the usual variables: HTTPS_PROXY,
NO_PROXY, SSL_CERT_FILE, REQUESTS_CA_BUNDLE.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

from loosehanger.errors import LabError, WrongUseError, run_command

MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
VARIABLE = "LAB_MAVEN_REPOSITORY"
"""The lab's environment variable for another repository."""
DOWNLOADS_AT_ONCE = 8
ATTEMPTS = 4
FIRST_PAUSE = 1.0  # seconds before the second attempt; each further one is twice as long
TIMEOUT = 30.0  # seconds without a byte
_LINE = re.compile(r"([\w.-]+) ([\w.-]+):([\w.-]+):([\w.-]+) (\d+) ([0-9a-f]{64})")


@dataclass(frozen=True, order=True)
class Jar:
    """One line of the lock: a jar, and the set (a folder) it belongs to."""

    set: str
    group: str
    artifact: str
    version: str
    size: int
    """In bytes."""
    sha256: str

    @property
    def path(self) -> Path:
        """Where it lies below the folder of all jars."""
        return Path(self.set, f"{self.artifact}-{self.version}.jar")

    @property
    def address(self) -> str:
        """Where it lies below a Maven repository's address."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.artifact}-{self.version}.jar"


def parse_lock(text: str) -> list[Jar]:
    """Reads ``jars.lock``: a jar a line; empty lines and ``#`` comments are skipped.

    Raises:
        WrongUseError: a line is not one of the lock's.
    """
    jars = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if not match:
            raise WrongUseError(f"jars.lock:{number}: not 'set group:artifact:version size sha256'; take it from git")
        name, group, artifact, version, size, sha256 = match.groups()
        jars.append(Jar(name, group, artifact, version, int(size), sha256))
    return jars


def repository(variable: str = VARIABLE) -> str:
    """The Maven repository's address, without a slash at its end.

    Args:
        variable: the environment variable that may name it.

    Raises:
        WrongUseError: the variable is not a web address.
    """
    address = os.environ.get(variable) or MAVEN_CENTRAL
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise WrongUseError(f"{variable}: '{address}' is not an http(s) address; {MAVEN_CENTRAL} is one")
    return address.rstrip("/")


class RepositoryError(WrongUseError):
    """The repository cannot be reached from here, with the environment as it is."""


class _SystemTrust(HTTPAdapter):
    """Trusts the system's certificate authorities and SSL_CERT_FILE, besides those that requests trusts."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, ssl_context=ssl.create_default_context(), **kwargs)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        return super().proxy_manager_for(*args, ssl_context=ssl.create_default_context(), **kwargs)


def web_session() -> requests.Session:
    """An HTTP session that knows the environment's proxies and certificate authorities."""
    session = requests.Session()
    session.mount("https://", _SystemTrust(pool_maxsize=DOWNLOADS_AT_ONCE))
    return session


def is_whole(jar: Jar, path: Path) -> bool:
    """Whether the file exists and is the one that the lock pins."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256
    except FileNotFoundError:
        return False


class Fetcher:
    """Fetches jars into a folder."""

    def __init__(self, folder: Path, address: str, variable: str = VARIABLE) -> None:
        """Takes the folder of all jars, the repository's address, and the variable that may name another one."""
        self.folder = folder
        self.variable = variable
        self.address = address
        self.host = urlsplit(address).hostname
        self.session = web_session()
        self.stop = threading.Event()

    def fetch(self, jars: Iterable[Jar], on_bytes: Callable[[int], object]) -> None:
        """Fetches all the jars, several at once; ``on_bytes`` takes the size of each piece (negative: to be repeated).

        Raises:
            RepositoryError: the repository cannot be reached.
            LabError: a jar is not there, or its download is never whole.
        """
        with self.session, ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool:
            try:
                for done in as_completed([pool.submit(self._fetch_one, jar, on_bytes) for jar in jars]):
                    done.result()
            except BaseException:
                self.stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _fetch_one(self, jar: Jar, on_bytes: Callable[[int], object]) -> None:
        problem = self._attempt(jar, on_bytes)
        for repeat in range(ATTEMPTS - 1):
            if not problem or self.stop.wait(FIRST_PAUSE * 2**repeat):
                return
            problem = self._attempt(jar, on_bytes)
        if problem:
            raise problem

    def _attempt(self, jar: Jar, on_bytes: Callable[[int], object]) -> LabError | None:
        """One download.

        Returns:
            What went wrong, if another attempt may succeed.

        Raises:
            LabError: no further attempt can succeed.
        """
        target = self.folder / jar.path
        partial = target.with_suffix(".part")
        received = 0
        digest = hashlib.sha256()
        try:
            with self.session.get(f"{self.address}/{jar.address}", stream=True, timeout=TIMEOUT) as answer:
                if answer.status_code != requests.codes.ok:
                    return self._refused(jar, answer.status_code)
                with partial.open("wb") as file:
                    for piece in answer.iter_content(1 << 16):
                        received += len(piece)
                        on_bytes(len(piece))
                        digest.update(piece)
                        file.write(piece)
                        if self.stop.is_set() or received > jar.size:
                            break
                    file.flush()
                    os.fsync(file.fileno())
            if digest.hexdigest() == jar.sha256:
                partial.replace(target)
                return None
            problem = f"is not the file that jars.lock pins ({received} bytes of {jar.size}, SHA-256 differs)"
        except requests.exceptions.SSLError as error:
            raise RepositoryError(
                f"{self.host}: its certificate is not trusted ({_innermost(error)}); "
                "set SSL_CERT_FILE to a file with your certificate authorities"
            ) from error
        except requests.RequestException as error:
            if not received:
                return RepositoryError(
                    f"{self.host}: cannot be reached ({_innermost(error)}); set HTTPS_PROXY if there is a proxy, "
                    f"or {self.variable} to the address of a Maven repository within reach"
                )
            problem = f"was cut off after {received} of {jar.size} bytes"
        finally:
            partial.unlink(missing_ok=True)
        on_bytes(-received)
        return LabError(f"{jar.path.name} from {self.host} {problem}; run it again, or set {self.variable}")

    def _refused(self, jar: Jar, status: int) -> LabError:
        problem = LabError(
            f"{jar.path.name}: {self.host} answers with HTTP status {status}; "
            f"set {self.variable} to the address of a Maven repository that has it"
        )
        if status in (408, 429) or status >= 500:
            return problem
        raise problem


def _innermost(error: BaseException) -> str:
    while error.__context__:
        error = error.__context__
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def synchronise(jars: list[Jar], folder: Path) -> None:
    """Makes the folder hold the jars, and no others in the folders of their sets.

    Raises:
        LabError: a jar cannot be fetched.
    """
    wanted = fetch_missing(jars, folder)
    for name in {jar.set for jar in jars}:
        for path in (folder / name).glob("*"):
            if path not in wanted:
                path.unlink()


def fetch_missing(jars: list[Jar], folder: Path, variable: str = VARIABLE) -> list[Path]:
    """Fetches the jars that are missing or damaged, and returns the paths of all.

    Args:
        jars: of the lock.
        folder: the folder of all jars.
        variable: the environment variable that may name another repository.

    Raises:
        LabError: a jar cannot be fetched.
    """
    missing = [jar for jar in jars if not is_whole(jar, folder / jar.path)]
    for name in {jar.set for jar in jars}:
        (folder / name).mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True)
    if missing:
        fetcher = Fetcher(folder, repository(variable), variable)
        size = sum(jar.size for jar in missing)
        text = f"Fetching {len(missing)} jars ({size / 1e6:.0f} MB) from {fetcher.host}"
        if not console.is_terminal:
            print(text, file=sys.stderr, flush=True)
        columns = ("{task.description}", BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
            task = progress.add_task(text, total=size)
            fetcher.fetch(missing, lambda count: progress.advance(task, count))
    return [folder / jar.path for jar in jars]


def main() -> int:
    """Reads the lock and fetches what it lists."""
    if len(sys.argv) < 3:
        raise WrongUseError("usage: python -P -m loosehanger.mirrorproof.jars LOCK FOLDER [SET …]")
    lock, folder, sets = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    jars = parse_lock(lock.read_text(encoding="utf-8"))
    synchronise([jar for jar in jars if jar.set in sets or not sets], folder)
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
