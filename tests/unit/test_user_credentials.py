"""Users whose credentials no operator makes need theirs from elsewhere, before anything is created on Kubernetes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from loosehanger.errors import WrongUseError
from loosehanger.lab.manifests.documents import read_resources
from loosehanger.lab.plan import Plan
from loosehanger.lab.topology import Topology
from loosehanger.platforms.kubernetes.user_credentials import check_sign_ins

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


def test_the_operator_makes_certificates() -> None:
    check("south-america")
