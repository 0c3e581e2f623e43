"""Regions whose users sign in with tokens: programs, clients and tools follow the Kafka's annotations."""

from __future__ import annotations

import argparse
import base64
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from loosehanger.ansible.described import _of_entry
from loosehanger.cli import client_settings, kafka_tools
from loosehanger.errors import WrongUseError
from loosehanger.files import write_file
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.oauth import ALLOWED_URLS, ClientCredentials, read_credentials
from loosehanger.kafka.properties import parse_properties
from loosehanger.lab.manifests.documents import Document, read_resources
from loosehanger.lab.manifests.sign_ins import Tokens, of_user, tokens_of, type_for
from loosehanger.lab.manifests.views import Program
from loosehanger.lab.plan import Plan
from loosehanger.lab.program_sign_ins import with_sign_ins
from loosehanger.lab.record import Lab, Region
from loosehanger.lab.scenario import read_scenario
from loosehanger.lab.token_sign_ins import check_tokens
from loosehanger.lab.topology import Topology
from loosehanger.platforms.client_properties import client_file, client_properties
from loosehanger.platforms.kubernetes import access
from loosehanger.platforms.kubernetes.event_streams import EventStreams, to_event_streams
from loosehanger.platforms.kubernetes.user_credentials import check_sign_ins
from loosehanger.platforms.local.preflight import check_users

from ..certificates import AUTHORITY, certificate_pem
from ..sign_in_scenario import clusters, user
from ..topologies import program
from .test_planned_stages import of_role

ENDPOINT = "https://identity.example.com/token"
TOKENS = Tokens(ENDPOINT, "kafka.read", "identity.crt")
OAUTH = {"type": "custom", "sasl": True, "listenerConfig": {"sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-512"}}
PEM = certificate_pem(AUTHORITY)
PREFIX = "loosehanger-lab/token-"


def kafka(region: str = "europe", **annotations: str) -> dict[str, Any]:
    """A cluster with tokens; of no annotations, those of ``TOKENS``."""
    (cluster,) = [one for one in clusters() if one["metadata"]["name"] == region]
    cluster["spec"]["kafka"]["listeners"][0]["authentication"] = OAUTH
    given = annotations or {"endpoint": ENDPOINT, "scope": TOKENS.scope, "authority": TOKENS.authority}
    cluster["metadata"]["annotations"] = {f"{PREFIX}{name}": value for name, value in given.items()}
    return cluster


def documents(*resources: dict[str, Any]) -> list[Document]:
    """The resources in one file."""
    return read_resources("file.yaml", yaml.safe_dump_all(resources, sort_keys=False))


