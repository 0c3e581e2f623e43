"""Documents as the jobs print them, for what is made of them."""

from __future__ import annotations

from typing import Any

FAULTS = ("missing", "never_mirrored", "duplicates", "reordered", "unexpected", "altered", "moved")
AT = "2026-01-01T00:00:00.000+00:00"
HISTOGRAM = [[5, 40], [10, 310], [20, 420], [50, 180], [100, 40], [200, 7], [500, 2], [1000, 0], [2000, 1]]


def flow(topic: str = "LH.ORDERS", target: str = "north-america", **changes: Any) -> dict[str, Any]:
    """A topic on its way from Europe, without a fault."""
    return {
        "id": f"{target}/mm2-{target}/europe->{target}/{topic}",
        "verdict": "proved",
        "reasons": [],
        "source": "europe",
        "target": target,
        "mirror": f"mm2-{target}",
        "topic": topic,
        "target_topic": topic,
        "partitions": 2,
        "source_records": 1000,
        "target_records": 1000,
        "after_cut": 0,
        **dict.fromkeys(FAULTS, 0),
        "expired": 0,
        "source_gaps": 0,
        "by_partition": [
            {"partition": 0, "source_records": 600, "target_records": 600, "after_cut": 0},
            {"partition": 1, "source_records": 400, "target_records": 400, "after_cut": 0},
        ],
        "groups": [],
        "buckets": 12,
        "opened": 1,
        "config_differences": [],
        "latency_ms": {"p50": 18, "p95": 61, "p99": 140, "max": 1204, "samples": 1000, "histogram": HISTOGRAM},
        "examples": [],
    } | changes


def example(kind: str = "missing", **changes: Any) -> dict[str, Any]:
    """One record that differs."""
    return {
        "kind": kind,
        "partition": 1,
        "source_offset": 1234,
        "target_offset": None,
        "key": "customer-7",
        "timestamp": "2026-01-01T00:00:01.250+00:00",
    } | changes


def claim(target: str = "north-america", **changes: Any) -> dict[str, Any]:
    """That a region's copies are exact."""
    mirror = f"{target}/mm2-{target}/europe->{target}"
    return {
        "id": f"copy:{mirror}",
        "kind": "copy",
        "says": f"{target} has an exact copy of all that mirror mm2-{target} takes from europe",
        "mirror": f"mm2-{target}",
        "source": "europe",
        "target": target,
        "verdict": "proved",
        "reasons": [],
        "flows": [f"{mirror}/LH.ORDERS"],
        "findings": [],
    } | changes


def proof(
    *flows: dict[str, Any],
    verdict: str = "proved",
    reasons: tuple[str, ...] = (),
    claims: tuple[dict[str, Any], ...] = (),
) -> dict[str, Any]:
    """The document of a proof of these flows."""
    numbers = ("source_records", "target_records", "after_cut", *FAULTS, "expired", "source_gaps")
    topics = {entry["topic"] for entry in flows}
    return {
        "scenario": "03-broadcast",
        "verdict": verdict,
        "reasons": list(reasons),
        "claims": list(claims),
        "cut": {"europe": {"at": AT, "offsets": {topic: {"0": 612, "1": 1400} for topic in topics}}} if flows else {},
        "flows": list(flows),
        "totals": {name: sum(entry[name] for entry in flows) for name in numbers}
        | {"config_differences": sum(len(entry["config_differences"]) for entry in flows)},
        "seconds": 12.3456,
        "records_per_second": 4321 if flows else None,
    }


