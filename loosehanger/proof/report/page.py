"""The proof as one self-contained HTML page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from itertools import accumulate
from typing import Any

from markupsafe import Markup

from loosehanger.proof.difference import FAULTS, NO_FAULTS, Difference
from loosehanger.proof.report.charts import distribution, side_by_side
from loosehanger.proof.report.record_times import plain
from loosehanger.proof.report.rendering import template
from loosehanger.proof.report.tables import AGGREGATES, summary

_VERDICTS = {
    "proved": "Everything was mirrored",
    "disproved": "The copies differ",
    "inconclusive": "Not everything could be decided",
}
_WORST_FIRST = ("disproved", "inconclusive", "proved")
_EXAMPLES = {kind.value: kind.label for kind in FAULTS} | {Difference.DUPLICATES.value: Difference.DUPLICATES.single}


def render(document: Mapping[str, Any], aggregates: Mapping[str, Any], signed: Mapping[str, Any] | None = None) -> str:
    """Makes the page.

    Args:
        document: the proof, as from ``loosehanger.proof.verdict.judge``, or as ``./lab prove --json`` prints it.
        aggregates: the sales, as from ``loosehanger.sales.sales.sum_up``, or as ``./lab aggregate --json`` prints
            them; empty if they are unknown.
        signed: the evidence, as from ``loosehanger.proof.evidence.signed_file.write_evidence``; None without.

    Returns:
        HTML. The same input gives the same page, as long as Matplotlib is the same.
    """
    regions: Mapping[str, Any] = aggregates["regions"] if aggregates else {}
    keys = list(dict.fromkeys((flow["source"], flow["target"]) for flow in document["flows"]))
    # A region has one colour in all charts.
    colours = list(dict.fromkeys([*regions, *(source for source, _ in keys), *(target for _, target in keys)]))
    pairs = [_pair(place, key, document, colours.index(key[1])) for place, key in enumerate(keys, 1)]
    return template("report.html.j2", thousands=_thousands, time=plain, duration=_duration).render(
        document=document,
        signed=signed,
        headline=_VERDICTS[document["verdict"]],
        sentence=summary(document),
        claims=_claims(document),
        reasons=_general(document),
        faults=FAULTS,
        no_faults=NO_FAULTS,
        differences=sum(
            flow[kind.value] for flow in document["flows"] if flow["verdict"] == "disproved" for kind in FAULTS
        ),
        buckets=sum(flow["buckets"] for flow in document["flows"]),
        opened=sum(flow["opened"] for flow in document["flows"]),
        judged=sum({(flow["source"], flow["topic"]): flow["source_records"] for flow in document["flows"]}.values()),
        topics=len({(flow["source"], flow["topic"]) for flow in document["flows"]}),
        pairs=pairs,
        example_kinds=_EXAMPLES,
        regions=regions,
        region_totals=_region_totals(regions),
        region_charts=_region_charts(regions),
    )


def _general(document: Mapping[str, Any]) -> list[str]:
    """The reasons that belong to no single claim: those that several claims share, or that have no claim."""
    of_claims = [claim["reasons"] for claim in document["claims"]]
    return [
        reason
        for reason in document["reasons"]
        if (len(of_claims) > 1 and all(reason in reasons for reasons in of_claims))
        or not any(reason in reasons for reasons in of_claims)
    ]


def _claims(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The claims, each with its own reasons."""
    general = set(_general(document))
    return [
        {**claim, "reasons": [reason for reason in claim["reasons"] if reason not in general]}
        for claim in document["claims"]
    ]


def _pair(place: int, key: tuple[str, str], document: Mapping[str, Any], colour: int) -> dict[str, Any]:
    """One source → target with its flows."""
    flows = [flow for flow in document["flows"] if (flow["source"], flow["target"]) == key]
    verdicts = Counter(flow["verdict"] for flow in flows)
    cut = document["cut"].get(key[0], {"offsets": {}})
    return {
        "name": " → ".join(key),
        "id": f"pair-{place}",
        "flows": [dict(flow) | {"ends": cut["offsets"].get(flow["topic"], {})} for flow in flows],
        "columns": [kind for kind in FAULTS if not kind.is_rare or any(flow[kind.value] for flow in flows)],
        "verdict": next(verdict for verdict in _WORST_FIRST if verdicts[verdict]),
        "verdicts": verdicts,
        "latency": _latency(place, " → ".join(key), flows, colour),
    }


def _latency(place: int, pair: str, flows: Iterable[Mapping[str, Any]], colour: int) -> dict[str, Any] | None:
    """The latencies of all flows of a pair together; None without samples."""
    counts: dict[int, int] = {}
    for flow in flows:
        for bound, count in flow["latency_ms"].get("histogram") or ():
            counts[bound] = counts.get(bound, 0) + count
    samples = sum(counts.values())
    if not samples:
        return None
    bounds = sorted(counts)
    reached = list(accumulate(counts[bound] for bound in bounds))
    half, most = (
        _duration(next(bound for bound, so_far in zip(bounds, reached, strict=True) if so_far >= share * samples))
        for share in (0.5, 0.99)
    )
    said = f"Half of {samples:,} sampled records arrived within {half}, 99 % within {most}."
    return {
        "said": said,
        "rows": [
            (_duration(bound), counts[bound], so_far / samples) for bound, so_far in zip(bounds, reached, strict=True)
        ],
        "chart": Markup(  # noqa: S704 - drawn, and escaped, by Matplotlib and ElementTree
            distribution(
                f"latency-{place}",
                f"Latency, {pair}",
                said,
                [(_duration(bound, brief=True), counts[bound] / samples) for bound in bounds],
                series=colour,
            )
        ),
    }


def _region_totals(regions: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    return [(label, [_shown(region.get(name)) for region in regions.values()]) for label, name in AGGREGATES]


def _region_charts(regions: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Bars and a table of the products and of the customers' regions, as each region's consumers see them."""
    charts = []
    for name, title, field, value in (
        ("products", "Revenue by product", "by_product", "revenue"),
        ("origins", "Orders by where they came from", "by_region", "orders"),
    ):
        values = [{str(row["name"]): Decimal(row[value]) for row in region[field]} for region in regions.values()]
        groups = {label: [rows.get(label) for rows in values] for rows in values for label in rows}
        if not groups:
            continue
        description = f"{title}, one bar for each of {', '.join(regions)}. The table below has the numbers."
        charts.append(
            {
                "title": title,
                "rows": [(label, [_shown(number) for number in numbers]) for label, numbers in groups.items()],
                "chart": Markup(side_by_side(name, title, description, groups)),  # noqa: S704 - as above
            }
        )
    return charts


def _thousands(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def _duration(milliseconds: int | None, *, brief: bool = False) -> str:
    if milliseconds is None:
        return "–"
    number, unit = (milliseconds, "ms") if abs(milliseconds) < 1000 else (milliseconds / 1000, "s")
    return f"{number:,.15g}{'' if brief else ' '}{unit}"


def _shown(value: Any) -> str:
    """A value of the aggregates, either the job's own or from JSON, where decimals are text."""
    if value is None:
        return "–"
    if isinstance(value, str):
        try:
            value = Decimal(value)
        except InvalidOperation:
            return plain(value)
    return f"{value:,}"
