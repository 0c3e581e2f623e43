"""Claims judged from evidence: what is said of which claim and of which flow."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from loosehanger.lab.claims.claims import DeclaredContains, DeclaredWhole, claims_of
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.proof.compare.comparison import Counts
from loosehanger.proof.compare.configurations import Handling
from loosehanger.proof.evidence.evidence import Evidence
from loosehanger.proof.flows import Flow
from loosehanger.proof.judge import FAULT_KEYS
from loosehanger.proof.report.messages import says
from loosehanger.proof.verdict import judge

ALIASES = {"europe": "europe", "north-america": "northamerica", "south-america": "southamerica"}
ORDERS = "LH.ORDERS"
WHOLE = DeclaredWhole.model_validate({"whole": ORDERS, "in": [*ALIASES]})


def mirror(source: str, target: str, name: str = "mm2", **changes: Any) -> Mirror:
    """With the default policy, beside its target."""
    found = Mirror(name, ALIASES[source], ALIASES[target], source, target, "default", ".", "LH.*", "", "c", {})
    return replace(found, region=target, **changes)


def shared(
    *more: Flow, without: Collection[tuple[str, str]] = (), topics: Mapping[str, Collection[str]] | None = None
) -> Evidence:
    """Every region has its own orders, and the others' under their names; every flow has ten records, all copied.

    Args:
        more: flows beside the six.
        without: pairs of regions between which nothing is mirrored.
        topics: what regions have besides.
    """
    pairs = [(source, target) for source in ALIASES for target in ALIASES if source != target]
    flows = [
        Flow(mirror(*pair), ORDERS, f"{ALIASES[pair[0]]}.{ORDERS}") for pair in pairs if pair not in without
    ] + list(more)
    there: dict[str, Collection[str]] = {
        region: {
            ORDERS,
            *(topics or {}).get(region, ()),
            *(flow.target_topic for flow in flows if flow.target == region),
        }
        for region in ALIASES
    }
    return Evidence(
        claims=claims_of({flow.mirror.id: flow.mirror for flow in flows}.values(), [WHOLE]),
        flows=flows,
        topics=there,
        counts={flow.id: Counts(source_records=10, target_records=10) for flow in flows},
    )


def flow_of(evidence: Evidence, source: str, target: str) -> Flow:
    return next(flow for flow in evidence.flows if (flow.source, flow.target) == (source, target))


def not_proved(document: Mapping[str, Any]) -> dict[str, str]:
    """The verdicts of the claims that are not proved."""
    return {claim["id"]: claim["verdict"] for claim in document["claims"] if claim["verdict"] != "proved"}


def test_every_claim_holds() -> None:
    document = judge(shared(), "04", 1.0)
    assert (document["verdict"], document["reasons"], not_proved(document)) == ("proved", [], {})
    assert [claim["kind"] for claim in document["claims"]] == ["copy"] * 6 + ["whole"] * 3
    assert document["claims"][-1]["says"] == "south-america sees the LH.ORDERS of every region, each record once"
    assert {flow.partition("/")[0] for flow in document["claims"][-1]["flows"]} == {"south-america"}
    # The sum of the flows: what a region sees is not counted once more.
    assert document["totals"]["source_records"] == 60


def test_damage_in_one_of_two_flows_into_a_region_is_told_of_that_flow_only() -> None:
    found = shared()
    damaged = flow_of(found, "north-america", "europe")
    example = {
        "kind": "missing",
        "partition": 0,
        "source_offset": 3,
        "target_offset": None,
        "key": "k",
        "timestamp": "",
    }
    found.counts[damaged.id] = Counts(source_records=10, target_records=9, missing=1, examples=[example])
    document = judge(found, "04", 1.0)
    assert not_proved(document) == {f"copy:{damaged.mirror.id}": "disproved", f"whole:{ORDERS}:europe": "disproved"}
    assert [flow["id"] for flow in document["flows"] if flow["verdict"] != "proved"] == [damaged.id]
    copy, whole = (claim for claim in document["claims"] if claim["verdict"] == "disproved")
    (finding,) = copy["findings"]
    assert (finding["kind"], finding["flow"], finding["count"]) == ("missing", damaged.id, 1)
    assert finding["examples"] == [example]
    assert document["reasons"][0] == "LH.ORDERS, north-america → europe: 1 missing"
    assert whole["reasons"] == ["LH.ORDERS, north-america → europe: europe sees this copy, which is disproved"]


def test_an_undecided_copy_leaves_what_rests_on_it_undecided() -> None:
    found = shared()
    slow = flow_of(found, "south-america", "north-america")
    found.leave_inconclusive(slow, "x")
    document = judge(found, "04", 1.0)
    assert document["verdict"] == "inconclusive"
    assert not_proved(document) == dict.fromkeys(
        (f"copy:{slow.mirror.id}", f"whole:{ORDERS}:north-america"), "inconclusive"
    )


def test_a_region_that_does_not_answer_is_no_whole() -> None:
    found = shared()
    del found.topics["south-america"]
    found.away["south-america"] = "south-america: the cluster does not answer (x)"
    found.flows = [flow for flow in found.flows if "south-america" not in (flow.source, flow.target)]
    document = judge(found, "04", 1.0)
    assert not_proved(document) == dict.fromkeys((f"whole:{ORDERS}:{region}" for region in ALIASES), "inconclusive")
    assert document["reasons"] == ["south-america: the cluster does not answer (x)"]


def test_a_prefixed_topic_that_is_mirrored_on_is_named() -> None:
    on = Flow(mirror("north-america", "south-america"), f"europe.{ORDERS}", f"northamerica.europe.{ORDERS}")
    document = judge(shared(on), "04", 1.0)
    assert not_proved(document) == {f"whole:{ORDERS}:south-america": "disproved"}
    (reason,) = document["reasons"]
    assert reason.startswith("south-america has topic northamerica.europe.LH.ORDERS, which a subscription by pattern")
    assert reason.endswith("mirror mm2 makes it of north-america's europe.LH.ORDERS")


def test_a_stray_topic_of_nobody_is_named() -> None:
    names = ("north.america.LH.ORDERS", "LH.ORDERS.old", "MY-LH.ORDERS", "x.LH.STOCK")
    document = judge(shared(topics={"europe": names}), "04", 1.0)
    assert not_proved(document) == {f"whole:{ORDERS}:europe": "disproved"}
    assert document["reasons"] == [
        "europe has topic north.america.LH.ORDERS, which a subscription by pattern reads too, and which is no copy of "
        "any region's own: no mirror of the lab makes it"
    ]


def test_a_region_that_nobody_mirrors_is_named() -> None:
    document = judge(shared(without=[("south-america", "europe")]), "04", 1.0)
    assert not_proved(document) == {f"whole:{ORDERS}:europe": "disproved"}
    assert document["reasons"] == ["europe has no copy of the LH.ORDERS of south-america"]


def test_no_whole_without_parts() -> None:
    found = Evidence(claims=claims_of([], [WHOLE]), topics=dict.fromkeys(ALIASES, ()))
    document = judge(found, "04", 1.0)
    assert document["verdict"] == "inconclusive"
    assert "no region has a topic LH.ORDERS of its own" in document["reasons"]


@pytest.mark.parametrize(("state", "verdict"), [("running", "disproved"), ("stopped", "proved")])
def test_an_order_that_two_mirrors_copy_is_named_and_its_flows_are_told_apart(state: str, verdict: str) -> None:
    more = Flow(mirror("europe", "north-america", "mm2-more", state=state), ORDERS, f"europe.{ORDERS}")
    found = shared(more)
    first = flow_of(found, "europe", "north-america")
    found.counts[first.id].duplicates = 2 if state == "running" else 0
    document = judge(found, "04", 1.0)
    own = {flow["id"]: flow["verdict"] for flow in document["flows"] if flow["target"] == "north-america"}
    assert own[first.id] == verdict
    said = "LH.ORDERS, europe → north-america by mm2: "
    writer = f"{said}mirror mm2-more {{}} into the same topic, from europe's LH.ORDERS"
    if state == "running":
        assert document["reasons"][:2] == [f"{said}2 duplicates", writer.format("writes")]
        assert not_proved(document)[f"whole:{ORDERS}:north-america"] == "disproved"
    else:
        assert writer.format("is held now, but may have written") in document["notes"]


def test_an_order_that_comes_under_two_names_is_named() -> None:
    more = Flow(mirror("europe", "north-america", "mm2-more", source_alias="eu"), ORDERS, f"eu.{ORDERS}")
    document = judge(shared(more), "04", 1.0)
    assert not_proved(document) == {f"whole:{ORDERS}:north-america": "disproved"}
    assert document["reasons"] == [
        "north-america has the records of europe more than once: europe.LH.ORDERS (mirror mm2) and eu.LH.ORDERS "
        "(mirror mm2-more)"
    ]


def test_two_sources_in_one_topic_are_named_for_both() -> None:
    flows = [
        Flow(mirror(source, "europe", policy="identity"), ORDERS, ORDERS)
        for source in ("north-america", "south-america")
    ]
    found = Evidence(
        claims=claims_of([flow.mirror for flow in flows]),
        flows=flows,
        counts={flow.id: Counts(source_records=5, target_records=5, unexpected=5) for flow in flows},
    )
    document = judge(found, "x", 1.0)
    assert [claim["verdict"] for claim in document["claims"]] == ["disproved", "disproved"]
    assert (
        "LH.ORDERS, north-america → europe: mirror mm2 writes into the same topic, from south-america's LH.ORDERS"
        in document["reasons"]
    )


def only(kind: str, **counts: Any) -> dict[str, Any]:
    """The proof of one flow, of which this kind of claim is made."""
    flow = Flow(mirror("europe", "north-america", policy="identity"), ORDERS, ORDERS)
    declared = DeclaredContains.model_validate({"contains": "mm2"})
    return judge(
        Evidence(
            claims=claims_of([flow.mirror], [declared] if kind == "contains" else []),
            flows=[flow],
            counts={flow.id: Counts(source_records=10, target_records=10, **counts)},
        ),
        "x",
        1.0,
    )


@pytest.mark.parametrize("fault", FAULT_KEYS)
def test_where_others_write_too_only_what_is_not_there_disproves(fault: str) -> None:
    assert only("copy", **{fault: 1})["verdict"] == "disproved"
    lost = fault in ("missing", "never_mirrored", "altered", "moved")
    assert only("contains", **{fault: 1})["verdict"] == ("disproved" if lost else "proved")


def test_without_the_snapshot_it_is_inconclusive() -> None:
    flow = Flow(mirror("europe", "north-america", policy="identity"), ORDERS, ORDERS)
    declared = DeclaredContains.model_validate({"contains": "mm2", "until": "snapshot"})
    document = judge(Evidence(claims=claims_of([flow.mirror], [declared]), flows=[flow]), "x", 1.0)
    assert document["verdict"] == "inconclusive"
    assert document["reasons"][0] == "no snapshot has the position of mirror mm2 at its fence"


def test_what_concerns_one_mirror_is_no_matter_of_another() -> None:
    found = shared()
    slow = flow_of(found, "europe", "north-america")
    found.add("failed", slow.mirror, {"mirror": "mm2", "reason": "x"})
    document = judge(found, "04", 1.0)
    assert not_proved(document) == dict.fromkeys(
        (f"copy:{slow.mirror.id}", f"whole:{ORDERS}:north-america"), "inconclusive"
    )


def test_what_concerns_the_proof_leaves_every_claim_open() -> None:
    found = shared()
    found.add("broke_off", None, {"reason": "x"})
    document = judge(found, "04", 1.0)
    assert set(not_proved(document)) == {claim.id for claim in found.claims}
    assert document["reasons"][0] == "the proof broke off: x"


def test_every_kind_of_claim_has_its_words() -> None:
    assert len({says(claim) for claim in shared().claims}) == 9


@pytest.mark.parametrize(
    ("order", "verdict", "notes"), [("judge", "disproved", 0), ("report", "proved", 1), ("ignore", "proved", 0)]
)
def test_what_another_order_does_is_up_to_the_user(order: Handling, verdict: str, notes: int) -> None:
    found = shared()
    one = flow_of(found, "north-america", "europe")
    found.counts[one.id] = Counts(source_records=10, target_records=10, reordered=3)
    found.order = order
    document = judge(found, "04", 1.0)
    assert (document["verdict"], len(document["notes"])) == (verdict, notes)
    # Whatever is asked for, a loss disproves.
    found.counts[one.id] = Counts(source_records=10, target_records=9, reordered=3, missing=1)
    assert judge(found, "04", 1.0)["verdict"] == "disproved"
