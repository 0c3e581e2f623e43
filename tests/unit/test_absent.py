"""What must not be in a region: how it is claimed, who could read it elsewhere, and what is said of what was found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loosehanger.errors import WrongUseError
from loosehanger.lab.access import readers_from
from loosehanger.lab.claims.checks import check_claims
from loosehanger.lab.claims.claims import DeclaredAbsent, claims_of, from_record, recorded
from loosehanger.lab.topology import Topology
from loosehanger.proof.compare.isolation import Present, named_like, to_scan
from loosehanger.proof.evidence.evidence import Evidence
from loosehanger.proof.verdict import judge

from ..topologies import mirror, resource, user, with_users
from .test_claims import scenario
from .test_scenario import A, B

FORBIDDEN = {"topics": ["LH.CUSTOMERS"], "headers": ["name"], "fields": ["customer"], "groups": ["buyers"]}
DECLARED = DeclaredAbsent.model_validate({"absent": FORBIDDEN, "in": B})


def topology(*acls: dict[str, Any]) -> Topology:
    """Region B has a mirror that reads region A; its user there has these rights."""
    topic = resource("kafka.strimzi.io/v1", "KafkaTopic", "LH.CUSTOMERS", A, {"partitions": 1})
    rights = {"type": "simple", "acls": list(acls)}
    reader, other = user(A, f"ab-reads-{A}", authorization=rights), user(A, "stays", authorization=rights)
    found = [
        document
        for document in with_users(mirror("ab", B, B, A), topic, other, regions=[A, B])
        if (document.kind, document.name) != ("KafkaUser", f"ab-reads-{A}")
    ]
    return Topology([*found, *with_users(reader, regions=[])])


def read(name: str, pattern: str | None = None, **changes: Any) -> dict[str, Any]:
    kind = {"patternType": pattern} if pattern else {}
    return {"resource": {"type": "topic", "name": name, **kind}, "operations": ["Read"], **changes}


@pytest.mark.parametrize(
    ("acl", "rule"),
    [
        (read("LH.CUSTOMERS"), "LH.CUSTOMERS"),
        (read("LH.", "prefix"), "LH.*"),
        (read("*", operations=["All"]), "*"),
        (read("LH.CUST", "prefix", operations=["DescribeConfigs", "Read"]), "LH.CUST*"),
    ],
)
def test_whose_password_is_in_a_region_can_read_from_there(acl: dict[str, Any], rule: str) -> None:
    assert list(readers_from(topology(acl), B, "LH.CUSTOMERS")) == [(A, f"ab-reads-{A}", rule)]
    # Who stays at home is no matter of the other region's.
    assert list(readers_from(topology(acl), A, "LH.CUSTOMERS")) == []


@pytest.mark.parametrize(
    "acl",
    [
        read("LH.", "literal"),
        read("LH.STOCK"),
        read("LH.CUSTOMERS", operations=["Write"]),
        read("LH.CUSTOMERS", type="deny"),
        {"resource": {"type": "group", "name": "*"}, "operations": ["Read"]},
    ],
)
def test_who_may_not_read_it_is_not_named(acl: dict[str, Any]) -> None:
    assert list(readers_from(topology(acl), B, "LH.CUSTOMERS")) == []


def test_a_copy_under_any_name_counts_and_another_topic_does_not() -> None:
    topics = ["LH.CUSTOMERS", "regiona.LH.CUSTOMERS", "b.a.LH.CUSTOMERS", "LH.CUSTOMERS.CLEARED", "XLH.CUSTOMERS"]
    assert named_like(topics, ["LH.CUSTOMERS"]) == ("LH.CUSTOMERS", "b.a.LH.CUSTOMERS", "regiona.LH.CUSTOMERS")
    there = ["LH.STOCK", "__state", "a.checkpoints.internal", "a.other.internal", "mm2-offset-syncs.a.internal"]
    assert to_scan(there) == [
        "LH.STOCK",
        "a.checkpoints.internal",
        "mm2-offset-syncs.a.internal",
    ]


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ("  - {absent: {}, in: region-b}\n", "names nothing; give topics, headers, fields or groups"),
        ("  - {absent: {topics: [LH.CUSTOMER]}, in: region-b}\n", "no manifest declares a topic 'LH.CUSTOMER'"),
        ("  - {absent: {fields: [customer]}, in: region-x}\n", "'region-x' is not a region with a Kafka cluster"),
    ],
)
def test_a_claim_that_could_not_fail_is_refused(tmp_path: Path, claims: str, message: str) -> None:
    with pytest.raises(WrongUseError, match=message):
        check_claims(scenario(tmp_path, claims), topology())


def judged(present: Present | None) -> dict[str, Any]:
    (claim,) = [claim for claim in claims_of((), from_record(recorded([DECLARED]))) if claim.kind == "absent"]
    found = {} if present is None else {claim.id: present}
    return judge(Evidence(claims=(claim,), present=found), "09", 1.0)


def test_whatever_is_found_disproves_and_is_named() -> None:
    record = {"topic": "LH.ORDERS", "records": 3, "partition": 1, "offset": 7}
    document = judged(
        Present(
            ("regiona.LH.CUSTOMERS",),
            ({"origin": A, "user": "reader", "rule": "LH.*", "topic": "LH.CUSTOMERS"},),
            (
                {"kind": "field", "name": "customer", **record},
                {"kind": "header", "name": "name", **record},
                {"kind": "name", "name": "LH.CUSTOMERS", **record, "topic": "mm2-offset-syncs.regiona.internal"},
                {"kind": "group", "name": "buyers", **record, "topic": "regiona.checkpoints.internal"},
            ),
        )
    )
    (claim,) = document["claims"]
    assert claim["verdict"] == "disproved"
    assert claim["says"].startswith(
        f"{B} has no topic LH.CUSTOMERS, no header name, no field customer, no trace of group buyers, and no user"
    )
    assert claim["reasons"][:6] == [
        f"{B} has a topic regiona.LH.CUSTOMERS",
        f"{B} has the password of {A}'s user reader, who may read LH.CUSTOMERS there (by LH.*)",
        f"{B}: 3 records of LH.ORDERS have a field customer, the first one LH.ORDERS-1 at 7",
        f"{B}: 3 records of LH.ORDERS have a header name, the first one LH.ORDERS-1 at 7",
        f"{B}: 3 records of mm2-offset-syncs.regiona.internal name a topic LH.CUSTOMERS",
        f"{B}: 3 records of regiona.checkpoints.internal name a group buyers",
    ]


def test_what_was_not_looked_at_is_not_proved() -> None:
    (claim,) = judged(None)["claims"]
    assert claim["verdict"] == "inconclusive"
    assert f"{B} was not scanned for what it must not have" in claim["reasons"]
