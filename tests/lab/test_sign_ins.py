"""A broker with TLS, SCRAM and OAUTHBEARER: right sign-ins reach both clients, wrong ones are named within seconds."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka.admin import NewTopic

from loosehanger.console.cluster import ClusterView
from loosehanger.errors import UnreachableError
from loosehanger.files import write_file
from loosehanger.kafka.clients import connect_admin, connect_producer
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.oauth import ALLOWED_URLS
from loosehanger.kafka.produce import RecordProducer
from loosehanger.kafka.properties import (
    OAUTH_LOGIN_MODULE,
    SCRAM_LOGIN_MODULE,
    LoginModule,
    format_jaas,
    format_properties,
)
from tests.certificates import certificate_pem, key_pem
from tests.identity_provider import CLIENT, SCOPE, SECRET, Client, IdentityProvider, providing

from .broker import Broker, running

pytestmark = [pytest.mark.lab, pytest.mark.slow]

STRANGER = "stranger"
"""A client whose tokens are for another audience."""
RECORDS = 26_000
"""More than Python reads itself: Spark's own consumers sign in, too."""
BOUND_S = 10.0
TOKEN_LIFE_S = 8
OLD, NEW = "MkU3OEVBNTcwNTJENDM2Qg", "VGhlT3RoZXJDbHVzdGVyMQ"


@dataclass
class Place:
    """Two clusters, an identity provider, and a folder with certificates."""

    folder: Path
    source: Broker
    target: Broker
    provider: IdentityProvider

    def oauth(self, client: str = CLIENT, secret: str = SECRET, **further: str) -> dict[str, str]:
        """Client properties by client credentials."""
        return {
            "bootstrap.servers": f"127.0.0.1:{self.source.second}",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": self.provider.endpoint,
            "sasl.jaas.config": self.provider.jaas(client, secret),
            **self.provider.truststore,
            **further,
        }

    def scram(self, **further: str) -> dict[str, str]:
        """Client properties with SCRAM."""
        user = {"username": "admin", "password": "broker-of-a-test"}
        jaas = format_jaas(LoginModule(SCRAM_LOGIN_MODULE, user))
        return self.oauth() | {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas} | further

    def write(self, name: str, properties: Mapping[str, str]) -> Path:
        """A properties file."""
        write_file(self.folder / name, format_properties(properties))
        return self.folder / name


def listeners(provider: IdentityProvider) -> dict[str, str]:
    """A broker's settings: SASL with TLS at the second port, and TLS with an expired certificate at the third."""
    ports = "SASL_PLAINTEXT://127.0.0.1:{broker},TLS://127.0.0.1:{second},EXPIRED://127.0.0.1:{third}"
    protocols = "SASL_PLAINTEXT:SASL_PLAINTEXT,TLS:SASL_SSL,EXPIRED:SSL,CONTROLLER:PLAINTEXT"
    user = {"username": "admin", "password": "broker-of-a-test"}
    return {
        "listeners": ports + ",CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": ports,
        "listener.security.protocol.map": protocols,
        **{
            f"listener.name.{name}.ssl.keystore.{key}": value
            for name, is_expired in (("tls", False), ("expired", True))
            for key, value in (
                ("type", "PEM"),
                ("certificate.chain", certificate_pem("broker", expired=is_expired)),
                ("key", key_pem()),
            )
        },
        "listener.name.tls.sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.tls.scram-sha-512.sasl.jaas.config": format_jaas(LoginModule(SCRAM_LOGIN_MODULE, user)),
        "listener.name.tls.oauthbearer.sasl.jaas.config": format_jaas(LoginModule(OAUTH_LOGIN_MODULE, {})),
        **{f"listener.name.tls.{name}": value for name, value in provider.validation.items()},
        "super.users": f"User:admin;User:ANONYMOUS;User:{CLIENT}",
    }


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("sign-ins")
    # Of the same name and another key would be no better: this one has another name.
    write_file(folder / "other.pem", certificate_pem("other", "other"))
    clients = (Client(CLIENT, SECRET), Client(STRANGER, SECRET, audience="elsewhere"))
    with ExitStack() as stack:
        provider = stack.enter_context(providing(folder, *clients, life_s=TOKEN_LIFE_S))
        allowed = f"-D{ALLOWED_URLS}={provider.keys.as_uri()}"
        source, target = (
            stack.enter_context(running(tmp_path_factory.mktemp(name), None, cluster, listeners(provider), [allowed]))
            for name, cluster in (("source", OLD), ("target", NEW))
        )
        yield Place(folder, source, target, provider)


