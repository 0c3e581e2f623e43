"""How the watch shows itself: a screen that changes on a terminal, lines elsewhere, or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from rich import box
from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from loosehanger.clients.loss import Danger
from pipeline.balance import KINDS
from pipeline.kinds import printable
from pipeline.tables import console
from pipeline.times import plain

_MINUTE = (
    ("orders", "orders"),
    ("cancelled", "cancellations"),
    ("revenue", "revenue"),
    ("moved", "stock_units"),
    ("doors", "doors"),
    ("sensors", "readings"),
    ("°C", "temperature"),
    ("unread.", "unreadable"),
)
_FLOW = ("records", "copies", "in_flight", "late", *KINDS)
_COLOURS = {"late": "yellow", **dict.fromkeys(KINDS, "red bold")}
_ALWAYS = ("records", "copies", "in_flight", "late", "missing")
"""What is shown even where it is 0 everywhere."""
_MOST = 10
_FIRST = "Spark warms up; the first numbers come in some ten seconds."


def display(documents: Iterable[Mapping[str, Any]], *, as_json: bool) -> None:
    """Shows each document as it comes.

    Args:
        documents: as from ``Watch.updates``; times in epoch milliseconds.
        as_json: one JSON document a line.
    """
    output = console()
    if as_json:
        for document in documents:
            print(as_line(document), flush=True)
    elif output.is_terminal:
        with Live(_FIRST, console=output, auto_refresh=False, vertical_overflow="crop") as live:
            for document in documents:
                live.update(screen(document), refresh=True)
    else:
        for document in documents:
            for line in lines(document):
                print(line, flush=True)


def as_line(document: Mapping[str, Any]) -> str:
    """The document as JSON in one line: times in ISO 8601, money as text."""
    regions = {
        region: {**found, "minutes": [{**row, "minute": _iso(row["minute"])} for row in found["minutes"]]}
        for region, found in document["regions"].items()
    }
    times = {name: _iso(document[name]) for name in ("at", "since")}
    return json.dumps({**document, **times, "regions": regions}, ensure_ascii=False, default=_plain)


def lines(document: Mapping[str, Any]) -> list[str]:
    """A line for each region and each pair of regions."""
    at = _clock(document["at"])
    found = []
    for region, activity in document["regions"].items():
        for row in activity["minutes"][:1]:
            told = ", ".join(f"{_shown(row[name])} {label}" for label, name in _MINUTE if label != "unread.")
            found.append(f"{at} {region} {_clock(row['minute'])[:5]}: {told}")
    for (source, target), flows in _pairs(document).items():
        counts = ", ".join(f"{sum(flow[name] for flow in flows):,} {_label(name)}" for name in _shown_of(flows))
        found.append(f"{at} {source} → {target}: {counts}")
    found += [f"{at} {told}" for told in told_of(document)]
    return found


def told_of(document: Mapping[str, Any]) -> list[str]:
    """What somebody has to know: buckets that do not balance, what is not judged, regions that do not answer."""
    found = list(document["problems"])
    for flow in document["flows"]:
        if flow["loss"]:
            found += [f"{flow['source']} → {flow['target']}: {told}" for told in Danger(**flow["loss"]).told()]
    for entry in document["canaries"]:
        if entry["missing"] or entry["late"]:
            counts = ", ".join(f"{entry[name]:,} {name}" for name in ("missing", "late") if entry[name])
            found.append(
                f"{entry['source']} → {entry['target']}: canaries do not arrive: {counts} of {entry['sent']:,}"
            )
    for entry in document["findings"][:_MOST]:
        kinds = ", ".join(f"{entry[kind]:,} {_label(kind)}" for kind in KINDS if entry[kind]) or "moved elsewhere"
        place = f"{entry['target']}: {entry['topic']}-{entry['partition']}, {plain(entry['bucket'])}"
        found.append(f"{place}: {entry['verdict']}: {kinds}{_examples(entry)}")
    if len(document["findings"]) > _MOST:
        found.append(f"and {len(document['findings']) - _MOST} more buckets that do not balance")
    for note in document["notes"][-_MOST:]:
        place = note["topic"] if note["partition"] is None else f"{note['topic']}-{note['partition']}"
        offsets = f"{note['offsets']:,} offsets " if note["offsets"] else ""
        found.append(f"{note['region']}: {place}: {offsets}{note['says']}")
    for entry in document["not_judged"]:
        found.append(f"{entry['source']} → {entry['target']}: {entry['topic']} is not judged: {entry['why']}")
    return found


def _examples(entry: Mapping[str, Any]) -> str:
    places = [
        f"{example['kind']} {side} offset {example[f'{side}_offset']}"
        for example in entry["examples"]
        for side in ("source", "target")
        if example[f"{side}_offset"] is not None
    ]
    return f" ({', '.join(places)})" if places else ""


def _label(name: str) -> str:
    return name.replace("_", " ")


def _shown_of(flows: Iterable[Mapping[str, Any]]) -> list[str]:
    return [name for name in _FLOW if name in _ALWAYS or any(flow[name] for flow in flows)]


def screen(document: Mapping[str, Any]) -> Group:
    """Tables of everything."""
    parts: list[Table | str] = []
    for region, activity in document["regions"].items():
        table = _table(f"{region}, by the minute (UTC)", *(label for label, _ in _MINUTE))
        for row in activity["minutes"]:
            table.add_row(_clock(row["minute"])[:5], *(_shown(row[name]) for _, name in _MINUTE))
        parts.append(table)
        for title, entries, value in (
            ("revenue", activity["by_product"], "revenue"),
            ("moved", activity["by_warehouse"], "units"),
        ):
            if entries:
                parts.append(
                    f"  {title}: " + escape(", ".join(f"{printable(e['name'])} {e[value]:,}" for e in entries))
                )
    for (source, target), flows in _pairs(document).items():
        shown = _shown_of(flows)
        table = _table(f"{source} → {target}", *map(_label, shown))
        for flow in flows:
            table.add_row(escape(flow["topic"]), *(_coloured(name, flow[name]) for name in shown))
        parts.append(table)
    parts += [f"[red bold]![/] {escape(printable(told))}" for told in told_of(document)]
    parts.append(f"{_clock(document['at'])} UTC, counting since {_iso(document['since'])}; Ctrl-C ends it")
    return Group(*parts)


def _pairs(document: Mapping[str, Any]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    pairs: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for flow in document["flows"]:
        pairs.setdefault((flow["source"], flow["target"]), []).append(flow)
    return pairs


def _table(title: str, *columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(title)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _coloured(name: str, count: int) -> str:
    colour = _COLOURS.get(name)
    return f"[{colour}]{count:,}[/]" if colour and count else f"{count:,}"


def _shown(value: Any) -> str:
    return "-" if value is None else f"{value:,}"


def _clock(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%H:%M:%S}"


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _plain(value: Decimal) -> str:
    return str(value)
