"""Draws the flowchart of a lab's text: a box for each region with what runs in it, and an arrow for each flow.

It reads the Mermaid that the kit itself writes (``loosehanger.lab.diagram``), and nothing else of that language.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from markupsafe import Markup

WIDTH, LEFT, ROW, REGION_GAP = 760, 24, 96, 26
NODE = (128, 40)
_SUBGRAPH = re.compile(r'subgraph (\w+)\["(.+)"\]')
_NODE = re.compile(r'(\w+)(?:\[\("(.+)"\)\]|\("(.+)"\)|\["(.+)"\])')
_ARROW = re.compile(r'(\w+) (<?-\.?->)(?:\|"(.*)"\|)? (\w+)')


@dataclass
class _Box:
    """A region: its place, and its nodes by their ids."""

    name: str
    nodes: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The label and the kind of each: ``cluster``, ``program`` or ``mirror``."""


@dataclass(frozen=True)
class _Arrow:
    source: str
    target: str
    label: str
    dashed: bool
    both: bool


def drawing(text: str) -> Markup | None:
    """The picture as a figure; None for a text that is not such a flowchart."""
    boxes: list[_Box] = []
    arrows: list[_Arrow] = []
    for line in map(str.strip, text.splitlines()[1:]):
        if found := _SUBGRAPH.fullmatch(line):
            boxes.append(_Box(found[2]))
        elif boxes and (found := _NODE.fullmatch(line)):
            kind = "cluster" if found[2] else "program" if found[3] else "mirror"
            boxes[-1].nodes[found[1]] = (found[2] or found[3] or found[4], kind)
        elif found := _ARROW.fullmatch(line):
            label = (found[3] or "").replace("#quot;", '"')
            arrows.append(_Arrow(found[1], found[4], label, "." in found[2], found[2].startswith("<")))
        elif line and line != "end":
            return None
    known = {ident for box in boxes for ident in box.nodes}
    if not boxes or not all({arrow.source, arrow.target} <= known for arrow in arrows):
        return None
    return _figure(boxes, arrows)


def _figure(boxes: list[_Box], arrows: list[_Arrow]) -> Markup:
    places = {
        ident: (_column(position, len(box.nodes)), 62.0 + row * (ROW + REGION_GAP))
        for row, box in enumerate(boxes)
        for position, ident in enumerate(_in_order(box))
    }
    height = len(boxes) * (ROW + REGION_GAP) + 10
    names = {ident: (f"{label} in {box.name}") for box in boxes for ident, (label, _) in box.nodes.items()}
    said = "; ".join(_sentence(arrow, names) for arrow in arrows)
    parts = [*_regions(boxes, places), *(_arrow(arrow, places) for arrow in arrows)]
    return Markup(
        '<figure class="flowchart"><svg viewBox="0 0 {} {}" role="img" aria-label="{}"><defs><marker id="tip" '
        'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">'
        '<path d="M0 0 8 4 0 8z"/></marker></defs>{}</svg></figure>'
    ).format(WIDTH, height, said, Markup().join(parts))


def _in_order(box: _Box) -> list[str]:
    """A region's nodes from left to right: what writes, the cluster, what reads, the mirrors."""
    rank = {"producer": 0, "clearing": 1}
    kinds = {"cluster": 2, "program": 3, "mirror": 4}
    return sorted(box.nodes, key=lambda ident: rank.get(box.nodes[ident][0], kinds[box.nodes[ident][1]]))


def _column(position: int, count: int) -> float:
    """The middle of a node."""
    return LEFT + (WIDTH - 2 * LEFT) * (position + 0.5) / max(count, 1)


def _sentence(arrow: _Arrow, names: dict[str, str]) -> str:
    what = f" ({arrow.label})" if arrow.label else ""
    return f"{names[arrow.source]} to {names[arrow.target]}{what}"


def _regions(boxes: list[_Box], places: dict[str, tuple[float, float]]) -> Iterator[Markup]:
    for row, box in enumerate(boxes):
        top = 8 + row * (ROW + REGION_GAP)
        yield Markup('<rect class="area" x="8" y="{}" width="{}" height="{}" rx="12"/>').format(top, WIDTH - 16, ROW)
        yield Markup('<text class="area-name" x="20" y="{}">{}</text>').format(top + 18, box.name)
        for ident, (label, kind) in box.nodes.items():
            x, y = places[ident]
            corner = {"cluster": 18, "program": 10, "mirror": 2}[kind]
            yield Markup(
                '<g class="{}"><rect x="{:.0f}" y="{:.0f}" width="{}" height="{}" rx="{}"/>'
                '<text x="{:.0f}" y="{:.0f}">{}</text></g>'
            ).format(kind, x - NODE[0] / 2, y - NODE[1] / 2, *NODE, corner, x, y + 5, label)


def _arrow(arrow: _Arrow, places: dict[str, tuple[float, float]]) -> Markup:
    (x1, y1), (x2, y2) = places[arrow.source], places[arrow.target]
    if abs(y1 - y2) < 1:  # within a region: from side to side, above what lies between
        step = NODE[0] / 2 if x2 > x1 else -NODE[0] / 2
        near = abs(x2 - x1) < 2 * NODE[0] + 60
        path = f"M{x1 + step:.0f} {y1:.0f} L{x2 - step:.0f} {y2:.0f}"
        if not near:
            middle = (x1 + x2) / 2
            path = f"M{x1:.0f} {y1 + 20:.0f} Q{middle:.0f} {y1 + 52:.0f} {x2:.0f} {y2 + 20:.0f}"
        label = ((x1 + x2) / 2, y1 + (-8 if near else 38))
    else:
        down = NODE[1] / 2 if y2 > y1 else -NODE[1] / 2
        path = (
            f"M{x1:.0f} {y1 + down:.0f} C{x1:.0f} {(y1 + y2) / 2:.0f} {x2:.0f} {(y1 + y2) / 2:.0f} "
            f"{x2:.0f} {y2 - down:.0f}"
        )
        label = (x2 + (x1 - x2) * 0.3, y2 - down * 2.2)
    return Markup('<path class="arrow{}" d="{}" marker-end="url(#tip)"{}/>{}').format(
        " dashed" if arrow.dashed else "",
        path,
        Markup(' marker-start="url(#tip)"') if arrow.both else "",
        Markup('<text class="what" x="{:.0f}" y="{:.0f}">{}</text>').format(*label, arrow.label) if arrow.label else "",
    )