def run(place: Place, *arguments: str | Path) -> tuple[subprocess.CompletedProcess[str], float]:
    """Runs ``mirrorproof``; returns how long it took as well."""
    program = [sys.executable, "-P", "-m", "loosehanger.mirrorproof.command_line"]
    began = time.monotonic()
    done = subprocess.run(
        [*program, *arguments],
        env=os.environ | {"XDG_CACHE_HOME": str(place.folder / "cache")},
        cwd=place.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert SECRET not in done.stdout + done.stderr
    return done, time.monotonic() - began


def test_both_clients_sign_in_by_client_credentials_and_renew_their_tokens(place: Place) -> None:
    files = []
    for name, broker in (("source", place.source), ("target", place.target)):
        address = {"bootstrap.servers": f"127.0.0.1:{broker.second}"}
        files.append(place.write(f"{name}.properties", place.oauth(**address)))
        connection = Connection.from_properties(files[-1], {})
        admin = connect_admin(connection)
        admin.create_topics([NewTopic("orders", 2, 1, topic_configs={"retention.ms": "-1"})])
        admin.wait_for_topics(["orders"])
        with connect_producer(connection) as producer:
            for number in range(RECORDS):
                producer.send("orders", b"v%d" % number, key=b"k%d" % number, partition=number % 2, timestamp_ms=number)
        asked, ends = len(place.provider.asked), time.monotonic() + 2 * TOKEN_LIFE_S
        # The brokers end a session whose token has expired: the client must sign in again, with a new one.
        while time.monotonic() < ends:
            assert "orders" in {topic["name"] for topic in admin.describe_topics()}
            time.sleep(0.5)
        admin.close()
        assert len(place.provider.asked) >= asked + 2
        assert set(place.provider.asked) == {SCOPE}
    checked, _ = run(place, "doctor", *files)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"as {CLIENT}" in checked.stdout
    proved, _ = run(place, "prove", *files, "--topics", "orders", "--json")
    assert proved.returncode == 0, proved.stdout + proved.stderr
    assert json.loads(proved.stdout)["totals"]["source_records"] == RECORDS


WRONG: dict[str, tuple[str, str]] = {
    "mechanism": (
        r"does not offer the mechanism SCRAM-SHA-256 \(it offers OAUTHBEARER, SCRAM-SHA-512\)",
        "set sasl.mechanism",
    ),
    "password": (r"refuses user 'admin': Authentication failed .* invalid credentials", ""),
    "authority": (r"certificate at 127.0.0.1:\d+ that is of an authority that is not trusted here", "ssl.truststore"),
    "expired": (r"shows a certificate at 127.0.0.1:\d+ that has expired", "renew it"),
    "name": (r"shows a certificate at localhost:\d+ that is not for this name", "use a name that is in it"),
    "plaintext port": (r"does not speak TLS at 127.0.0.1:\d+", "check security.protocol"),
    "TLS port": (r"speaks TLS at 127.0.0.1:\d+", "set security.protocol"),
    "token": (rf"refuses the token of client '{STRANGER}'", "audience"),
    "secret": (rf"token endpoint 127.0.0.1:\d+ refuses client '{CLIENT}': invalid_client", ""),
    "endpoint": (r"token endpoint 127.0.0.1:1 cannot be reached: Connection refused", ""),
    "endpoint's authority": (r"token endpoint 127.0.0.1:\d+ cannot be reached: its certificate is not trusted", ""),
}
"""What each wrong sign-in is called, and what is to do."""


def wrong(place: Place, case: str) -> dict[str, str]:
    """Client properties of which one thing is wrong."""
    port, plain, expired = place.source.second, place.source.port, place.source.third
    jaas = place.oauth()["sasl.jaas.config"]
    return {
        "mechanism": lambda: place.scram() | {"sasl.mechanism": "SCRAM-SHA-256"},
        "password": lambda: place.scram() | {
            "sasl.jaas.config": f'{SCRAM_LOGIN_MODULE} required username="admin" password="wrong";'
        },
        "authority": lambda: place.scram() | {"ssl.truststore.location": str(place.folder / "other.pem")},
        "expired": lambda: place.scram() | {
            "bootstrap.servers": f"127.0.0.1:{expired}", "security.protocol": "SSL"
        },
        "name": lambda: place.scram() | {"bootstrap.servers": f"localhost:{port}"},
        "plaintext port": lambda: place.scram() | {"bootstrap.servers": f"127.0.0.1:{plain}"},
        "TLS port": lambda: place.scram() | {"security.protocol": "SASL_PLAINTEXT"},
        "token": lambda: place.oauth(client=STRANGER),
        "secret": lambda: place.oauth(secret="another"),
        "endpoint": lambda: place.oauth() | {"sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/token"},
        "endpoint's authority": lambda: place.oauth() | {
            "sasl.jaas.config": re.sub(r"location=\"[^\"]*", f'location="{place.folder / "other.pem"}', jaas)
        },
    }[case]()  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_sign_in_is_named_on_every_path_within_seconds(place: Place, case: str) -> None:
    good = place.write("good.properties", place.scram() | {"bootstrap.servers": f"127.0.0.1:{place.target.second}"})
    bad = place.write("bad.properties", wrong(place, case))
    clusters = {"old": {"file": str(bad)}, "new": {"file": str(good)}}
    flows = [{"source": "old", "target": "new", "patterns": [".*"]}]
    configuration = place.folder / "flows.yaml"
    configuration.write_text(json.dumps({"clusters": clusters, "flows": flows}), encoding="utf-8")
    sentence, remedy = WRONG[case]
    for arguments, expected in (
        (("doctor", bad, good), 1),
        (("plan", configuration), 4),
        (("prove", bad, good, "--topics", "orders"), 4),
    ):
        done, took = run(place, *arguments)
        said = done.stdout + done.stderr
        assert done.returncode == expected, said
        assert re.search(sentence, said), said
        assert remedy in said
        assert "no answer within" not in said
        # Python alone takes longer where every core has several programs to run.
        assert took < BOUND_S * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), (arguments[0], took)


