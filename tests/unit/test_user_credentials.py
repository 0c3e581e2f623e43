"""Users whose credentials no operator makes need theirs from elsewhere, before anything is created on Kubernetes."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from loosehanger.errors import WrongUseError
from loosehanger.kafka.properties import parse_properties
from loosehanger.lab.manifests.documents import read_resources
from loosehanger.lab.plan import Plan
from loosehanger.lab.topology import Topology
from loosehanger.platforms.kubernetes import access
from loosehanger.platforms.kubernetes.user_credentials import check_sign_ins
from loosehanger.platforms.local.preflight import check_users

from ..sign_in_scenario import clusters, user


def check(region: str, *further: dict[str, Any], present: tuple[str, ...] = (), users_of_plain: bool = False) -> None:
    """Checks a region of the scenario with one user, where these secrets are present."""
    (cluster,) = [one for one in clusters() if one["metadata"]["name"] == region]
    if users_of_plain:
        authentication = cluster["spec"]["kafka"]["listeners"][0]["authentication"]
        settings = {**authentication["listenerConfig"], "plain.sasl.jaas.config": 'a.B required user_reader="x";'}
        authentication["listenerConfig"] = settings
    every = [cluster, user(region, "reader", []), *further]
    topology = Topology(read_resources("file.yaml", yaml.safe_dump_all(every, sort_keys=False)))
    place: Any = SimpleNamespace(
        name=region, cluster=SimpleNamespace(get=lambda _, kind, name, __: {"kind": kind} if name in present else None)
    )
    check_sign_ins(place, Plan(region, (), (), topology))


def test_a_user_of_scram_256_needs_a_secret() -> None:
    with pytest.raises(WrongUseError) as error:
        check("europe")
    assert "file.yaml:" in str(error.value)
    assert "KafkaUser/reader: spec.authentication: the operator makes no credentials for SCRAM-SHA-256" in str(
        error.value
    )
    assert "the secret 'reader' with the key 'password' in europe" in str(error.value)
    check("europe", present=("reader",))
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "reader", "namespace": "europe"}}
    check("europe", secret)


def test_a_listener_with_plain_lists_its_users() -> None:
    with pytest.raises(
        WrongUseError, match=r"file\.yaml:\d+: Kafka/north-america: .*plain\.sasl\.jaas\.config: is missing"
    ):
        check("north-america", present=("reader",))
    check("north-america", present=("reader",), users_of_plain=True)


def test_the_local_platform_makes_certificates_for_listeners_that_ask_for_them() -> None:
    for region, is_possible in (("south-america", True), ("europe", False)):
        (cluster,) = [one for one in clusters() if one["metadata"]["name"] == region]
        reader = user(region, "reader", [])
        reader["spec"]["authentication"] = {"type": "tls"}
        every = read_resources("file.yaml", yaml.safe_dump_all([cluster, reader], sort_keys=False))
        plan = Plan(region, (), (), Topology(every))
        if is_possible:
            check_users(plan)
            continue
        with pytest.raises(
            WrongUseError, match=r"file\.yaml:\d+: KafkaUser/reader: spec\.authentication\.type: no listener"
        ):
            check_users(plan)


def test_the_operator_makes_certificates() -> None:
    check("south-america")


@pytest.mark.parametrize(
    ("region", "secret", "expected"),
    [
        ("south-america", {"user.crt": "c", "user.key": "k"}, {"ssl.keystore.certificate.chain": "c"}),
        ("north-america", {"password": "p"}, {"sasl.mechanism": "PLAIN"}),
        ("europe", {"password": "p"}, {"sasl.mechanism": "SCRAM-SHA-256"}),
        ("europe", {}, {}),
    ],
)
def test_clients_in_pods_are_given_the_sign_in_of_their_user(
    monkeypatch: pytest.MonkeyPatch, region: str, secret: dict[str, str], expected: dict[str, str]
) -> None:
    (kafka,) = [one for one in clusters() if one["metadata"]["name"] == region]
    found = {"Kafka": [kafka], "EventStreams": [], "KafkaUser": [user(region, "reader", [])], "Deployment": []}
    monkeypatch.setattr(access, "list_own", lambda *_: found)
    present = {f"{region}-cluster-ca-cert": {"ca.crt": "a"}, "reader": secret}

    def get(_: str, __: str, name: str, ___: str) -> dict[str, Any] | None:
        data = {key: base64.b64encode(value.encode()).decode() for key, value in present.get(name, {}).items()}
        return {"data": data} if data else None

    place: Any = SimpleNamespace(name=region, place="here")
    files, known = access._described(place, cast(Any, SimpleNamespace(get=get)), cast(Any, "here"))
    assert (list(known["clients"]) == ["reader"]) == bool(expected)
    if expected:
        assert parse_properties(files["reader.properties"]).items() >= expected.items()
