"""Output of the jobs for people: coloured on a terminal; plain text of 100 columns in a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loosehanger.proof.difference import FAULTS, printable
from loosehanger.proof.read.external import said
from loosehanger.proof.report.messages import counted
from loosehanger.proof.report.record_times import plain

_COLOURS = {"proved": "green", "disproved": "red", "inconclusive": "yellow"}
_ANY_WIDTH = 10_000
_VERDICT_WIDTH = max(map(len, _COLOURS))
AGGREGATES = (
    ("events", "events"),
    ("first (UTC)", "first"),
    ("last (UTC)", "last"),
    ("unreadable", "unreadable"),
    ("orders", "orders"),
    ("cancellations", "cancellations"),
    ("units sold", "units"),
    ("revenue", "revenue"),
    ("stock movements", "movements"),
    ("units moved", "stock_units"),
    ("sensor readings", "readings"),
    ("mean temperature °C", "temperature"),
    ("mean humidity %", "humidity"),
)
"""The rows for a region, and their names in the document of the aggregates."""
_COLUMNS = (
    ("records", "source_records"),
    *((kind.column, kind.value) for kind in FAULTS if not kind.is_rare),
)
_RARE = tuple((kind.column, kind.value) for kind in FAULTS if kind.is_rare)
"""Columns that a table has only if they are not empty."""


def show_proof(document: Mapping[str, Any], output: Console) -> None:
    """Shows the proof: every claim, a table for each pair of regions, examples of differences, and last the verdict."""
    for claim in document["claims"]:
        verdict = claim["verdict"]
        output.print(f"[{_COLOURS[verdict]} bold]{verdict:<{_VERDICT_WIDTH}}[/] {escape(claim['says'])}")
    for title, flows in _groups(document["flows"]).items():
        output.print(_fitting(title, flows, output))
        for flow in flows:
            for example in flow["examples"]:
                output.print(_example(flow, example))
    gaps = document["totals"]["source_gaps"]
    if gaps:
        output.print(f"note: {gaps:,} sequence numbers are missing at the source; that is not the mirrors' fault")
    for note in document.get("notes", ()):
        output.print(f"note: {escape(note)}")
    for reason in document["reasons"]:
        output.print(f"- {escape(reason)}")
    verdict = document["verdict"]
    output.print(f"[{_COLOURS[verdict]} bold]{verdict}[/]: {escape(summary(document))}")


def _groups(flows: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """The flows of each pair of regions, and of each mirror between them where there are several."""
    mirrors: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = {}
    for flow in flows:
        of_pair = mirrors.setdefault((flow["source"], flow["target"]), {})
        of_pair.setdefault(flow["mirror"], []).append(flow)
    return {
        f"{source} → {target}" + (f", {said(mirror)}" if len(of_pair) > 1 else ""): own
        for (source, target), of_pair in mirrors.items()
        for mirror, own in of_pair.items()
    }


def summary(document: Mapping[str, Any]) -> str:
    """The verdict in one sentence."""
    totals, flows = document["totals"], document["flows"]
    if document["verdict"] == "inconclusive":
        compared = f"; compared so far: {totals['source_records']:,} records" if totals["source_records"] else ""
        return f"{document['reasons'][0]}{compared} ({document['seconds']:.1f} s)"
    rare = {name: totals[name] for _, name in _RARE if totals[name]}
    faults = counted(
        {name: totals[name] for _, name in _COLUMNS[1:]}
        | rare
        | {"configuration differences": totals["config_differences"]}
    )
    topics = len({(flow["source"], flow["topic"]) for flow in flows})
    targets = list(dict.fromkeys(flow["target"] for flow in flows))
    if not flows:
        claims = document["claims"]
        holding = sum(claim["verdict"] == "proved" for claim in claims)
        return f"{holding} of {len(claims)} claims hold ({document['seconds']:.1f} s)"
    judged = {(flow["source"], flow["topic"]): flow["source_records"] for flow in flows}
    what = f"{sum(judged.values()):,} records of {topics} {'topic' if topics == 1 else 'topics'}"
    where = " and ".join(filter(None, [", ".join(targets[:-1]), targets[-1]]))
    verb = "are in" if document["verdict"] == "proved" else "compared with"
    return f"{what} {verb} {where}: {faults} ({document['seconds']:.1f} s)"


def _fitting(title: str, flows: list[Mapping[str, Any]], output: Console) -> Table:
    """The table with a column for each kind of fault or, in a narrow window, with one column for all of them."""
    whole = _flow_table(title, flows)
    wanted = output.measure(whole, options=output.options.update(max_width=_ANY_WIDTH)).maximum
    return whole if wanted <= output.width or not output.is_terminal else _narrow_table(title, flows)


def _narrow_table(title: str, flows: list[Mapping[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("topic", overflow="fold")
    for name in ("records", "faults", "config", "p50 ms", "p99 ms"):
        table.add_column(name, justify="right", overflow="fold")
    for flow in flows:
        faults = {name: flow[name] for _, name in (*_COLUMNS[1:], *_RARE) if flow[name]}
        counts = counted(faults) if faults else "0"
        fault = flow["verdict"] == "disproved" and faults
        latency = flow["latency_ms"]
        table.add_row(
            escape(flow["topic"]),
            f"{flow['source_records']:,}",
            f"[red bold]{counts}[/]" if fault else counts,
            _count(len(flow["config_differences"]), fault=flow["verdict"] == "disproved"),
            *("-" if latency[name] is None else f"{latency[name]:,}" for name in ("p50", "p99")),
        )
    return table


def _flow_table(title: str, flows: list[Mapping[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("topic", overflow="fold")
    columns = [*_COLUMNS, *(column for column in _RARE if any(flow[column[1]] for flow in flows))]
    for name, _ in columns:
        table.add_column(name, justify="right")
    table.add_column("config", justify="right")
    table.add_column("p50 ms", justify="right")
    table.add_column("p99 ms", justify="right")
    for flow in flows:
        # In a topic with other writers some of these numbers are not faults.
        faulty = flow["verdict"] == "disproved"
        counts = [_count(flow[name], fault=faulty and name != "source_records") for _, name in columns]
        latency = flow["latency_ms"]
        times = ["-" if latency[name] is None else f"{latency[name]:,}" for name in ("p50", "p99")]
        table.add_row(escape(flow["topic"]), *counts, _count(len(flow["config_differences"]), fault=faulty), *times)
    return table


def _count(count: int, *, fault: bool) -> str:
    return f"[red bold]{count:,}[/]" if fault and count else f"{count:,}"


def _example(flow: Mapping[str, Any], example: Mapping[str, Any]) -> str:
    offsets = [
        f"{side} offset {example[f'{side}_offset']}"
        for side in ("source", "target")
        if example[f"{side}_offset"] is not None
    ]
    key = "no key" if example["key"] is None else f"key {example['key']}"
    place = f"{flow['topic']}-{example['partition']}"
    if example["kind"] == "moved":
        place += f" → {flow['target_topic']}-{example['target_partition']}"
    return escape(f"  {example['kind']}: {place}, {', '.join(offsets)}, {key}, {example['timestamp']}")


def show_aggregates(document: Mapping[str, Any], output: Console) -> None:
    """Shows the regions side by side: totals, then products and order regions by revenue."""
    regions: Mapping[str, Any] = document["regions"]
    totals = _side_by_side("events read in", regions)
    for label, name in AGGREGATES:
        totals.add_row(label, *(_shown(region.get(name)) for region in regions.values()))
    output.print(totals)
    for title, name in (("revenue by product", "by_product"), ("revenue by order region", "by_region")):
        table = _side_by_side(title, regions)
        by_region = [{row["name"]: row["revenue"] for row in region[name]} for region in regions.values()]
        for product in dict.fromkeys(row["name"] for region in regions.values() for row in region[name]):
            table.add_row(escape(printable(product)), *(_shown(rows.get(product)) for rows in by_region))
        output.print(table)


def _side_by_side(title: str, regions: Mapping[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(title, overflow="fold")
    for region in regions:
        table.add_column(region, justify="right")
    return table


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return plain(value) if isinstance(value, str) else f"{value:,}"