TOOL = """\
import sys
from pathlib import Path
from loosehanger.cli.kafka_tools import run
from loosehanger.errors import run_command
from loosehanger.lab.record import Lab, Region
lab = Lab("x", "local", "", {"old": Region("old", "old", {"admin": Path(sys.argv[1])}, {}, ())})
sys.exit(run_command(lambda: run(lab, "old", "admin", "topics", ["--list"])))
"""
"""``./lab kafka`` in a lab with one cluster."""


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_sign_in_is_named_by_programs_tools_and_consoles_within_seconds(place: Place, case: str) -> None:
    bad = place.write("bad.properties", wrong(place, case))
    sentence, remedy = WRONG[case]
    took: dict[str, float] = {}
    for name, arguments in {
        "producer": ("-m", "producer", "--config", bad, "--topics", "ORDERS", "--events", "1"),
        "consumer": ("-m", "consumers", "--config", bad, "--topic", "orders", "--max", "1"),
        "tool": ("-c", TOOL, bad),
    }.items():
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-P", *arguments],
            cwd=place.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        took[name] = time.monotonic() - began
        said = done.stdout + done.stderr
        assert done.returncode == 1, (name, said)
        assert re.search(sentence, said), (name, said)
        assert remedy in said, (name, said)
        assert not re.search("no cluster answers|no answer within|Traceback|timed out", said), (name, said)
        assert SECRET not in said
    connection = Connection.from_properties(bad, {})
    with closing(ClusterView("old", connection)) as view:
        uses: dict[str, Callable[[], object]] = {
            "console": lambda: asyncio.run(view.topics()),
            "produce": lambda: RecordProducer(connection, "old"),
        }
        for name, use in uses.items():
            began = time.monotonic()
            with pytest.raises(UnreachableError, match=sentence) as raised:
                use()
            took[name] = time.monotonic() - began
            assert remedy in str(raised.value), name
    print(case, {name: round(seconds, 1) for name, seconds in took.items()})
    assert max(took.values()) < BOUND_S * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), took
