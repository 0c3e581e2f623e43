"""ACLs that no manifest lists, such as those that a mirror copies: what counts as listed, and how each is reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePattern, ResourceType
from kafka.errors import NoError

from loosehanger.acls import AclRule
from loosehanger.errors import WrongUseError
from loosehanger.kafka.acls import read_rules
from loosehanger.lab.access import listed_rules
from loosehanger.lab.claims.checks import check_claims
from loosehanger.lab.claims.claims import claims_of, from_record, recorded, rights_judged
from loosehanger.lab.topology import Topology
from loosehanger.proof.evidence.evidence import Evidence
from loosehanger.proof.flows import Flow
from loosehanger.proof.verdict import judge

from ..topologies import documents, mirror, user, with_users
from .test_claims import scenario
from .test_scenario import A, B

COPIED = AclRule("User:producer", "TOPIC", "regiona.LH.ORDERS", prefix=False, operation="READ", allows=True)
BY_HAND = AclRule("User:auditor", "TOPIC", "LH.", prefix=True, operation="DESCRIBE_CONFIGS", allows=False, host="::1")
GROUP = AclRule("User:CN=ann", "GROUP", "readers", prefix=False, operation="READ", allows=True)


def acl(kind: str, name: str | None, *operations: str, **further: Any) -> dict[str, Any]:
    """An entry of a manifest."""
    named = {} if name is None else {"name": name}
    pattern = {"patternType": further.pop("pattern")} if "pattern" in further else {}
    return {"resource": {"type": kind, **named, **pattern}, "operations": list(operations), **further}


def with_acls(region: str, name: str, *acls: dict[str, Any], kind: str = "") -> dict[str, Any]:
    """A user."""
    authentication = {"authentication": {"type": kind}} if kind else {}
    return user(region, name, authorization={"type": "simple", "acls": list(acls)}, **authentication)


def test_what_manifests_list_is_what_the_cluster_has_of_it() -> None:
    ann = with_acls(A, "ann", acl("group", "readers", "Read"), acl("cluster", None, "IdempotentWrite"), kind="tls")
    bob = with_acls(
        A,
        "bob",
        acl("topic", "LH.", "Read", "DescribeConfigs", pattern="prefix"),
        acl("transactionalId", "x", "Write", type="deny", host="::1", pattern="literal"),
    )
    topology = Topology(documents(ann, bob, with_acls(B, "eve", acl("topic", "*", "All")), user(A, "none")))
    assert listed_rules(topology, A) == {
        GROUP,
        AclRule("User:CN=ann", "CLUSTER", "kafka-cluster", prefix=False, operation="IDEMPOTENT_WRITE", allows=True),
        AclRule("User:bob", "TOPIC", "LH.", prefix=True, operation="READ", allows=True),
        AclRule("User:bob", "TOPIC", "LH.", prefix=True, operation="DESCRIBE_CONFIGS", allows=True),
        AclRule("User:bob", "TRANSACTIONAL_ID", "x", prefix=False, operation="WRITE", allows=False, host="::1"),
    }


def test_a_rule_is_read_with_its_address() -> None:
    topic = ResourcePattern(ResourceType.TOPIC, "LH.", ACLResourcePatternType.PREFIXED)
    there = ACL("User:auditor", "::1", ACLOperation.DESCRIBE_CONFIGS, ACLPermissionType.DENY, topic)
    assert read_rules(SimpleNamespace(describe_acls=lambda _: ([there], NoError))) == [BY_HAND]


def judged(unlisted: tuple[AclRule, ...] | None, synchronised: str = "true") -> dict[str, Any]:
    """The claim about region B, to which a mirror copies region A's topic."""
    (copies,) = Topology(with_users(mirror("ab", B, B, A, identity=False), regions=[A, B])).mirrors
    copies = replace(copies, synchronisation={"sync.topic.acls.enabled": synchronised})
    flow = Flow(copies, "LH.ORDERS", "regiona.LH.ORDERS")
    (claim,) = claims_of((), from_record([{"rights": [B]}]))
    found = {} if unlisted is None else {claim.id: unlisted}
    document = judge(Evidence(claims=(claim,), flows=[flow], unlisted=found), "12", 1.0)
    found_claim: dict[str, Any] = document["claims"][0]
    return found_claim


def test_each_acl_that_no_manifest_lists_disproves_and_is_named_with_its_origin() -> None:
    claim = judged((COPIED, BY_HAND))
    assert (claim["verdict"], claim["says"]) == ("disproved", f"{B} has no ACL that the manifests do not list")
    assert claim["reasons"][:2] == [
        f"{B} has an ACL that no manifest lists: Allow Read on topic regiona.LH.ORDERS for User:producer; "
        "mirror ab copies ACLs (sync.topic.acls.enabled)",
        f"{B} has an ACL that no manifest lists: Deny DescribeConfigs on topic LH.* for User:auditor at ::1",
    ]
    details = next(one["details"] for one in claim["findings"] if one["kind"] == "right_unlisted")
    assert {name: details[name] for name in ("principal", "operation", "kind", "name", "mirror")} == {
        "principal": "User:producer",
        "operation": "READ",
        "kind": "TOPIC",
        "name": "regiona.LH.ORDERS",
        "mirror": "ab",
    }


@pytest.mark.parametrize(
    ("rule", "synchronised"),
    [
        (COPIED, "false"),
        (COPIED._replace(prefix=True), "true"),
        (COPIED._replace(kind="GROUP"), "true"),
        (COPIED._replace(name="LH.ORDERS"), "true"),
    ],
)
def test_no_mirror_is_named_that_does_not_write_such_an_acl(rule: AclRule, synchronised: str) -> None:
    (reason, *_) = judged((rule,), synchronised)["reasons"]
    assert "copies ACLs" not in reason


def test_without_such_an_acl_it_is_proved_and_unread_ones_leave_it_inconclusive() -> None:
    assert {one["kind"] for one in judged(())["findings"]} == {"nothing_to_prove"}, "as there are no records"
    claim = judged(None)
    assert claim["verdict"] == "inconclusive"
    assert f"the ACLs of {B} were not read" in claim["reasons"]


def test_a_claim_about_a_region_without_a_cluster_is_refused(tmp_path: Path) -> None:
    declared = scenario(tmp_path, f"  - {{rights: [{A}, {B}]}}\n")
    assert from_record(recorded(declared.claims)) == declared.claims
    assert rights_judged(declared.claims) == {A, B}
    topology = Topology(with_users(mirror("ab", B, B, A), regions=[A, B]))
    check_claims(declared, topology)
    with pytest.raises(WrongUseError, match=r"scenario\.yaml:9: claims\[0\]\.rights: 'region-x' is not a region with"):
        check_claims(scenario(tmp_path / "other", "  - {rights: [region-x]}\n"), topology)
