"""Chains of mirrors: what they are for a claim, how a mistake in one is reported, and what the proof makes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loosehanger.errors import WrongUseError
from loosehanger.lab.claims.checks import check_claims
from loosehanger.lab.claims.claims import DeclaredThrough, claims_of, from_record, recorded
from loosehanger.lab.mirrors.chain import as_mirror, begins_with, chain_of, stations
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import target_topic
from loosehanger.lab.topology import Topology
from loosehanger.proof.compare.comparison import Counts
from loosehanger.proof.evidence.evidence import Evidence
from loosehanger.proof.flows import Flow
from loosehanger.proof.verdict import judge

from ..topologies import mirror, resource, with_users
from .test_claims import scenario
from .test_scenario import A, B

C, D = "region-c", "region-d"
EVERY = r"(.+\.)?LH\..*"
NAMES = ("ab", "bc", "cd")
THROUGH = DeclaredThrough.model_validate({"through": [*NAMES]})
ORDERS = resource("kafka.strimzi.io/v1", "KafkaTopic", "LH.ORDERS", A, {"partitions": 1})


def chain(*identity: str, patterns: dict[str, str] | None = None, circle: bool = False) -> Topology:
    """Four regions in a row.

    Args:
        identity: the mirrors that keep names.
        patterns: what mirrors take, where it is not everything.
        circle: whether a fourth mirror leads back.
    """
    ways = {"ab": (B, A), "bc": (C, B), "cd": (D, C)} | ({"da": (A, D)} if circle else {})
    mirrors = [
        mirror(name, ends[0], *ends, identity=name in identity, topicsPattern=(patterns or {}).get(name, EVERY))
        for name, ends in ways.items()
    ]
    return Topology(with_users(*mirrors, ORDERS, regions=[A, B, C, D]))


@pytest.mark.parametrize(
    ("identity", "names"),
    [
        ((), ["LH.ORDERS", "regiona.LH.ORDERS", "regionb.regiona.LH.ORDERS", "regionc.regionb.regiona.LH.ORDERS"]),
        (NAMES, ["LH.ORDERS"] * 4),
        (("bc",), ["LH.ORDERS", "regiona.LH.ORDERS", "regiona.LH.ORDERS", "regionc.regiona.LH.ORDERS"]),
    ],
    ids=["default", "identity", "both"],
)
def test_a_chain_is_a_mirror_that_gives_the_names_of_its_end(identity: tuple[str, ...], names: list[str]) -> None:
    mirrors = chain(*identity).mirrors
    hops = chain_of(mirrors, NAMES)
    assert list(stations(hops, "LH.ORDERS")) == list(zip((A, B, C, D), names, strict=True))
    whole = as_mirror(hops)
    assert (whole.source, whole.target, target_topic(whole, "LH.ORDERS")) == (A, D, names[-1])
    # Copies that came from elsewhere are no beginning.
    back = chain(*identity, circle=True).mirrors
    there = ["LH.ORDERS", "regiond.LH.STOCK", "other"]
    assert begins_with(back, chain_of(back, NAMES), there) == ["LH.ORDERS"]


def test_what_does_not_follow_is_no_chain() -> None:
    assert chain_of(chain().mirrors, ("ab", "cd")) == ()
    assert chain_of(chain().mirrors, ("ab", "xy")) == ()


def checked(tmp_path: Path, claims: str, topology: Topology) -> None:
    """Checks claims of a scenario whose mirrors are called ``ab`` and ``ba``."""
    check_claims(scenario(tmp_path, claims), topology)


def test_a_chain_with_a_mistake_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    two = Topology(with_users(mirror("ab", B, B, A), mirror("ba", C, C, A), regions=[A, B, C]))
    with pytest.raises(WrongUseError, match=r"claims\[0\]\.through: ab -> ba is not a chain"):
        checked(tmp_path / "1", "  - {through: [ab, ba]}\n", two)
    with pytest.raises(WrongUseError, match="manifests/ has no mirror 'xy'"):
        checked(tmp_path / "2", "  - {through: [ab, xy]}\n", two)
    # The pattern that is right for one hop is not for the next: names have grown.
    narrow = [mirror("ab", B, B, A, identity=False), mirror("ba", C, C, B, identity=False, topicsPattern=r"LH\..*")]
    topology = Topology(with_users(*narrow, ORDERS, regions=[A, B, C]))
    message = r"KafkaMirrorMaker2/ba.*does not match regiona\.LH\.ORDERS, the name of region-a's"
    with pytest.raises(WrongUseError, match=message):
        checked(tmp_path / "3", "  - {through: [ab, ba]}\n", topology)


def test_a_circle_of_prefixes_ends_and_one_with_a_hop_that_adds_none_is_refused() -> None:
    chain(circle=True).check()
    # One hop without a mark is not enough: the others still know theirs.
    chain("da", circle=True).check()
    with pytest.raises(WrongUseError, match=r"LH\.ORDERS would return .*forever under longer and longer names"):
        chain("bc", "da", circle=True).check()
    # What its pattern leaves out does not come back.
    chain("bc", "da", circle=True, patterns={"da": r"LH\..*"}).check()


def evidence(**changes: Any) -> Evidence:
    """A chain of which everything was copied; the changes are those of the counts from end to end."""
    mirrors = chain().mirrors
    hops = chain_of(mirrors, NAMES)
    places = list(stations(hops, "LH.ORDERS"))
    flows = [Flow(hop, at.topic, to.topic) for hop, at, to in zip(hops, places, places[1:], strict=False)]
    flows.append(Flow(as_mirror(hops), "LH.ORDERS", places[-1].topic))
    counts = {flow.id: Counts(source_records=10, target_records=10) for flow in flows}
    counts[flows[-1].id] = replace(counts[flows[-1].id], **changes)
    return Evidence(
        claims=claims_of(mirrors, from_record(recorded([THROUGH])), "setup"),
        flows=flows,
        counts=counts,
        latencies={(place.region, place.topic): [10 * number] for number, place in enumerate(places) if number},
    )


def verdicts(document: dict[str, Any]) -> list[str]:
    return [claim["verdict"] for claim in document["claims"]]


def test_a_chain_is_judged_from_end_to_end_and_counted_once() -> None:
    document = judge(evidence(), "10", 1.0)
    assert verdicts(document) == ["proved"] * 4
    assert document["claims"][-1]["says"] == f"what {A} writes goes through ab, bc, cd to {D}, each record once"
    assert document["totals"]["source_records"] == 30
    (note,) = document["notes"]
    assert note.endswith(f"{B} 10, {C} 20, {D} 30")
    # What is missing at its end is so although every hop is exact.
    document = judge(evidence(missing=1), "10", 1.0)
    assert verdicts(document) == ["proved", "proved", "proved", "disproved"]
    assert document["reasons"] == [f"LH.ORDERS, {A} → {D}: 1 missing"]


def test_a_chain_rests_on_its_hops_and_says_where_it_ends() -> None:
    found = evidence()
    middle = found.flows[1]
    found.counts[middle.id] = Counts(source_records=10, target_records=11, duplicates=1)
    document = judge(found, "10", 1.0)
    assert verdicts(document) == ["proved", "disproved", "proved", "disproved"]
    assert f"goes by {B} → {C}, which is disproved" in document["reasons"][-1]
    found = evidence()
    found.flows.remove(found.flows[2])
    document = judge(found, "10", 1.0)
    assert document["claims"][-1]["verdict"] == "inconclusive"
    assert f"has not reached {C} yet, as regionb.regiona.LH.ORDERS" in document["reasons"][-1]
    found.topics[C] = ["regionb.regiona.LH.ORDERS"]
    document = judge(found, "10", 1.0)
    assert document["claims"][-1]["verdict"] == "disproved"
    assert f"goes no further than {C}, as regionb.regiona.LH.ORDERS" in document["reasons"][-1]


def test_a_chain_that_is_not_there_leaves_its_claim_open() -> None:
    only: tuple[Mirror, ...] = chain().mirrors[:2]
    document = judge(Evidence(claims=claims_of(only, [THROUGH])), "10", 1.0)
    assert document["claims"][-1]["verdict"] == "inconclusive"
    assert "ab, bc, cd: some of these mirrors do not exist, or they do not form a chain" in document["reasons"]
