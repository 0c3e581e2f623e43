"""The output of the watch: a live screen on a terminal, lines elsewhere, or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from loosehanger.audit.balance import KINDS
from loosehanger.audit.verdicts import verdict_of
from loosehanger.kafka.retention_risk import TopicRisk
from loosehanger.proof.difference import printable
from loosehanger.proof.report.output import console
from loosehanger.proof.report.record_times import plain

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
"""Columns that are shown even where all are 0."""
_HEADER = 2
"""Lines of a table beside its rows: its header, and the empty line before it."""
_MOST = 10


def display(documents: Iterable[Mapping[str, Any]], first: str, *, as_json: bool) -> None:
    """Shows each document as it arrives.

    Args:
        documents: as from ``Watch.updates``; times in epoch milliseconds.
        first: what a terminal shows until then.
        as_json: one JSON document a line.
    """
    output = console()
    if as_json:
        for document in documents:
            print(as_line(document), flush=True)
    elif output.is_terminal:
        with Live(first, console=output, auto_refresh=False, vertical_overflow="crop") as live:
            for document in documents:
                live.update(screen(document, output.width, output.height), refresh=True)
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
    times = {name: _iso(at) for name in ("at", "read_at", "since") if (at := document[name]) is not None}
    return json.dumps({**document, **times, "regions": regions}, ensure_ascii=False, default=_plain)


def lines(document: Mapping[str, Any]) -> list[str]:
    """A line for each region and each pair of regions."""
    at = _clock(document["at"])
    found = []
    for region, activity in document["regions"].items():
        for row in activity["minutes"][:1]:
            counts = ", ".join(f"{_shown(row[name])} {label}" for label, name in _MINUTE if label != "unread.")
            found.append(f"{at} {region} {_clock(row['minute'])[:5]}: {counts}")
    for (source, target), flows in _pairs(document).items():
        counts = ", ".join(f"{sum(flow[name] for flow in flows):,} {_label(name)}" for name in _shown_of(flows))
        found.append(f"{at} {source} → {target}: {counts}")
    found += [f"{at} {alarm}" for alarm in alarms_of(document)]
    return found


def alarms_of(document: Mapping[str, Any]) -> list[str]:
    """The alarms: buckets that are not even, topics that are not judged, regions that do not answer."""
    found = list(document["problems"])
    if document.get("unread"):
        found.append(f"{document['unread']:,} offsets are not read yet: the watch is behind")
    for flow in document["flows"]:
        if flow["loss"]:
            found += [f"{flow['source']} → {flow['target']}: {risk}" for risk in TopicRisk(**flow["loss"]).warnings()]
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
        found.append(f"and {len(document['findings']) - _MOST} more buckets that differ")
    for note in document["notes"][-_MOST:]:
        place = note["topic"] if note["partition"] is None else f"{note['topic']}-{note['partition']}"
        offsets = f"{note['offsets']:,} offsets " if note["offsets"] else ""
        found.append(f"{note['region']}: {place}: {offsets}{note['says']}")
    for entry in document["not_judged"]:
        found.append(f"{entry['source']} → {entry['target']}: {entry['topic']} is not judged: {entry['why']}")
    return found


def line_of(document: Mapping[str, Any]) -> str:
    """Returns a line of the log about a round; the same one as long as nothing of note changes.

    Args:
        document: as from ``Watch.document``.
    """
    parts = [f"{verdict_of(document)}: {len(document['flows'])} copies of topics"]
    differences = {kind: sum(flow[kind] for flow in document["flows"]) for kind in KINDS}
    parts += [f"{count} {kind.replace('_', ' ')}" for kind, count in differences.items() if count]
    if document["totals"]["late"]:
        parts.append("records are late")
    return "; ".join([", ".join(parts), *document["problems"]])


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


def screen(document: Mapping[str, Any], width: int = 100, height: int = 1000) -> Group:
    """The part that fits into a window: alarms and the audit first, then the shop. The rest is counted.

    Args:
        document: as from ``Watch.document``.
        width: of the window, in columns.
        height: of the window, in lines.
    """
    end = f"{_clock(document['at'])} UTC, counting since {_iso(document['since'])}; Ctrl-C stops it"
    # One line for the end, one for what is cut, and one for the prompt.
    left = max(height - 3, 0)
    alarms = [f"[red bold]![/] {escape(printable(alarm))}" for alarm in alarms_of(document)]
    parts: list[Table | Text] = []
    cut: list[str] = []
    for number, alarm in enumerate(alarms):
        text = Text.from_markup(alarm)
        lines_of_it = -(-text.cell_len // width) or 1
        if lines_of_it > left:
            cut.append(_number(len(alarms) - number, "alarm"))
            break
        parts.append(text)
        left -= lines_of_it
    audit, missing = _audit(document, left)
    if audit:
        parts += [Text(), audit]
        left -= audit.row_count + _HEADER
    cut += [_number(missing, "topic")] if missing else []
    shop, missing = _shop(document, left)
    if shop:
        parts += [Text(), shop]
        left -= shop.row_count + _HEADER
    cut += [_number(missing, "minute")] if missing else []
    lists = 0
    for text in _best(document):
        lines_of_it = -(-text.cell_len // width)
        if lines_of_it <= left:
            parts.append(text)
            left -= lines_of_it
        else:
            lists += 1
    cut += [_number(lists, "list")] if lists else []
    if cut:
        parts.append(Text(f"not shown because the window is too small: {', '.join(cut)}"))
    return Group(*parts, Text(end, overflow="ellipsis", no_wrap=True))


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _audit(document: Mapping[str, Any], height: int) -> tuple[Table | None, int]:
    """The mirrors, topics with records in flight first; and the number of topics without room."""
    flows = document["flows"]
    room = max(height - _HEADER - len(_pairs(document)), 0)
    busy = sorted(flows, key=lambda flow: not any(flow[name] for name in ("in_flight", "late", *KINDS)))
    kept = {id(flow) for flow in busy[:room]}
    if not kept:
        return None, len(flows)
    table = _table("mirrored", "records", "copies", "in flight", "late", "faults")
    for (source, target), of_pair in _pairs(document).items():
        table.add_row(f"[bold]{escape(source)} → {escape(target)}[/]")
        for flow in of_pair:
            if id(flow) in kept:
                faults = ", ".join(f"{flow[kind]:,} {_label(kind)}" for kind in KINDS if flow[kind])
                counts = (_coloured(name, flow[name]) for name in ("records", "copies", "in_flight", "late"))
                table.add_row(f"  {escape(flow['topic'])}", *counts, f"[red bold]{faults}[/]" if faults else "0")
    return table, len(flows) - len(kept)


def _shop(document: Mapping[str, Any], height: int) -> tuple[Table | None, int]:
    """The regions' minutes, the newest first; and the number of minutes without room."""
    minutes = [(row, region) for region, activity in document["regions"].items() for row in activity["minutes"]]
    minutes.sort(key=lambda entry: -entry[0]["minute"])
    shown = minutes[: max(height - _HEADER, 0)]
    if not shown:
        return None, len(minutes)
    columns = [entry for entry in _MINUTE if entry[1] != "unreadable" or any(row["unreadable"] for row, _ in shown)]
    table = _table("UTC", "region", *(label for label, _ in columns))
    for row, region in shown:
        table.add_row(_clock(row["minute"])[:5], escape(region), *(_shown(row[name]) for _, name in columns))
    return table, len(minutes) - len(shown)


def _best(document: Mapping[str, Any]) -> Iterator[Text]:
    """The best-selling products and the busiest warehouses of each region."""
    for region, activity in document["regions"].items():
        for title, entries, value in (
            ("revenue", activity["by_product"], "revenue"),
            ("moved", activity["by_warehouse"], "units"),
        ):
            if entries:
                ranking = ", ".join(f"{printable(e['name'])} {e[value]:,}" for e in entries)
                yield Text(f"{region}, {title}: {ranking}")


def _pairs(document: Mapping[str, Any]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    pairs: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for flow in document["flows"]:
        pairs.setdefault((flow["source"], flow["target"]), []).append(flow)
    return pairs


def _table(title: str, *columns: str) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(title, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=column != "faults", overflow="fold")
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
