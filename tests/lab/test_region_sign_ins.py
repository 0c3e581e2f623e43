"""One region's cluster for each sign-in: users reach it as their manifests say, and others are refused by name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from loosehanger.files import write_file
from loosehanger.kafka.clients import connect_admin
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.oauth import ALLOWED_URLS
from loosehanger.kafka.properties import (
    format_properties,
    read_properties,
)
from loosehanger.lab.manifests.documents import read_resources
from loosehanger.lab.manifests.loader import read_manifests
from loosehanger.lab.topology import Topology
from loosehanger.paths import ROOT, lab_home
from loosehanger.platforms.local.access import record
from loosehanger.platforms.local.apply import apply, delete_region
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.ports import free_ports
from tests.certificates import certificate_pem, key_pem
from tests.identity_provider import CLIENT, SECRET, Client, providing
from tests.sign_in_scenario import LISTENERS, rule

pytestmark = [pytest.mark.lab, pytest.mark.slow]

BOUND_S = 10.0


def manifests(
    region: str, authentication: dict[str, Any] | None, users: dict[str, str], properties: Mapping[str, str]
) -> str:
    """A cluster of one node, and its users by name, each with its type; and the system properties of its Java."""
    labels = {"strimzi.io/cluster": region}
    listener: dict[str, Any] = {"name": "internal", "port": 9098, "type": "internal", "tls": region != "plaintext"}
    if authentication:
        listener["authentication"] = authentication
    kafka: dict[str, Any] = {"listeners": [listener], "authorization": {"type": "simple", "superUsers": ["ANONYMOUS"]}}
    if properties:
        java = [{"name": name, "value": value} for name, value in properties.items()]
        kafka["jvmOptions"] = {"javaSystemProperties": java}
    pool = {"replicas": 1, "roles": ["controller", "broker"], "storage": {"type": "ephemeral"}}
    acls = [rule("topic", "orders", "Describe"), rule("group", "readers", "Read")]
    api = "kafka.strimzi.io/v1"
    found: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": region}},
        {"apiVersion": api, "kind": "KafkaNodePool", "metadata": {"name": "nodes", "labels": labels}, "spec": pool},
        {"apiVersion": api, "kind": "Kafka", "metadata": {"name": region}, "spec": {"kafka": kafka}},
    ]
    for name, kind in users.items():
        spec: dict[str, Any] = {"authorization": {"type": "simple", "acls": acls}}
        spec |= {"authentication": {"type": kind}} if kind else {}
        found.append(
            {"apiVersion": api, "kind": "KafkaUser", "metadata": {"name": name, "labels": labels}, "spec": spec}
        )
    for one in found[1:]:
        one["metadata"]["namespace"] = region
    return yaml.safe_dump_all(found)


def client_files(region: LocalRegion) -> dict[str, Path]:
    """The client properties of the region's users, by name."""
    found = json.loads((region.home / "access" / f"{region.name}.json").read_text(encoding="utf-8"))["clients"]
    return {name: Path(path) for name, path in found.items()}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A lab's home with Java and Kafka, and nothing else."""
    for name in ("venv", "jars", "java"):
        (tmp_path / name).symlink_to((lab_home() / name).resolve())
    return tmp_path


@pytest.fixture
def region(request: pytest.FixtureRequest, home: Path) -> Iterator[LocalRegion]:
    """A region of this name, which is deleted afterwards."""
    found = LocalRegion(home, ROOT, request.param, min(free_ports(3)) // 100 * 100)
    yield found
    delete_region(found, 30)


def set_up(
    region: LocalRegion,
    authentication: dict[str, Any] | None,
    users: dict[str, str],
    properties: Mapping[str, str] | None = None,
) -> list[str]:
    """Applies a cluster with its users, and writes how they reach it; returns what has changed."""
    text = manifests(region.name, authentication, users, properties or {})
    outcome = apply(region, read_manifests("file.yaml", text), ready_seconds=60)
    documents = read_resources("file.yaml", text)
    record(region, documents, Topology(documents))
    return outcome.changed


@pytest.mark.parametrize(
    ("region", "authentication", "kind"),
    [
        ("usual", {"type": "scram-sha-512"}, "scram-sha-512"),
        ("scram", LISTENERS["europe"], ""),
        ("plain", LISTENERS["north-america"], ""),
        ("tls", LISTENERS["south-america"], "tls"),
        ("none", None, ""),
        ("plaintext", None, ""),
    ],
    indirect=["region"],
)
def test_users_reach_a_cluster_as_its_listener_asks(
    region: LocalRegion, authentication: dict[str, Any] | None, kind: str
) -> None:
    users = {"alice": kind, "bob": kind}
    assert "Kafka/" + region.name in set_up(region, authentication, users)
    assert set_up(region, authentication, users) == []
    # A user who comes later, while the cluster runs.
    assert set_up(region, authentication, users | {"carol": kind}) == ["KafkaUser/carol"] or region.name == "plain"
    files = client_files(region)
    assert sorted(files) == ["alice", "bob", "carol"]
    for path in files.values():
        assert path.stat().st_mode & 0o777 == 0o600
        with closing(connect_admin(Connection.from_properties(path))) as admin:
            assert admin.describe_cluster()["brokers"]
    assert set_up(region, authentication, users | {"carol": kind}) == []
    # A user who is applied alone, as by a later step of a stage.
    text = manifests(region.name, authentication, {"dave": kind}, {})
    dave = [one for one in read_manifests("file.yaml", text) if one.resource.kind == "KafkaUser"]
    assert apply(region, dave, ready_seconds=60).changed == ["KafkaUser/dave"]
    every = read_resources("file.yaml", text)
    record(region, every, Topology(every))
    with closing(connect_admin(Connection.from_properties(client_files(region)["dave"]))) as admin:
        assert admin.describe_cluster()["brokers"]


@pytest.mark.parametrize("region", ["tls"], indirect=True)
def test_a_user_reaches_a_cluster_with_the_store_in_pkcs12(region: LocalRegion) -> None:
    set_up(region, dict(LISTENERS["south-america"]), {"alice": "tls"})
    secret = region.secrets / "alice"
    own = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(secret / "user.p12"),
        "ssl.keystore.password": (secret / "user.password").read_text(encoding="utf-8"),
    }
    given = read_properties(client_files(region)["alice"])
    properties = {name: value for name, value in given.items() if not name.startswith("ssl.keystore.")} | own
    connection = Connection.of_properties(properties, "alice")
    assert connection.principal == "CN=alice"
    with closing(connect_admin(connection)) as admin:
        assert admin.describe_cluster()["brokers"]


