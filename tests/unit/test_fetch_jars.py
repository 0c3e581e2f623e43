"""The jars' fetcher against a real web server: nothing but whole, unaltered files is ever used."""

from __future__ import annotations

import hashlib
import re
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from loosehanger.errors import LabError, WrongUseError, run_command
from loosehanger.mirrorproof import jars as fetch_jars
from loosehanger.mirrorproof.jars import Jar, parse_lock, synchronise
from loosehanger.paths import ROOT

CONTENT = {"one": b"first jar" * 20_000, "two": b"second jar" * 20_000}
JARS = [
    Jar("kafka", "org.example", name, "1.0", len(content), hashlib.sha256(content).hexdigest())
    for name, content in CONTENT.items()
]


class Repository(ThreadingHTTPServer):
    """A Maven repository. ``faults`` has, for each artifact, the faults of its next answers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.faults: dict[str, list[str]] = {}
        self.requests: Counter[str] = Counter()
        self.paths: set[str] = set()
        self.scheme = "http"

    @property
    def address(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_port}/maven2"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up, as one that does not trust the certificate does, is not worth a traceback."""


class Handler(BaseHTTPRequestHandler):
    server: Repository

    def do_GET(self) -> None:
        artifact = self.path.split("/")[-3]
        self.server.requests[artifact] += 1
        self.server.paths.add(self.path)
        content = CONTENT[artifact]
        fault = self.server.faults.get(artifact, [])[:1]
        del self.server.faults.get(artifact, [])[:1]
        if fault and fault[0].isdigit():
            self.send_error(int(fault[0]))
            return
        self.send_response(200)
        if fault != ["cut off, length unknown"]:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if fault == ["tampered"]:
            content = b"X" + content[1:]
        elif fault:
            content = content[:100_000]
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(fetch_jars, "FIRST_PAUSE", 0.01)
    with Repository() as repository:
        monkeypatch.setenv("LAB_MAVEN_REPOSITORY", repository.address)
        threading.Thread(target=repository.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield repository
        repository.shutdown()


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


BOTH = {"kafka/one-1.0.jar": CONTENT["one"], "kafka/two-1.0.jar": CONTENT["two"]}


def test_fetches_what_the_lock_lists(server: Repository, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    synchronise(JARS, tmp_path)
    assert files(tmp_path) == BOTH
    assert server.paths == {f"/maven2/org/example/{name}/1.0/{name}-1.0.jar" for name in CONTENT}
    assert capfd.readouterr() == ("", "Fetching 2 jars (0 MB) from 127.0.0.1\n"), "no bar where there is no terminal"


def test_second_run_fetches_only_what_is_missing_or_damaged(server: Repository, tmp_path: Path) -> None:
    synchronise(JARS, tmp_path)
    server.requests.clear()
    synchronise(JARS, tmp_path)
    assert not server.requests

    (tmp_path / "kafka/one-1.0.jar").write_bytes(b"damaged")
    synchronise(JARS, tmp_path)
    assert server.requests == {"one": 1}
    assert files(tmp_path) == BOTH


def test_removes_what_the_lock_does_not_list(server: Repository, tmp_path: Path) -> None:  # noqa: ARG001
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka/one-0.9.jar").write_bytes(b"of an older lock")
    (tmp_path / "kafka/two-1.0.part").write_bytes(b"of a run that was killed")
    synchronise(JARS, tmp_path)
    assert files(tmp_path) == BOTH


@pytest.mark.parametrize("fault", ["cut off", "cut off, length unknown", "tampered", "503"])
def test_passing_fault_is_repeated(server: Repository, tmp_path: Path, fault: str) -> None:
    server.faults = {"one": [fault, fault]}
    synchronise(JARS, tmp_path)
    assert server.requests == {"one": 3, "two": 1}
    assert files(tmp_path) == BOTH


@pytest.mark.parametrize(
    ("fault", "message", "requests"),
    [
        ("cut off", "one-1.0.jar from 127.0.0.1 was cut off after", 4),
        ("cut off, length unknown", "is not the file that jars.lock pins", 4),
        ("tampered", "is not the file that jars.lock pins", 4),
        ("503", "HTTP status 503", 4),
        ("404", "HTTP status 404", 1),
    ],
)
def test_lasting_fault_leaves_no_file(
    server: Repository, tmp_path: Path, fault: str, message: str, requests: int
) -> None:
    server.faults = {"one": [fault] * 9}
    with pytest.raises(LabError, match=message) as raised:
        synchronise(JARS, tmp_path)
    assert raised.value.exit_code == 1
    assert server.requests["one"] == requests
    assert set(files(tmp_path)) <= {"kafka/two-1.0.jar"}

    server.faults.clear()
    synchronise(JARS, tmp_path)
    assert files(tmp_path) == BOTH


def test_unreachable_repository_is_one_line_and_exit_code_2(
    server: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("LAB_MAVEN_REPOSITORY", f"http://user:secret@127.0.0.1:{unused.getsockname()[1]}")
        monkeypatch.setattr("sys.argv", ["fetch_jars.py", str(ROOT / "jars.lock"), str(tmp_path)])
        assert run_command(fetch_jars.main) == 2
    first, last = capfd.readouterr().err.splitlines()
    assert first.startswith("Fetching")
    assert "127.0.0.1: cannot be reached (Connection refused)" in last
    assert "LAB_MAVEN_REPOSITORY" in last
    assert "secret" not in last
    assert not files(tmp_path)
    assert not server.requests


def test_refuses_an_address_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_MAVEN_REPOSITORY", "mirror.example/maven2")
    with pytest.raises(WrongUseError, match="LAB_MAVEN_REPOSITORY"):
        synchronise(JARS, tmp_path)


def test_uses_the_proxy(server: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.address)
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("LAB_MAVEN_REPOSITORY", "http://maven.invalid/maven2/")
    synchronise(JARS[:1], tmp_path)
    assert server.paths == {"http://maven.invalid/maven2/org/example/one/1.0/one-1.0.jar"}


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_trusts_the_certificate_authority_that_the_environment_names(
    server: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a company")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(hours=1), now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    authority, private = tmp_path / "ca.pem", tmp_path / "key.pem"
    authority.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority, private)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.scheme = "https"
    monkeypatch.setenv("LAB_MAVEN_REPOSITORY", server.address)
    for other in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(other, raising=False)

    with pytest.raises(WrongUseError, match=r"127.0.0.1: its certificate is not trusted .* set SSL_CERT_FILE"):
        synchronise(JARS, tmp_path / "jars")

    monkeypatch.setenv(variable, str(authority))
    synchronise(JARS, tmp_path / "jars")
    assert files(tmp_path / "jars") == BOTH


@pytest.mark.parametrize(
    "line",
    [
        "kafka org.example:one:1.0 9 beef",
        f"kafka ../../etc:one:1.0 9 {'0' * 64}",
        f"kafka org.example:one:../1.0 9 {'0' * 64}",
        "<<<<<<< HEAD",
    ],
)
def test_refuses_a_damaged_lock(line: str) -> None:
    with pytest.raises(WrongUseError, match=r"jars\.lock:2"):
        parse_lock(f"# comment\n{line}\n")


def test_the_lock_is_consistent() -> None:
    text = (ROOT / "jars.lock").read_text(encoding="utf-8")
    jars = parse_lock(text)
    assert jars == sorted(jars), "a lock that is sorted gives small differences"
    twice = [name for name, count in Counter((jar.set, jar.artifact) for jar in jars).items() if count > 1]
    assert not twice
    versions = {(jar.set, jar.artifact): jar.version for jar in jars}
    own = {jar.artifact for jar in jars if jar.set == "kafka" and jar.group == "org.apache.kafka"}
    assert own >= {"kafka_2.13", "kafka-tools", "connect-runtime", "connect-mirror", "connect-basic-auth-extension"}
    assert {versions["kafka", artifact] for artifact in own} == {"4.3.1"}
    requirements = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pyspark = re.search(r"^pyspark==(\S+)", requirements, re.MULTILINE)
    assert pyspark
    assert versions["spark", "spark-sql-kafka-0-10_2.13"] == pyspark[1]
