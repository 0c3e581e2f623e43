"""The charts of the last hour: which lines, over which range, on which scale, and with which marks."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from loosehanger.console.formats import duration, rate, size, span, thousands
from loosehanger.console.history import Subject
from loosehanger.console.marks import Mark
from loosehanger.console.models import Past, Series

MOST_LINES = 8
"""Most lines of a chart, by the number of distinguishable colours."""
PLOTS = {
    "records_per_s": ("Records a second", "rate"),
    "bytes_per_s": ("Bytes a second", "bytes"),
    "lag": ("Lag in records", "count"),
    "lag_s": ("Lag in time: the age of the oldest record that is not copied", "seconds"),
    "latency_ms_p50": ("Latency: half of the records arrive within", "ms"),
    "latency_ms_p99": ("Latency: 99 % of the records arrive within", "ms"),
}
"""The charts of the last hour: title and unit of each."""
FORMATS = {
    "rate": lambda number: f"{rate(number)} records/s",
    "bytes": lambda number: f"{size(number)}/s",
    "count": lambda number: f"{thousands(number)} records",
    "seconds": span,
    "ms": duration,
}
"""How a value of each unit is shown, with the unit; ``charts.js`` shows it likewise."""
RANGES = {"15m": ("15 minutes", 900.0), "1h": ("An hour", 3600.0), "all": ("All that is kept", None)}
"""The ranges of a chart: the name of each, and its seconds; None for a chart that begins with the first sample."""
USUAL_RANGE = "1h"
_USUAL_SHARE = 0.95
"""The share of a line's values that the scale always shows."""
_HEADROOM = 1.5
"""How much higher than those the scale ends, where it is cut."""
_FEWEST = 20
"""Values of a line from which its outliers can be judged."""


class ChartSelection(NamedTuple):
    """The charts that a page asks for."""

    subject: str
    """A region, a topic, or empty for the flows."""
    range: str = USUAL_RANGE
    whole: bool = False
    """Whether the scale includes outliers."""

    @classmethod
    def parse(cls, text: str) -> ChartSelection:
        """Reads the text of a stream's address; what it does not understand is part of the subject's name."""
        found = re.fullmatch(rf"(.*)@({'|'.join(RANGES)})(\+whole)?", text)
        return cls(found[1], found[2], found[3] is not None) if found else cls(text)

    @property
    def text(self) -> str:
        """The text for a stream's address: no topic's name has an ``@``."""
        usual = self.range == USUAL_RANGE and not self.whole
        return self.subject if usual else f"{self.subject}@{self.range}{'+whole' if self.whole else ''}"


def within(past: Past, range_: str) -> Past:
    """The part of the past that a range shows."""
    seconds = RANGES[range_][1]
    if seconds is None or not past.times:
        return past
    first = next(index for index, at in enumerate(past.times) if at >= past.times[-1] - seconds)
    cut = {measure: slice(first, None) for measure in PLOTS}
    series = [
        one.model_copy(update={measure: getattr(one, measure)[part] for measure, part in cut.items()})
        for one in past.series
    ]
    return past.model_copy(update={"times": past.times[first:], "series": series})


def scale_end(lines: Sequence[Sequence[float | None]]) -> float | None:
    """The end of a scale on which outliers do not flatten the lines; None for one that has to show every value.

    Each line's usual values count, by its 95th percentile, so that a line of few records does not cut one of many. A
    line that is 0 nearly always gives no scale.
    """
    usual, most = 0.0, 0.0
    for line in lines:
        known = sorted(value for value in line if value is not None)
        if not known:
            continue
        most = max(most, known[-1])
        usual = max(usual, known[math.ceil(_USUAL_SHARE * len(known)) - 1] if len(known) >= _FEWEST else known[-1])
    end = _HEADROOM * usual
    return end if usual > 0 and most > 2 * end else None


def plot(
    measure: str, past: Past, drawn: Sequence[Series], marks: Sequence[Mark] = (), *, whole: bool = False
) -> dict[str, Any]:
    """A chart of the past: its points for the script, and the latest, least and greatest values for the table."""
    title, unit = PLOTS[measure]
    shown = FORMATS[unit]
    lines: list[dict[str, Any]] = []
    for number, series in enumerate(drawn, 1):
        values: list[float | None] = getattr(series, measure)
        known = [value for value in values if value is not None]
        if known:
            cells = [
                shown(value).removesuffix(" records/s").removesuffix(" records") if value is not None else "–"
                for value in (values[-1], min(known), max(known))
            ]
            lines.append({"number": number, "name": series_name(series), "cells": cells, "values": values})
    end = None if whole else scale_end([line["values"] for line in lines])
    most = max((value for line in lines for value in line["values"] if value is not None), default=0.0)
    points = [past.times, *(line["values"] for line in lines)]
    return {
        "id": measure.replace("_", "-"), "title": title, "unit": unit, "lines": lines,
        "colours": ",".join(str(line["number"]) for line in lines),
        "names": json.dumps([line["name"] for line in lines]),
        "points": json.dumps(points, separators=(",", ":")),
        "marks": json.dumps([(round(mark.at, 1), mark.text) for mark in marks]),
        "end": end, "cut": (shown(end), shown(most)) if end is not None else None,
    }  # fmt: skip


def series_name(series: Series) -> str:
    """The name of a line."""
    return Subject(series.region, series.topic, series.source, series.mirror).name