def secret(name: str, *keys: str) -> dict[str, Any]:
    """A secret of a manifest."""
    metadata = {"name": name, "namespace": "europe"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": dict.fromkeys(keys, "s3cret")}


def client(name: str, prefix: str = "", **further: str) -> dict[str, Any]:
    """A program that signs in to Europe as a user."""
    found = program("europe", "europe", name, name=name)
    container = found["spec"]["template"]["spec"]["containers"][0]
    container["env"][0]["name"] = f"{prefix}KAFKA_BOOTSTRAP_SERVERS"
    given = {f"{prefix}KAFKA_USERNAME": name, f"{prefix}KAFKA_PASSWORD_FILE": "/etc/kafka/user/password", **further}
    container["env"] += [{"name": key, "value": value} for key, value in given.items()]
    container["volumeMounts"] = [{"name": name, "mountPath": "/etc/kafka/user"}]
    return found


def completed(*resources: dict[str, Any]) -> dict[str, str]:
    """The environment of the one program among resources, as it is applied."""
    found = with_sign_ins({"europe": documents(*resources)}, {})["europe"]
    (deployment,) = [one for one in found if one.kind == "Deployment"]
    return Program(deployment.content).variables


@pytest.mark.parametrize("prefix", ["", "EUROPE_"])
def test_programs_follow_their_region(prefix: str) -> None:
    variables = completed(kafka(), user("europe", "reader", []), client("reader", prefix))
    expected = {
        "SECURITY_PROTOCOL": "SASL_SSL",
        "SASL_MECHANISM": "OAUTHBEARER",
        "TOKEN_ENDPOINT": ENDPOINT,
        "TOKEN_SCOPE": "kafka.read",
        "TOKEN_CA_FILE": "/etc/kafka/user/identity.crt",
        "PASSWORD_FILE": "/etc/kafka/user/password",
    }
    assert {name: variables[f"{prefix}KAFKA_{name}"] for name in expected} == expected


def test_a_program_may_have_an_endpoint_of_its_own_and_a_user_a_password() -> None:
    own = client("reader", KAFKA_TOKEN_ENDPOINT="https://elsewhere.example.com/token")
    variables = completed(kafka(), user("europe", "reader", []), own)
    assert variables["KAFKA_TOKEN_ENDPOINT"] == "https://elsewhere.example.com/token"
    assert not {"KAFKA_TOKEN_SCOPE", "KAFKA_TOKEN_CA_FILE"} & variables.keys()
    with_password = user("europe", "reader", [])
    with_password["spec"]["authentication"] = {"type": "scram-sha-512"}
    variables = completed(kafka(), with_password, client("reader"))
    assert not [name for name in variables if name.startswith(("KAFKA_TOKEN", "KAFKA_SASL"))]


def test_the_kits_users_have_rights_only() -> None:
    listener = {"name": "internal", "tls": True, "authentication": OAUTH}
    assert type_for(listener) == "scram-sha-512"
    assert type_for(listener, TOKENS) == ""
    assert of_user(listener, {}, TOKENS).mechanism == of_user(listener, None, TOKENS).mechanism == "OAUTHBEARER"
    beside = {**OAUTH, "listenerConfig": {"sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER"}}
    assert of_user({**listener, "authentication": beside}, {}).mechanism == "PLAIN"
    assert of_user({**listener, "authentication": beside}, {}, TOKENS).mechanism == "OAUTHBEARER"
    assert tokens_of(kafka()) == TOKENS
    assert tokens_of({"metadata": {}}) is None


def test_the_role_describes_where_users_get_tokens() -> None:
    role = {
        "role": "kafka_cluster",
        "kafka_cluster_authentication": OAUTH,
        "kafka_cluster_token_endpoint": ENDPOINT,
        "kafka_cluster_token_scope": "kafka.read",
        "kafka_cluster_token_authority": "identity.crt",
    }
    scenario = read_scenario("03-broadcast")
    found = of_role(role, "europe", scenario, [])
    (cluster,) = [one for one in found if one.kind == "Kafka"]
    assert tokens_of(cluster.content) == TOKENS
    users = [one for one in found if one.kind == "KafkaUser"]
    assert sorted(one.name for one in users) == ["admin", "prover"]
    assert not any("authentication" in one.spec for one in users)
    usual = of_role({"role": "kafka_cluster"}, "europe", scenario, [])
    assert not any("annotations" in one.content["metadata"] for one in usual)


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({"endpoint": "identity"}, r"token-endpoint \(kafka_cluster_token_endpoint\): 'identity' is not the http"),
        ({"scope": "read"}, r"token-scope \(kafka_cluster_token_scope\): needs kafka_cluster_token_endpoint"),
        ({"endpoint": "", "authority": "a"}, r"token-authority \(kafka_cluster_token_authority\): needs kafka_cluster"),
        ({"endpoint": ENDPOINT, "authority": "../ca"}, r"token-authority .*: '\.\./ca' is not the key of a secret"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_its_field(annotations: dict[str, str], message: str) -> None:
    with pytest.raises(WrongUseError, match=rf"^file\.yaml:\d+: Kafka/europe: metadata\.annotations\..*{message}"):
        check_tokens(Topology(documents(kafka(**annotations))))


def test_a_listener_without_tokens_and_a_secret_without_a_key_are_refused() -> None:
    check_tokens(Topology(documents(kafka(), user("europe", "admin", []), secret("admin", "password", "identity.crt"))))
    with pytest.raises(WrongUseError, match=r"file\.yaml:\d+: Secret/admin: stringData: .* add the key identity\.crt"):
        check_tokens(Topology(documents(kafka(), user("europe", "admin", []), secret("admin", "password"))))
    other = kafka()
    other["spec"]["kafka"]["listeners"][0]["authentication"] = {"type": "scram-sha-512"}
    with pytest.raises(WrongUseError, match=r"token-endpoint .*: no listener offers OAUTHBEARER"):
        check_tokens(Topology(documents(other)))


@pytest.mark.parametrize("name", ["admin", "prover", "console-europe"])
def test_a_user_of_the_kit_without_a_secret_is_refused_by_both_platforms(name: str) -> None:
    # Mirrors name secrets of their own.
    users = [user("europe", one, []) for one in (name, "mm2-reads-europe")]
    programs = [client(name)] if name.startswith("console") else []

    def plan(*further: dict[str, Any]) -> Plan:
        return Plan("europe", (), (), Topology(documents(kafka(), *users, *programs, *further)))

    message = rf"file\.yaml:\d+: KafkaUser/{name}: spec\.authentication: KafkaUser/{name} gets tokens at {ENDPOINT}, .*"
    message += rf"europe has no secret '{name}' with 'password' .* and 'identity\.crt' .*; add a Secret of that name"
    place = cast(Any, SimpleNamespace(name="europe", cluster=SimpleNamespace(get=lambda *_: None)))
    with pytest.raises(WrongUseError, match=message) as error:
        check_users(plan())
    assert "mm2-reads" not in str(error.value)
    with pytest.raises(WrongUseError, match=message):
        check_sign_ins(place, plan())
    given = secret(name, "password", "identity.crt")
    check_users(plan(given))
    check_sign_ins(place, plan(given))
    data = {"password": "", "identity.crt": ""}
    there = cast(Any, SimpleNamespace(name="europe", cluster=SimpleNamespace(get=lambda *_: {"data": data})))
    check_sign_ins(there, plan())
    del data["identity.crt"]
    with pytest.raises(WrongUseError, match=message):
        check_sign_ins(there, plan())


def test_a_program_of_another_region_needs_the_secret_too() -> None:
    own, remote = kafka(), client("console-europe", "EUROPE_")
    remote["metadata"]["namespace"] = "asia"
    topology = Topology(documents(own, user("europe", "console-europe", []), remote))
    with pytest.raises(WrongUseError, match="KafkaUser/console-europe gets tokens"):
        check_users(Plan("europe", (), (), topology))
    given = secret("console-europe", "password", "identity.crt")
    topology = Topology(documents(own, given, user("europe", "console-europe", []), remote))
    (copy,) = topology.secret_copies()
    assert (copy.origin, copy.region, copy.maker) == ("europe", "asia", "KafkaUser")


def properties(authority: str = "/ca.crt") -> dict[str, str]:
    """A user's client properties."""
    sign_in = of_user({"tls": True, "authentication": OAUTH}, {}, TOKENS)
    given = {"password": "s3cret\n", "identity.crt": PEM}
    found = client_properties(sign_in, "reader", given, "127.0.0.1:9", authority, TOKENS)
    assert found
    assert client_properties(sign_in, "reader", {"password": "s3cret"}, "127.0.0.1:9", "/ca.crt", TOKENS) is None
    assert client_properties(sign_in, "reader", given, "127.0.0.1:9", "/ca.crt") is None
    return found


def test_clients_sign_in_with_the_secret_of_their_user() -> None:
    text = client_file(properties())
    assert text.startswith(f"# Java's clients need this option too: -D{ALLOWED_URLS}={ENDPOINT}\n")
    credentials = read_credentials(parse_properties(text), "file")
    assert credentials == ClientCredentials(ENDPOINT, "reader", "s3cret", "kafka.read", ca_certificates=PEM)
    assert not client_file({"bootstrap.servers": "a:1"}).startswith("#")


def test_clients_in_pods_sign_in_with_the_secret_of_their_user(monkeypatch: pytest.MonkeyPatch) -> None:
    users = [user("europe", name, []) for name in ("reader", "mm2-reads-europe", "mm2-writes")]
    found = {"Kafka": [kafka()], "EventStreams": [], "KafkaUser": users, "Deployment": []}
    monkeypatch.setattr(access, "list_own", lambda *_: found)
    data = {"password": "s3cret", "identity.crt": PEM}
    present = {"europe-cluster-ca-cert": {"ca.crt": "a"}, "reader": data, "mm2-writes": {"id": "x"}}

    def get(_: str, __: str, name: str, ___: str) -> dict[str, Any] | None:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in present.get(name, {}).items()}
        return {"data": encoded} if encoded else None

    place: Any = SimpleNamespace(name="europe", place="here")
    files, known = access._described(place, cast(Any, SimpleNamespace(get=get)), cast(Any, "here"))
    assert list(known["clients"]) == ["reader"]
    credentials = Connection.parse(files["reader.properties"], "file").credentials
    assert credentials
    assert (credentials.endpoint, credentials.client_secret) == (ENDPOINT, "s3cret")


@pytest.fixture
def region(tmp_path: Path) -> Region:
    """A region of the record with one such user."""
    path = tmp_path / "reader.properties"
    write_file(tmp_path / "ca.crt", PEM)
    write_file(path, client_file(properties(str(tmp_path / "ca.crt"))))
    return Region("europe", "europe", {"reader": path}, {}, ())


def test_tools_may_ask_the_token_endpoint(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Sequence[str]] = []
    monkeypatch.setattr(Cluster, "connect", lambda _: None)
    monkeypatch.setattr(os, "execve", lambda _, command, __: ran.append(command))
    kafka_tools.run(Lab("x", "local", "", {"europe": region}), "europe", "reader", "topics", ["--list"])
    (command,) = ran
    assert f"-D{ALLOWED_URLS}={ENDPOINT}" in command
    assert not any("s3cret" in word for word in command)


def test_clients_of_ones_own_get_what_they_need(region: Region) -> None:
    path = client_settings.client_file(region, "reader", "librdkafka")
    assert path.stat().st_mode & 0o777 == 0o600
    settings = Connection.from_properties(path).credentials
    assert settings
    assert settings.ca_file
    assert settings.ca_file.read_text(encoding="utf-8") == PEM
    assert (settings.client_id, settings.client_secret, settings.scope) == ("reader", "s3cret", "kafka.read")
    text = client_settings.client_file(region, "reader", "env").read_text(encoding="utf-8")
    for line in ("KAFKA_SASL_MECHANISM=OAUTHBEARER", "KAFKA_PASSWORD=s3cret", f"KAFKA_TOKEN_ENDPOINT={ENDPOINT}"):
        assert f"export {line}\n" in text
    with pytest.raises(WrongUseError, match=r"signs in with OAUTHBEARER, .* use --java, --librdkafka or --env"):
        client_settings.client_file(region, "reader", "python")
    assert client_settings.run(
        Lab("x", "local", "", {"europe": region}),
        argparse.Namespace(region="europe", user="reader", kind="java", show=False),
    ) == 0  # fmt: skip


def test_the_secrets_of_users_are_described_with_them() -> None:
    found = documents(user("europe", "admin", []), secret("admin", "password"), kafka())
    assert [one.reference for one in _of_entry("europe", {"kind": "KafkaUser"}, found)] == [
        "KafkaUser/admin",
        "Secret/admin",
    ]


def test_event_streams_refuses_a_token_endpoint_by_its_field() -> None:
    pool = {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaNodePool",
        "metadata": {"name": "nodes", "namespace": "europe", "labels": {"strimzi.io/cluster": "europe"}},
        "spec": {"replicas": 1, "roles": ["controller", "broker"]},
    }
    settings = EventStreams(accept_license=True, license="L-TEST", license_use="EventAutomationNonProduction")
    message = r"^file\.yaml:3: Kafka/europe: metadata\.annotations\.loosehanger-lab/token-endpoint: is not possible on"
    with pytest.raises(WrongUseError, match=message):
        to_event_streams([("file.yaml:3", kafka()), ("file.yaml:9", pool)], settings)
