"""What the manifests say of a lab: mirrors, secrets, and whether it fits together."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from loosehanger.errors import WrongUseError
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.scenario import CopiedSecret
from loosehanger.lab.topology import Topology

from ..topologies import address, documents, kafka, mirror, program, user, with_users

A, B, C = "region-a", "region-b", "region-c"


def test_every_source_of_every_mirror_is_told() -> None:
    two = mirror("mm2", A, A, B, C, identity=False, topicsPattern="LH.*", checkpointConnector={}, groupsPattern="g.*")
    found = Topology(with_users(two, regions=[A, B, C])).mirrors
    assert [(m.name, m.source, m.target, m.region, m.policy) for m in found] == [
        ("mm2", B, A, A, "default"),
        ("mm2", C, A, A, "default"),
    ]
    assert found[0].connector == "regionb->regiona.MirrorSourceConnector"
    assert found[0].checkpoint_connector == "regionb->regiona.MirrorCheckpointConnector"
    assert (found[1].topics, found[1].groups, found[1].offset_syncs) == ("LH.*", "g.*", "source")


def test_a_mirror_beside_its_source_writes_elsewhere() -> None:
    (found,) = Topology(with_users(mirror("mm2", B, A, B), regions=[A, B])).mirrors
    assert (found.region, found.source, found.target, found.policy) == (B, B, A, "identity")


def test_a_region_is_where_its_address_is_offered_not_what_its_name_says() -> None:
    renamed = kafka(A)
    renamed["metadata"]["name"] = "one-cluster"
    resources = with_users(mirror("mm2", B, B, A), regions=[B])
    text = [document.content for document in resources]
    for content in text:
        if content["kind"] == "KafkaMirrorMaker2":
            source = content["spec"]["mirrors"][0]["source"]
            source["bootstrapServers"] = f"one-cluster-kafka-bootstrap.{A}.svc:9098"
            source["tls"]["trustedCertificates"][0]["secretName"] = "one-cluster-cluster-ca-cert"
    topology = Topology(documents(renamed, *text))
    assert [(m.source, m.target) for m in topology.mirrors] == [(A, B)]
    assert (A, "one-cluster-cluster-ca-cert", B, "one-cluster-cluster-ca-cert") in copies_of(topology)


def test_what_crosses_is_told_by_the_addresses_that_a_region_is_given() -> None:
    mirrored = with_users(mirror("mm2", B, B, A), regions=[A, B])
    program_there = documents(program(C, A), program(A, A, name="at-home"))
    assert set(Topology([*mirrored, *program_there]).crossings) == {(B, A), (C, A)}


def copies_of(topology: Topology) -> set[tuple[str, str, str, str]]:
    return {(c.origin, c.name, c.region, c.as_name) for c in topology.secret_copies()}


def copies(resources: list[Document], *declared: CopiedSecret) -> set[tuple[str, str, str, str]]:
    return copies_of(Topology(resources, declared))


def same(origin: str, name: str, region: str) -> tuple[str, str, str, str]:
    return origin, name, region, name


def test_secrets_come_from_the_region_of_each_end() -> None:
    assert copies(with_users(mirror("mm2", A, A, B, C), regions=[A, B, C])) == {
        same(B, "mm2-reads-region-b", A),
        same(B, "region-b-cluster-ca-cert", A),
        same(C, "mm2-reads-region-c", A),
        same(C, "region-c-cluster-ca-cert", A),
    }
    assert copies(with_users(mirror("mm2", B, A, B), regions=[A, B])) == {
        same(A, "mm2-writes", B),
        same(A, "region-a-cluster-ca-cert", B),
    }
    # Beside neither.
    assert {copy[0] for copy in copies(with_users(mirror("mm2", C, A, B), regions=[A, B, C]))} == {A, B}


def test_a_program_gets_what_the_cluster_that_it_uses_has() -> None:
    """Its region has applications only; a secret of the same name in a third region does not concern it."""
    resources = documents(
        *(kafka(region) for region in (A, B)),
        *(user(region, "reader") for region in (A, B)),
        program(C, A, "reader", "region-a-cluster-ca-cert"),
    )
    assert copies(resources) == {same(A, "reader", C), same(A, "region-a-cluster-ca-cert", C)}
    assert Topology(resources).clusters(C) == ()


def test_a_program_uses_what_its_own_region_makes() -> None:
    assert copies(documents(kafka(A), user(A, "reader"), program(A, A, "reader", "region-a-cluster-ca-cert"))) == set()


def test_declared_secrets_get_another_name() -> None:
    kept = CopiedSecret.model_validate({"from": A, "name": "reader", "to": B, "as": "kept-reader"})
    taken = user(B, "reader", authentication={"password": {"valueFrom": {"secretKeyRef": {"name": "kept-reader"}}}})
    assert copies(documents(kafka(A), kafka(B), user(A, "reader"), taken), kept) == {(A, "reader", B, "kept-reader")}
    with pytest.raises(
        WrongUseError, match="the secret 'reader' does not exist in region-a, and no manifest creates it"
    ):
        copies(documents(kafka(A), kafka(B)), kept)


@pytest.mark.parametrize("secrets", [("nobodys",), ("region-b-cluster-ca-cert",)])
def test_a_secret_that_nobody_makes_is_refused(secrets: tuple[str, ...]) -> None:
    with pytest.raises(WrongUseError, match=rf"Deployment/program: the secret '{secrets[0]}': no manifest creates it"):
        copies(documents(kafka(A), kafka(B), program(C, A, *secrets)))


def test_a_user_that_a_mirror_names_and_nobody_makes_is_refused() -> None:
    resources = [d for d in with_users(mirror("mm2", A, A, B), regions=[A, B]) if d.name != "mm2-reads-region-b"]
    place = r"^file\.yaml:\d+: KafkaMirrorMaker2/mm2: spec\.mirrors\[0\]\.source\.authentication\.passwordSecret"
    with pytest.raises(WrongUseError, match=place):
        Topology(resources).check()


def test_a_secret_made_here_and_copied_is_refused() -> None:
    resources = with_users(mirror("mm2", A, A, B), regions=[A, B])
    resources += documents(user(A, "mm2-reads-region-b"))
    with pytest.raises(WrongUseError, match=r"would overwrite the one that region-a has by .*KafkaUser/mm2-reads"):
        Topology(resources).check()


def test_two_secrets_of_one_name_from_two_regions_are_refused() -> None:
    two = mirror("mm2", A, A, B, C)
    for entry in two["spec"]["mirrors"]:
        entry["source"]["authentication"]["username"] = "reader"
        entry["source"]["authentication"]["passwordSecret"]["secretName"] = "reader"
    resources = with_users(two, regions=[A, B, C])
    with pytest.raises(WrongUseError, match="'reader' would be that of region-c and that of region-b"):
        Topology(resources).check()


def test_an_address_of_no_kafka_is_refused_with_its_line() -> None:
    wrong = mirror("mm2", A, A, B)
    wrong["spec"]["mirrors"][0]["source"]["bootstrapServers"] = address("region-x")
    resources = with_users(mirror("mm2", A, A, B), regions=[A, B])[:-1] + documents(wrong)
    with pytest.raises(
        WrongUseError, match=r"file\.yaml:\d+: .*spec\.mirrors\[0\]\.source\.bootstrapServers: no Kafka"
    ):
        Topology(resources).check()


def test_two_regions_under_one_alias_are_refused() -> None:
    two = mirror("mm2", A, A, B, C)
    two["spec"]["mirrors"][1]["source"]["alias"] = "regionb"
    with pytest.raises(
        WrongUseError, match=r"mirrors\[1\]\.source\.alias: 'regionb' is region-c here and region-b else"
    ):
        Topology(with_users(two, regions=[A, B, C])).check()


def stopped(found: dict[str, Any]) -> dict[str, Any]:
    changed = copy.deepcopy(found)
    for entry in changed["spec"]["mirrors"]:
        entry["sourceConnector"]["state"] = "stopped"
    return changed


def test_mirrors_that_keep_names_must_not_form_a_loop() -> None:
    there, back, on = mirror("ab", B, B, A), mirror("ba", A, A, B), mirror("bc", C, C, B)
    Topology(with_users(there, on, regions=[A, B, C])).check()
    with pytest.raises(WrongUseError, match=r"KafkaMirrorMaker2/ab.*KafkaMirrorMaker2/ba.*form a loop"):
        Topology(with_users(there, back, regions=[A, B])).check()
    round_trip = mirror("ca", A, A, C)
    with pytest.raises(WrongUseError, match=r"region-a -> region-b -> region-c -> region-a"):
        Topology(with_users(there, on, round_trip, regions=[A, B, C])).check()
    # Where one of them adds prefixes, the topics decide, and here none is known; and what is stopped copies nothing.
    Topology(with_users(there, mirror("ba", A, A, B, identity=False), regions=[A, B])).check()
    Topology(with_users(there, stopped(back), regions=[A, B])).check()


@pytest.mark.parametrize("field", ["groupId", "configStorageTopic", "offsetStorageTopic", "statusStorageTopic"])
def test_mirrors_must_not_share_their_state(field: str) -> None:
    one, other = mirror("one", A, A, B), mirror("other", A, A, C)
    Topology(with_users(one, other, regions=[A, B, C])).check()
    other["spec"]["target"][field] = one["spec"]["target"][field]
    with pytest.raises(WrongUseError, match=rf"spec\.target\.{field}: .* on the same target"):
        Topology(with_users(one, other, regions=[A, B, C])).check()


def test_mirrors_of_different_targets_may_share_names() -> None:
    one, other = mirror("one", A, A, C), mirror("other", B, B, C)
    other["spec"]["target"]["groupId"] = "one"
    Topology(with_users(one, other, regions=[A, B, C])).check()
