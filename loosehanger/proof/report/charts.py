"""Charts as inline SVG: text stays text, and the colours are the page's own, so that they follow light and dark."""

from __future__ import annotations

import io
import math
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from decimal import Decimal

# Matplotlib has just made the SVG, and has escaped all foreign text in it.
from xml.etree import ElementTree

from loosehanger.paths import lab_home

# Matplotlib caches the list of the machine's fonts: in the kit's folder, not in the user's home.
os.environ.setdefault("MPLCONFIGDIR", str(lab_home() / "cache" / "matplotlib"))

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loosehanger.proof.difference import printable

WIDTH = 340
"""In the SVG's units: about a phone's width, so that text keeps its size there; wider screens enlarge it a little."""
SERIES = 6
"""The number of series colours on the page; further series reuse them."""

# Placeholder colours, each for one of the page's.
_INK, _MUTED, _LINE = "#010203", "#010204", "#010205"
_BARS = tuple(f"#0102{16 + number:02x}" for number in range(SERIES))
_PAGE_COLOURS = {_INK: "var(--ink)", _MUTED: "var(--muted)", _LINE: "var(--line)"} | {
    colour: f"var(--series-{number})" for number, colour in enumerate(_BARS, 1)
}
# The salt makes ids that do not change from run to run.
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "chart", "text.usetex": False}
# Matplotlib includes this font, so the layout is the same on every machine. The page uses its own font.
_FONT = "DejaVu Sans"
_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
_LONGEST_LABEL = 42
_MOST_TICKS = 9


def distribution(name: str, title: str, description: str, bars: Sequence[tuple[str, float]], series: int = 0) -> str:
    """Upright bars, one for each bucket.

    Args:
        name: what the chart's ids begin with; unique in the page.
        title: of the chart.
        description: the same in words, for screen readers.
        bars: each bucket's label and its share, from 0 to 1.
        series: the number of the series whose colour is used, from 0.
    """
    height, top, bottom = 180, 22, 38
    figure, axes = _canvas(height)
    step = WIDTH / max(1, len(bars))
    highest = max((share for _, share in bars), default=0) or 1
    ground = height - bottom
    every = math.ceil(len(bars) / _MOST_TICKS)
    for place, (label, share) in enumerate(bars):
        middle, tall = (place + 0.5) * step, (ground - top) * share / highest
        axes.bar(middle, -tall, 0.84 * step, ground, color=_colour(series), linewidth=0, clip_on=False)
        if share:
            _write(axes, middle, ground - tall - 4, _percent(share), size=9.5, ha="center")
        # From the right: the last bound says how late the latest came.
        if (len(bars) - 1 - place) % every == 0:
            _write(axes, middle, ground + 13, label, size=9.5, colour=_MUTED, ha="center")
    axes.plot([0, WIDTH], [ground, ground], color=_LINE, linewidth=1, clip_on=False)
    _write(axes, WIDTH / 2, height - 5, "arrived within", size=9.5, colour=_MUTED, ha="center")
    return _svg(figure, name, title, description)


def side_by_side(name: str, title: str, description: str, groups: Mapping[str, Sequence[Decimal | int | None]]) -> str:
    """Lying bars in groups: each group's label above them, and one bar for each series.

    Args:
        name: what the chart's ids begin with; unique in the page.
        title: of the chart.
        description: the same in words, for screen readers.
        groups: label → the values of the series; None where a series has no such value.
    """
    thick, heading, gap, values_width = 10, 18, 9, 56
    series = max((len(values) for values in groups.values()), default=0)
    figure, axes = _canvas(max(1, len(groups)) * (heading + series * (thick + 2) + gap))
    largest = max((float(value) for values in groups.values() for value in values if value and value > 0), default=1.0)
    y = 0.0
    for label, values in groups.items():
        _write(axes, 0, y + heading - 5, _short(label), size=11.5)
        y += heading
        for number, value in enumerate(values):
            # A bar cannot show less than nothing; the number beside it does.
            long = (WIDTH - values_width) * max(0.0, float(value or 0) / largest)
            axes.barh(y + thick / 2, long, thick, color=_colour(number), linewidth=0, clip_on=False)
            shown = "–" if value is None else brief(value)
            _write(axes, long + 4, y + thick - 1, shown, size=10, colour=_MUTED)
            y += thick + 2
        y += gap
    return _svg(figure, name, title, description)


def brief(value: Decimal | int) -> str:
    """A number in few characters: ``950``, ``12.3k``, ``4.56M``."""
    number = float(value)
    for unit in ("", "k", "M", "G"):
        # What would be rounded to 1000 is one of the next unit.
        if abs(number) < 999.5:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:,.0f}T"


def _canvas(height: int) -> tuple[Figure, Axes]:
    """A figure whose coordinates are the SVG's: from the left and from the top."""
    with matplotlib.style.context(["default", _STYLE]):
        # Matplotlib's SVG has 72 units to the inch.
        figure = Figure(figsize=(WIDTH / 72, height / 72))
        figure.patch.set_visible(False)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, WIDTH), ylim=(height, 0), autoscale_on=False)
        axes.set_axis_off()
    return figure, axes


def _write(axes: Axes, x: float, y: float, text: str, *, size: float, colour: str = _INK, ha: str = "left") -> None:
    axes.text(x, y, text, fontsize=size, color=colour, ha=ha, va="baseline", parse_math=False, family=_FONT)


def _svg(figure: Figure, name: str, title: str, description: str) -> str:
    drawn = io.StringIO()
    with matplotlib.style.context(["default", _STYLE]), warnings.catch_warnings():
        # The page is shown with the reader's own fonts, so glyphs that Matplotlib's font lacks do not matter.
        warnings.filterwarnings("ignore", message=r"(?s)Glyph .* missing from", category=UserWarning)
        figure.savefig(drawn, format="svg", transparent=True)
    return _inline(drawn.getvalue(), name, title, description)


def _inline(drawn: str, name: str, title: str, description: str) -> str:
    """Embeds an SVG document in a page: with unique ids, the page's colours, and a title and description."""
    root = ElementTree.fromstring(drawn)  # noqa: S314 - see the import
    referred = set(re.findall(r'(?:url\(|href=")#([^")]+)', drawn))
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{_SVG}metadata", f"{_SVG}style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        identity = element.attrib.pop("id", None)
        if identity in referred:
            element.set("id", f"{name}-{identity}")
        if _LINK in element.attrib:
            element.set("href", element.attrib.pop(_LINK).replace("#", f"#{name}-", 1))
        for key, value in element.attrib.items():
            if "url(#" in value:
                element.set(key, value.replace("url(#", f"url(#{name}-"))
        if style := element.get("style"):
            element.set("style", re.sub(r"#0102[0-9a-f]{2}", lambda match: _PAGE_COLOURS[match[0]], style))
    said = []
    for place, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = ElementTree.Element(tag, {"id": f"{name}-{tag}"})
        element.text = printable(text)
        root.insert(place, element)
        said.append(f"{name}-{tag}")
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-labelledby": " ".join(said)}
    return ElementTree.tostring(root, encoding="unicode")


def _colour(series: int) -> str:
    return _BARS[series % SERIES]


def _percent(share: float) -> str:
    return "<1%" if share < 0.01 else f"{share:.0%}"


def _short(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _LONGEST_LABEL else f"{shown[: _LONGEST_LABEL - 1]}…"
