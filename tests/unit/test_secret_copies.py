"""Secrets that are copied from region to region, maybe under another name: what is asked for, kept and refused."""

from __future__ import annotations

import base64
import copy as copying
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from loosehanger.errors import LabError, WrongUseError
from loosehanger.lab.topology import SecretCopy
from loosehanger.paths import ROOT
from loosehanger.platforms.kubernetes import apply, copied_secrets, services
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.local.secret_store import (
    copy_secrets,
    delete_copies,
    delete_secret,
    read_secret,
    return_secrets,
    write_secret,
)


def copied(origin: str, name: str, as_name: str) -> SecretCopy:
    """A user's secret, copied to North America."""
    return SecretCopy(origin, name, "north-america", as_name, "KafkaUser")


EUROPES = copied("europe", "mm2-europe", "mm2-source")


# On this machine.


@pytest.fixture
def europe(tmp_path: Path) -> LocalRegion:
    region = LocalRegion(tmp_path, ROOT, "europe", 0)
    write_secret(region, "mm2-europe", {"password": b"one"})
    return region


@pytest.fixture
def america(tmp_path: Path) -> LocalRegion:
    return LocalRegion(tmp_path, ROOT, "north-america", 100)


def test_locally_a_copy_follows_its_origin(europe: LocalRegion, america: LocalRegion) -> None:
    assert copy_secrets(europe, america, [EUROPES], dry_run=True) == ["mm2-source"]
    assert not america.secrets.exists()
    assert copy_secrets(europe, america, [EUROPES]) == ["mm2-source"]
    assert copy_secrets(europe, america, [EUROPES]) == []
    write_secret(europe, "mm2-europe", {"password": b"two"})
    assert copy_secrets(europe, america, [EUROPES]) == ["mm2-source"]
    assert read_secret(america, "mm2-source") == {"password": b"two"}


def test_locally_another_secret_is_not_overwritten(europe: LocalRegion, america: LocalRegion) -> None:
    write_secret(europe, "more", {"password": b"more"})
    write_secret(america, "mm2-source", {"password": b"its own"})
    for dry_run in (True, False):
        with pytest.raises(WrongUseError, match="north-america: the secret 'mm2-source' already exists and is not a"):
            copy_secrets(europe, america, [copied("europe", "more", "more"), EUROPES], dry_run=dry_run)
    assert read_secret(america, "mm2-source") == {"password": b"its own"}
    assert not (america.secrets / "more").exists(), "nothing is changed where something is refused"
    delete_secret(america, "mm2-source")
    assert copy_secrets(europe, america, [EUROPES]) == ["mm2-source"]
    with pytest.raises(WrongUseError, match="the secret 'mm2-source' is a copy of 'europe/mm2-europe'"):
        copy_secrets(europe, america, [copied("europe", "more", "mm2-source")])


def test_locally_a_copy_replaces_that_of_the_same_user_elsewhere(europe: LocalRegion, america: LocalRegion) -> None:
    write_secret(europe, "more", {"password": b"one", "sasl.jaas.config": b"of europe's operator"})
    copy_secrets(europe, america, [EUROPES])
    moved = copied("europe", "more", "mm2-source")
    assert copy_secrets(europe, america, [moved]) == ["mm2-source"]
    assert read_secret(america, "mm2-source") == read_secret(europe, "more")
    write_secret(america, "own", {"password": b"one"})
    with pytest.raises(WrongUseError, match="the secret 'own' already exists and is not a copy"):
        copy_secrets(europe, america, [copied("europe", "more", "own")])


def test_locally_nobody_makes_an_authority_for_clients_certificates(europe: LocalRegion, america: LocalRegion) -> None:
    authority = SecretCopy("europe", "europe-clients-ca", "north-america", "kept-clients-ca", "Kafka")
    assert copy_secrets(europe, america, [authority]) == []
    with pytest.raises(LabError, match="europe: the secret 'europe-clients-ca' does not exist"):
        copy_secrets(europe, america, [replace(authority, maker="KafkaUser")])


def test_locally_a_secret_comes_back_from_its_copy_and_is_no_copy_itself(
    europe: LocalRegion, america: LocalRegion
) -> None:
    write_secret(europe, "more", {"password": b"more"})
    copy_secrets(europe, america, [EUROPES, copied("europe", "more", "kept-more")])
    delete_secret(europe, "mm2-europe")
    write_secret(europe, "more", {"password": b"another by now"})
    returns = [
        SecretCopy("north-america", as_name, "europe", name, "KafkaUser")
        for name, as_name in (("mm2-europe", "mm2-source"), ("more", "kept-more"), ("unknown", "kept-unknown"))
    ]
    assert return_secrets(europe, returns) == ["mm2-europe"]
    assert read_secret(europe, "mm2-europe") == {"password": b"one"}
    assert read_secret(europe, "more") == {"password": b"another by now"}
    assert delete_copies(europe, ["mm2-europe"]) == []


def test_locally_a_copy_of_before_there_were_notes_is_one(europe: LocalRegion, america: LocalRegion) -> None:
    write_secret(america, "mm2-europe", {"password": b"one"})
    same = copied("europe", "mm2-europe", "mm2-europe")
    assert copy_secrets(europe, america, [same]) == []
    write_secret(europe, "mm2-europe", {"password": b"two"})
    assert copy_secrets(europe, america, [same]) == ["mm2-europe"]


def test_locally_only_copies_are_left_over(europe: LocalRegion, america: LocalRegion) -> None:
    write_secret(america, "its-own", {"password": b"its own"})
    copy_secrets(europe, america, [EUROPES])
    names = ["mm2-source", "its-own", "never-there"]
    assert delete_copies(america, names, dry_run=True) == ["mm2-source"]
    assert read_secret(america, "mm2-source") == {"password": b"one"}
    assert delete_copies(america, names) == ["mm2-source"]
    assert [path.name for path in america.secrets.iterdir()] == ["its-own"]
    assert delete_copies(america, names) == []


def test_locally_a_secret_that_is_not_there_is_told(europe: LocalRegion, america: LocalRegion) -> None:
    with pytest.raises(LabError, match="europe: the secret 'nowhere' does not exist"):
        copy_secrets(europe, america, [copied("europe", "nowhere", "a")])


def test_locally_check_mode_tells_of_a_secret_that_its_region_is_going_to_make(
    europe: LocalRegion, america: LocalRegion
) -> None:
    copies = [copied("europe", "mm2-new", "mm2-new")]
    assert copy_secrets(europe, america, copies, dry_run=True) == ["mm2-new"]
    assert not (america.secrets / "mm2-new").exists()


# On Kubernetes.

KIT = {"app.kubernetes.io/managed-by": "loosehanger-lab", "app.kubernetes.io/part-of": "loosehanger-lab"}


def authority(prefix: str, name: str, generation: str) -> dict[str, Any]:
    """A certificate authority's secret, as the operator makes it."""
    labels = {"cluster": "europe", "kind": "Kafka", "component-type": "certificate-authority", "name": "strimzi"}
    return {
        "metadata": {
            "name": name,
            "namespace": "europe",
            "labels": {
                **{f"{prefix}{key}": value for key, value in labels.items()},
                "app.kubernetes.io/managed-by": "strimzi-cluster-operator",
            },
            "annotations": {f"{prefix}{generation}": "3", "other.example/note": "x"},
            "ownerReferences": [{"kind": "Kafka", "name": "europe", "uid": "1"}],
        },
        "type": "Opaque",
        "data": {"ca.crt": "eA=="},
    }


@pytest.mark.parametrize("prefix", ["strimzi.io/", "eventstreams.ibm.com/"])
@pytest.mark.parametrize(
    ("name", "generation", "as_", "cluster"),
    [
        ("europe-cluster-ca-cert", "ca-cert-generation", "backup-cluster-ca-cert", "backup"),
        ("europe-cluster-ca", "ca-key-generation", "backup-cluster-ca", "backup"),
        ("europe-clients-ca-cert", "ca-cert-generation", "europe-clients-ca-cert", "europe"),
        ("europe-clients-ca", "ca-key-generation", "whatever", "europe"),
    ],
)
def test_an_authority_keeps_what_operators_know_it_by(
    prefix: str, name: str, generation: str, as_: str, cluster: str
) -> None:
    made = copied_secrets.copied(copied("europe", name, as_), authority(prefix, name, generation), "asia")
    assert made["metadata"] == {
        "name": as_,
        "namespace": "asia",
        "labels": {
            f"{prefix}cluster": cluster,
            f"{prefix}kind": "Kafka",
            f"{prefix}component-type": "certificate-authority",
            f"{prefix}name": "strimzi",
            **KIT,
        },
        "annotations": {f"{prefix}{generation}": "3", copied_secrets.COPIED_FROM: f"europe/{name}"},
    }
    assert (made["type"], made["data"]) == ("Opaque", {"ca.crt": "eA=="})


def test_other_secrets_keep_their_type_and_nothing_of_their_users() -> None:
    labels = {"strimzi.io/kind": "KafkaUser", "strimzi.io/cluster": "europe"}
    secret = {"metadata": {"name": "x", "labels": labels}, "type": "kubernetes.io/basic-auth", "data": {"a": "eA=="}}
    made = copied_secrets.copied(copied("europe", "x", "y"), secret, "asia")
    assert made["metadata"]["labels"] == KIT
    assert made["type"] == "kubernetes.io/basic-auth"


class Secrets:
    """A cluster that has secrets only."""

    def __init__(self, *secrets: dict[str, Any]) -> None:
        self.kept = {(s["metadata"]["namespace"], s["metadata"]["name"]): s for s in copying.deepcopy(secrets)}

    def get(self, _version: str, _kind: str, name: str, namespace: str) -> dict[str, Any] | None:
        found = self.kept.get((namespace, name))
        return {"kind": "Secret", **found} if found else None

    def apply(self, document: dict[str, Any]) -> None:
        key = document["metadata"]["namespace"], document["metadata"]["name"]
        assert key not in self.kept or self.kept[key]["type"] == document["type"], "types cannot be changed"
        self.kept[key] = copying.deepcopy(document)

    def delete(self, document: dict[str, Any]) -> None:
        del self.kept[document["metadata"]["namespace"], document["metadata"]["name"]]


def secret(namespace: str, name: str, value: str, *, type_: str = "Opaque", **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "type": type_,
        "data": {"password": base64.b64encode(value.encode()).decode()},
    }


@pytest.fixture
def region(monkeypatch: pytest.MonkeyPatch) -> apply.RegionNamespace:
    """North America, on the cluster that ``cluster_of`` gives."""
    place = services.ClusterContext("", "one")
    cluster = Secrets(secret("europe", "mm2-europe", "one"))
    monkeypatch.setattr(services.ClusterContext, "cluster", lambda _: cluster)
    return apply.RegionNamespace(
        "north-america", place, {"europe": place, "north-america": place}, True, "", ROOT, print
    )


def test_on_kubernetes_a_copy_follows_its_origin(region: apply.RegionNamespace) -> None:
    cluster = cast(Any, region.cluster)
    assert copied_secrets.copy_secrets(region, [EUROPES], dry_run=True) == ["mm2-source"]
    assert len(cluster.kept) == 1
    assert copied_secrets.copy_secrets(region, [EUROPES]) == ["mm2-source"]
    assert copied_secrets.copy_secrets(region, [EUROPES]) == []
    cluster.apply(secret("europe", "mm2-europe", "two"))
    assert copied_secrets.copy_secrets(region, [EUROPES]) == ["mm2-source"]
    cluster.delete(secret("europe", "mm2-europe", ""))
    cluster.apply(secret("europe", "mm2-europe", "two", type_="kubernetes.io/basic-auth"))
    assert copied_secrets.copy_secrets(region, [EUROPES]) == ["mm2-source"]
    assert cluster.kept["north-america", "mm2-source"]["type"] == "kubernetes.io/basic-auth"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({}, "Secret/mm2-source: already exists and is not managed by the kit"),
        (KIT, "north-america: the secret 'mm2-source' already exists and is not a copy made by the kit"),
    ],
)
def test_on_kubernetes_another_secret_is_not_overwritten(
    region: apply.RegionNamespace, labels: dict[str, str], message: str
) -> None:
    cluster = cast(Any, region.cluster)
    cluster.apply(secret("north-america", "mm2-source", "its own", **labels))
    before = copying.deepcopy(cluster.kept)
    for dry_run in (True, False):
        with pytest.raises(WrongUseError, match=message):
            copied_secrets.copy_secrets(
                region, [copied("europe", "mm2-europe", "mm2-europe"), EUROPES], dry_run=dry_run
            )
    assert cluster.kept == before


def test_on_kubernetes_two_secrets_do_not_take_turns_under_one_name(region: apply.RegionNamespace) -> None:
    cast(Any, region.cluster).apply(secret("europe", "more", "more"))
    copied_secrets.copy_secrets(region, [EUROPES])
    with pytest.raises(WrongUseError, match="the secret 'mm2-source' is a copy of 'europe/mm2-europe'"):
        copied_secrets.copy_secrets(region, [copied("europe", "more", "mm2-source")])


def test_on_kubernetes_a_copy_of_before_there_were_notes_is_one(region: apply.RegionNamespace) -> None:
    cast(Any, region.cluster).apply(secret("north-america", "mm2-europe", "older", **KIT))
    assert copied_secrets.copy_secrets(region, [copied("europe", "mm2-europe", "mm2-europe")]) == ["mm2-europe"]


def test_on_kubernetes_a_secret_that_is_not_there_is_told(region: apply.RegionNamespace) -> None:
    nobody = copied("europe", "nowhere", "a")
    assert copied_secrets.copy_secrets(region, [nobody], dry_run=True) == ["a"]
    with pytest.raises(LabError, match="europe: the secret 'nowhere' does not exist"):
        copied_secrets.copy_secrets(region, [nobody])


def test_the_same_secret_may_come_from_another_region_after_a_switch(europe: LocalRegion, america: LocalRegion) -> None:
    copy_secrets(europe, america, [copied("europe", "mm2-europe", "user")])
    asia = LocalRegion(europe.home, ROOT, "asia", 200)
    write_secret(asia, "user", {"password": b"one"})
    moved = copied("asia", "user", "user")
    assert copy_secrets(asia, america, [moved]) == []
    # From now on it follows the one that it comes from.
    write_secret(asia, "user", {"password": b"two"})
    assert copy_secrets(asia, america, [moved]) == ["user"]


def test_on_kubernetes_the_same_secret_may_come_from_another_namespace(region: apply.RegionNamespace) -> None:
    cast(Any, region.cluster).apply(secret("europe", "more", "one"))
    copied_secrets.copy_secrets(region, [EUROPES])
    moved = copied("europe", "more", "mm2-source")
    copied_secrets.copy_secrets(region, [moved])
    cast(Any, region.cluster).apply(secret("europe", "more", "two"))
    assert copied_secrets.copy_secrets(region, [moved]) == ["mm2-source"]