@pytest.mark.parametrize("region", ["oauth"], indirect=True)
def test_a_client_of_an_identity_provider_reaches_the_cluster(region: LocalRegion, tmp_path: Path) -> None:
    clients = (Client(CLIENT, SECRET), Client("stranger", SECRET, audience="elsewhere"))
    with providing(tmp_path, *clients) as provider:
        users = {CLIENT: "", "alice": "scram-sha-512"}
        set_up(region, provider.listener("SCRAM-SHA-512"), users, {ALLOWED_URLS: provider.keys.as_uri()})
        files = client_files(region)
        # The secret of the identity provider's client is elsewhere.
        assert list(files) == ["alice"]
        right = Connection.from_properties(files["alice"])
        assert right.sasl_mechanism == "SCRAM-SHA-512"
        for client, is_right in ((CLIENT, True), ("stranger", False)):
            properties = {
                **right.java(),
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": provider.endpoint,
                "sasl.jaas.config": provider.jaas(client, SECRET),
            }
            file = tmp_path / f"{client}.properties"
            write_file(file, format_properties(properties))
            said = doctor(region, file, files["alice"])
            sentence = rf"ok +source +signed in +as {client}" if is_right else f"refuses the token of client '{client}'"
            assert re.search(sentence, said), said


def _in_one_line(pem: str) -> str:
    return pem.replace("\n", " ")


WRONG: Mapping[str, tuple[str, str, str]] = {
    "mechanism": ("plain", "sasl.mechanism=SCRAM-SHA-512", r"does not offer the mechanism SCRAM-SHA-512"),
    "password": ("plain", 'sasl.jaas.config=a.B required username="alice" password="wrong";', "refuses user 'alice'"),
    "authority": ("tls", "ssl.truststore.location={clients}", "of an authority that is not trusted here"),
    "stranger's certificate": (
        "tls",
        f"ssl.keystore.key={_in_one_line(key_pem())}\nssl.keystore.certificate.chain="
        f"{_in_one_line(certificate_pem('alice'))}",
        "refuses the client certificate .* use one of the authority that the brokers trust",
    ),
    "no certificate": ("tls", "ssl.keystore.key=\nssl.keystore.certificate.chain=", "asks for a client certificate"),
}


@pytest.mark.parametrize("region", ["plain", "tls"], indirect=True)
def test_a_wrong_sign_in_is_named_within_seconds(region: LocalRegion) -> None:
    kind = "tls" if region.name == "tls" else ""
    set_up(region, dict(LISTENERS["south-america" if kind else "north-america"]), {"alice": kind})
    right = client_files(region)["alice"]
    for case, (where, line, sentence) in WRONG.items():
        if where != region.name:
            continue
        wrong = right.with_name(f"{case.split()[0]}.properties")
        clients = region.secrets / f"{region.name}-clients-ca-cert" / "ca.crt"
        write_file(wrong, right.read_text(encoding="utf-8") + line.format(clients=clients) + "\n")
        began = time.monotonic()
        said = doctor(region, wrong, right)
        took = time.monotonic() - began
        assert re.search(sentence, said), (case, said)
        assert took < BOUND_S * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), (case, took)


def doctor(region: LocalRegion, *files: Path) -> str:
    """What ``mirrorproof doctor`` says of two clusters."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "loosehanger.mirrorproof.command_line", "doctor", *files],
        env=os.environ | {"XDG_CACHE_HOME": str(region.home / "cache")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr
