"""What a lab claims: from its mirrors, and from ``scenario.yaml``; and mirrors that would spoil each other's copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from loosehanger.errors import WrongUseError
from loosehanger.lab.claims.checks import check_writers
from loosehanger.lab.claims.claims import KeptIn, claims_of, from_record, recorded
from loosehanger.lab.plan import plan_stage
from loosehanger.lab.record import Lab
from loosehanger.lab.scenario import Scenario, read_scenario
from loosehanger.lab.topology import Topology
from loosehanger.proof.report.messages import says

from ..topologies import mirror, resource, with_users
from .test_scenario import DESCRIBED, TEXT, A, B, folder

C = "region-c"


def scenario(tmp_path: Path, claims: str) -> Scenario:
    """A scenario with two mirrors and these claims."""
    folder(tmp_path, f"{TEXT}claims:\n{claims}")
    return read_scenario("99-test", tmp_path)


def topology(*mirrors: dict[str, object], topics: dict[str, tuple[str, ...]] | None = None) -> Topology:
    """Three regions, mirrors, and the topics that manifests declare."""
    declared = [
        resource("kafka.strimzi.io/v1", "KafkaTopic", name, region, {"partitions": 1})
        for region, names in (topics or {}).items()
        for name in names
    ]
    return Topology(with_users(*mirrors, *declared, regions=[A, B, C]))


AB, BA = mirror("ab", B, B, A), mirror("ba", A, A, B, C)


def test_every_source_of_every_mirror_claims_an_exact_copy() -> None:
    claims = claims_of(topology(AB, BA).mirrors)
    assert [claim.id for claim in claims] == [
        "copy:region-b/ab/regiona->regionb",
        "copy:region-a/ba/regionb->regiona",
        "copy:region-a/ba/regionc->regiona",
    ]
    assert claims[2].subject == {"mirror": "ba", "source": C, "target": A}
    assert {claim.kind for claim in claims} == {"copy"}


def test_what_the_scenario_says_of_a_mirror_holds_in_place_of_what_follows(tmp_path: Path) -> None:
    declared = scenario(tmp_path, f"  - {{copy: ab, at: [setup]}}\n  - {{whole: LH.ORDERS, in: [{A}, {B}]}}\n").claims
    # As the record keeps them.
    assert from_record(recorded(declared)) == declared
    mirrors = topology(AB, BA).mirrors
    at_setup = [claim.id for claim in claims_of(mirrors, declared, "setup")]
    assert at_setup[0] == "copy:region-b/ab/regiona->regionb"
    assert at_setup[3:] == [f"whole:LH.ORDERS:{A}", f"whole:LH.ORDERS:{B}"]
    later = [claim.id for claim in claims_of(mirrors, declared, "failover")]
    assert later == at_setup[1:]


def test_a_stage_may_claim_less_of_a_mirror(tmp_path: Path) -> None:
    text = "  - {copy: ab, at: [setup]}\n  - {contains: ab, at: [failover]}\n"
    declared, (one,) = scenario(tmp_path, text).claims, topology(AB).mirrors
    assert from_record(recorded(declared)) == declared
    kinds = {stage: [claim.kind for claim in claims_of([one], declared, stage)] for stage in ("setup", "failover", "x")}
    assert kinds == {"setup": ["copy"], "failover": ["contains"], "x": []}


@pytest.mark.parametrize("until", ["snapshot", "mark"])
def test_until_a_snapshot_it_is_about_what_had_been_copied(until: str, tmp_path: Path) -> None:
    text = f"  - {{contains: ab, at: [failover], until: {until}}}\n"
    (one,) = topology(AB).mirrors
    declared, snapshots = scenario(tmp_path, text).claims, {one.id: {"LH.ORDERS": {0: 5}}}
    assert from_record(recorded(declared)) == declared
    assert claims_of([one], declared, "failover", snapshots)[0].window == snapshots[one.id]
    assert claims_of([one], declared, "failover")[0].window == {}
    assert claims_of([one])[0].window is None


def test_a_group_has_gone_where_a_mirror_leads_or_where_its_ledger_ended(tmp_path: Path) -> None:
    text = f"  - {{groups: g, by: ab, since: failover}}\n  - {{groups: g, to: {B}}}\n  - {{kept: p, in: [{A}, {B}]}}\n"
    declared = scenario(tmp_path, text).claims
    assert from_record(recorded(declared)) == declared
    kept, *groups = claims_of(topology(AB).mirrors, declared)[1:]
    assert (kept.id, kept.subject["regions"], kept.kept_in) == ("kept:p", f"{A},{B}", KeptIn((A, B)))
    assert says(kept) == f"every record of p that was acknowledged is in {A} or {B}"
    reported = [(claim.id, claim.subject["mirror"], claim.subject.get("since")) for claim in groups]
    assert reported == [(f"groups:g:{groups[0].subject['target']}", "ab", "failover"), (f"groups:g:{B}", "", None)]


def test_a_lab_without_a_scenario_claims_what_its_mirrors_promise() -> None:
    assert Lab("x", "local", "", {}).claims == ()


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ("  - {copied: ab}\n", r"scenario\.yaml:9: claims\[0\]: a claim has one of these keys: .*, kept, groups$"),
        ("  - {copy: ab, until: snapshot}\n", r"scenario\.yaml:9: claims\[0\].*until: unknown field$"),
        ("  - {whole: LH.ORDERS}\n", r"scenario\.yaml:9: claims\[0\]\.in: is missing$"),
        ("  - {whole: LH.ORDERS, in: []}\n", r"scenario\.yaml:9: claims\[0\]\.in: "),
        ("  - {groups: g}\n", r"scenario\.yaml:9: claims\[0\].*name either 'by', a mirror, or 'to', a region"),
    ],
)
def test_a_form_that_nobody_knows_is_refused_with_its_line(tmp_path: Path, claims: str, message: str) -> None:
    with pytest.raises(WrongUseError, match=message):
        scenario(tmp_path, claims)


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ("  - {copy: ab, at: [fail]}\n", r"scenario\.yaml:9: claims\[0\]\.at: there is no stage 'fail'"),
        ("  - {copy: xy}\n", r"scenario\.yaml:9: claims\[0\]\.copy: manifests/ has no mirror 'xy'; it has: ab, ba"),
        (
            "  - {copy: ab, at: [setup]}\n  - {copy: ab}\n",
            r"scenario\.yaml:10: claims\[1\]\.copy: claims\[0\] names 'ab' in stage 'setup' as well",
        ),
        (
            "  - {contains: ab, at: [failover], until: snapshot}\n",
            r"scenario\.yaml:9: claims\[0\]\.until: the stage 'failover' has no 'snapshot: true'",
        ),
        (
            f"  - {{whole: LH.ORDERS, in: [{A}, region-x]}}\n",
            r"scenario\.yaml:9: claims\[0\]\.in: 'region-x' is not a region with a Kafka cluster; "
            "the regions with one are: region-a, re",
        ),
    ],
)
def test_a_claim_about_nothing_is_refused_before_anything_is_made(tmp_path: Path, claims: str, message: str) -> None:
    by_region = {region: [d for d in DESCRIBED if d.namespace == region] for region in (A, B)}
    with pytest.raises(WrongUseError, match=message):
        plan_stage(by_region, {}, scenario(tmp_path, claims), "setup")


def check(found: Topology) -> None:
    check_writers(found, claims_of(found.mirrors))


def test_two_mirrors_that_would_write_one_topic_are_refused_with_their_lines() -> None:
    one, other = mirror("one", C, C, A), mirror("other", C, C, B)
    both: dict[str, tuple[str, ...]] = {A: ("LH.ORDERS", "LH.A"), B: ("LH.ORDERS", "LH.B")}
    place = (
        r"^file\.yaml:\d+: KafkaMirrorMaker2/other: spec\.mirrors\[0\]: would copy region-b's LH\.ORDERS into LH\.ORD"
        r"ERS in region-c, where file\.yaml:\d+: KafkaMirrorMaker2/one: spec\.mirrors\[0\] copies region-a's LH\.ORDERS"
    )
    with pytest.raises(WrongUseError, match=place):
        check(topology(one, other, topics=both))
    check(topology(one, other, topics={A: ("LH.A",), B: ("LH.B",)}))
    # With the regions' names before them they are different topics.
    prefixed = [mirror(name, C, C, region, identity=False) for name, region in (("one", A), ("other", B))]
    check(topology(*prefixed, topics=both))
    # What is held writes nothing.
    other["spec"]["mirrors"][0]["sourceConnector"]["state"] = "stopped"
    check(topology(one, other, topics=both))


def test_an_order_that_two_mirrors_would_copy_is_refused() -> None:
    twice = [mirror(name, B, B, A, identity=False) for name in ("one", "other")]
    with pytest.raises(WrongUseError, match=r"into regiona\.LH\.ORDERS in region-b, where"):
        check(topology(*twice, topics={A: ("LH.ORDERS",)}))


def test_a_copy_that_is_mirrored_on_counts_as_well() -> None:
    mirrors = mirror("ab", B, B, A), mirror("bc", C, C, B), mirror("ac", C, C, A)
    with pytest.raises(WrongUseError, match=r"into LH\.ORDERS in region-c"):
        check(topology(*mirrors, topics={A: ("LH.ORDERS",)}))


def test_where_no_exact_copy_is_claimed_others_may_write(tmp_path: Path) -> None:
    twice = [mirror(name, B, B, A) for name in ("ab", "ba")]
    found = topology(*twice, topics={A: ("LH.ORDERS",)})
    declared = scenario(tmp_path, "  - {copy: ab, at: [setup]}\n  - {copy: ba, at: [setup]}\n").claims
    with pytest.raises(WrongUseError, match="neither is an exact copy"):
        check_writers(found, claims_of(found.mirrors, declared, "setup"))
    check_writers(found, claims_of(found.mirrors, declared, "failover"))


def test_topics_with_prefixes_of_all_regions_come_to_an_end() -> None:
    regions = (A, B, C)
    all_ways = [
        mirror(f"to-{here}", here, here, *(there for there in regions if there != here), identity=False)
        for here in regions
    ]
    check(topology(*all_ways, topics=dict.fromkeys(regions, ("LH.ORDERS",))))
