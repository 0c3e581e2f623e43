"""The results of an experiment as one self-contained HTML page in the style of the proof's report."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from markupsafe import Markup

from loosehanger.proof.report.charts import side_by_side
from loosehanger.proof.report.rendering import template


def render(document: Mapping[str, Any]) -> str:
    """Makes the page.

    Args:
        document: the results, as ``./lab experiment NAME --json`` prints them.

    Returns:
        HTML. The same input gives the same page, as long as Matplotlib is the same.
    """
    charts = [_chart(place, chart) for place, chart in enumerate(document["charts"], 1)]
    return template("experiment.html.j2").render(document=document, charts=charts)


def _chart(place: int, chart: Mapping[str, Any]) -> dict[str, Any]:
    said = (
        f"{chart['title']}, in {chart['unit']}: one bar for each of {', '.join(chart['series'])}. The tables have more."
    )
    groups = {
        label: [None if value is None else Decimal(str(value)) for value in values]
        for label, values in chart["groups"].items()
    }
    drawn = side_by_side(f"chart-{place}", chart["title"], said, groups)
    return {**chart, "drawn": Markup(drawn)}  # noqa: S704 - drawn, and escaped, by Matplotlib and ElementTree