def broken_proof() -> dict[str, Any]:
    """A proof that found some of everything, of which much is as long or as hostile as it can be."""
    hostile = "<script>alert(1)</script>"
    policy = f'"><img src=x onerror=alert(1)>{hostile}{"x" * 200}'
    kinds = (*FAULTS, "missing")
    reasons = [
        "LH.ORDERS, europe → north-america: 2 missing, 3 never mirrored, 1 duplicate, 1 moved",
        "LH.ORDERS, europe → north-america: the target's partition 1 begins at offset 7",
        f"LH.ORDERS, europe → north-america: cleanup.policy differs: source {policy}, target compact,delete",
    ]
    behind = ["mirror mm2-south-america is STOPPED, 5 records behind"]
    orders = flow(
        verdict="disproved",
        reasons=reasons,
        missing=2,
        duplicates=1,
        moved=1,
        never_mirrored=3,
        source_gaps=3,
        after_cut=17,
        config_differences=[
            {"name": "retention.ms", "source": "604800000", "target": None},
            {
                "name": "cleanup.policy",
                "source": policy,
                "target": "compact,delete",
            },
        ],
        examples=[example(kind, target_offset=None if kind == "missing" else 77, target_partition=0) for kind in kinds]
        + [example(key=f"{hostile}&amp;{{{{ 7*7 }}}}"), example(key=None), example(key="k" * 64 + "…")],
    )
    long = flow("a.topic_with-a.name.that_is-as.long.as_" + "Kafka-lets.a_topic-be." * 9, source_records=12_345_678)
    latency = {"p50": None, "p95": None, "p99": None, "max": None, "samples": 0}
    undecided = {"verdict": "inconclusive", "reasons": behind, "latency_ms": latency}
    other = [flow(name, "south-america", **undecided) for name in ("LH.ORDERS", "LH.STOCK")]
    claims = (
        claim(verdict="disproved", reasons=reasons),
        claim("south-america", verdict="inconclusive", reasons=behind),
    )
    return proof(orders, long, *other, verdict="disproved", reasons=(*reasons, *behind), claims=claims)


def aggregates(**products: str) -> dict[str, Any]:
    """The aggregates of three regions of which the last has no events yet; further products with their revenue."""
    names = {"Nîmes Straight": "81250.00", "Genoa Bootcut": "64021.50", "Indigo Jacket": "912.25"} | products

    def region(events: int) -> dict[str, Any]:
        return {
            "events": events,
            "first": "2026-01-01T00:00:00.000+00:00",
            "last": "2026-01-01T00:10:00.000+00:00",
            "unreadable": 0,
            "orders": 1500,
            "cancellations": 31,
            "units": 2750,
            "revenue": "146183.75",
            "movements": 80,
            "stock_units": 4000,
            "readings": 600,
            "temperature": 21.37,
            "humidity": 48.1,
            "by_product": [
                {"name": name, "orders": 500, "units": 900, "revenue": revenue} for name, revenue in names.items()
            ],
            "by_region": [
                {"name": name, "orders": 750, "units": 1375, "revenue": "73091.88"} for name in ("Lisboa", "Łódź")
            ],
        }

    empty = {"events": 0, "by_product": [], "by_region": []}
    return {
        "scenario": "03-broadcast",
        "regions": {"europe": region(9000), "north-america": region(8990), "south-america": empty},
    }


def signed() -> dict[str, Any]:
    """Evidence, as the page and the PDF show it."""
    partitions = [
        {
            "cluster": name,
            "topic": "LH.ORDERS",
            "partition": 0,
            "start": 0,
            "end": 1234,
            "records": 1200,
            "sha256": "ab" * 32,
        }
        for name in ("europe", "north-america")
    ]
    return {
        "statement": {
            "made": {"at": "2026-01-01T00:00:09+00:00", "by": "mirrorproof 0.1.0", "seconds": 9.0},
            "judged": {"since": "2025-12-31T00:00:00+00:00", "order": "judge", "settings": "report"},
            "clusters": [{"name": "europe", "id": "MkU3OEVBNTcwNTJENDM2Qg"}, {"name": "north-america", "id": "<T1>"}],
            "partitions": partitions,
        },
        "name": "proof.json",
        "sha256": "cd" * 32,
        "key": "RWTCjBQNEDMTfsPAeI/W6DbRNOjXEinkT69qYGDJUjWkHzcYt/wp+etT",
        "key_id": "7E1333100D148CC2",
        "signature": f"untrusted comment: x\nRU{'x' * 98}\ntrusted comment: timestamp:1\tfile:proof.json\n{'y' * 88}\n",
    }
