"""Where topics come from, by the mirrors: copies, copies of copies, and what counts twice."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from loosehanger.lab.mirrors.lineage import Place, copies, counted, origin, side_by_side, way
from loosehanger.lab.mirrors.mirror import Mirror, read_routes, routes_text

from ..consoles import route

A, B, C = "region-a", "region-b", "region-c"
ALL = [route(f"mm2-{target}", target, source, target) for source, target in permutations((A, B, C), 2)]
BROADCAST = [route("mm2", target, A, target, "identity") for target in (B, C)]


@pytest.mark.parametrize(
    ("mirrors", "place", "expected"),
    [
        (ALL, (A, "LH.ORDERS"), [(A, "LH.ORDERS")]),
        (ALL, (A, "regionb.LH.ORDERS"), [(A, "regionb.LH.ORDERS"), (B, "LH.ORDERS")]),
        # Mirrored on by hand, or by a pattern of yesterday: the name still shows it.
        (
            ALL,
            (C, "regionb.regiona.LH.ORDERS"),
            [(C, "regionb.regiona.LH.ORDERS"), (B, "regiona.LH.ORDERS"), (A, "LH.ORDERS")],
        ),
        (ALL, (A, "regionx.LH.ORDERS"), [(A, "regionx.LH.ORDERS")]),
        (BROADCAST, (B, "LH.ORDERS"), [(B, "LH.ORDERS"), (A, "LH.ORDERS")]),
        (BROADCAST, (B, "OWN"), [(B, "OWN")]),
        # After a failover both directions may be described.
        (
            [*BROADCAST, route("back", A, B, A, "identity")],
            (B, "LH.ORDERS"),
            [(B, "LH.ORDERS"), (A, "LH.ORDERS")],
        ),
    ],
)
def test_the_way_of_a_topic(mirrors: list[Mirror], place: tuple[str, str], expected: list[tuple[str, str]]) -> None:
    assert way(mirrors, Place(*place)) == expected
    assert origin(mirrors, Place(*place)) == expected[-1]


def test_the_copies_of_a_topic() -> None:
    assert copies(ALL, Place(A, "LH.ORDERS")) == [(B, "regiona.LH.ORDERS"), (C, "regiona.LH.ORDERS")]
    assert copies(ALL, Place(B, "regiona.LH.ORDERS")) == []
    chain = [route("ab", B, A, B, "identity"), route("bc", C, B, C)]
    assert copies(chain, Place(A, "LH.ORDERS")) == [(B, "LH.ORDERS"), (C, "regionb.LH.ORDERS")]


def test_nothing_counts_twice() -> None:
    own = ["LH.ORDERS", "regiona.LH.ORDERS", "regionb.LH.ORDERS"]
    assert counted(ALL, C, own) == own
    assert counted(ALL, C, [*own, "regionb.regiona.LH.ORDERS"]) == own
    # Better over two hops than not at all.
    assert counted(ALL, C, ["regionb.regiona.LH.ORDERS"]) == ["regionb.regiona.LH.ORDERS"]


def test_routes_are_read_as_they_were_written() -> None:
    assert list(read_routes(routes_text(ALL))) == ALL


def test_topics_stand_beside_their_copies() -> None:
    places = [Place(region, "LH.ORDERS") for region in (A, B)] + [Place(B, "regiona.LH.ORDERS"), Place(C, "OWN")]
    assert side_by_side(ALL, places) == [
        ((A, "LH.ORDERS"), {A: "LH.ORDERS", B: "regiona.LH.ORDERS", C: "regiona.LH.ORDERS"}),
        ((B, "LH.ORDERS"), {B: "LH.ORDERS", A: "regionb.LH.ORDERS", C: "regionb.LH.ORDERS"}),
        ((C, "OWN"), {C: "OWN"}),
    ]
    twice = [Place(C, "regiona.LH.ORDERS"), Place(C, "regionb.regiona.LH.ORDERS")]
    there_and_back = [route("there", B, A, B, "identity"), route("back", A, B, A, "identity")]
    both = [Place(B, "LH.ORDERS"), Place(A, "LH.ORDERS")]
    assert side_by_side(there_and_back, both) == [((A, "LH.ORDERS"), {A: "LH.ORDERS", B: "LH.ORDERS"})]
    assert side_by_side(ALL, twice)[1] == ((A, "LH.ORDERS"), {C: "regionb.regiona.LH.ORDERS"})


def test_odd_routes_are_read_as_they_were_written() -> None:
    odd = [replace(mirror, topics=r"LH\..*, 100%\"x\"", separator="&=") for mirror in ALL]
    assert list(read_routes(routes_text(odd))) == odd
