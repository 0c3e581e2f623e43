"""The proof and its evidence as a PDF, to be filed or printed; the page has more, such as charts and examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from fpdf import FPDF
from fpdf.enums import WrapMode
from fpdf.fonts import FontFace

from loosehanger.proof.difference import FAULTS, printable
from loosehanger.proof.report.tables import summary

_FONT, _FIXED = "DejaVu", "DejaVuMono"
_FILES = {
    (_FONT, ""): "DejaVuSans.ttf",
    (_FONT, "B"): "DejaVuSans-Bold.ttf",
    (_FIXED, ""): "DejaVuSansMono.ttf",
}
"""Matplotlib's own, which know more than Latin letters."""
_COLOURS = {"proved": (11, 107, 58), "disproved": (165, 35, 28), "inconclusive": (138, 83, 0)}
_SMALL, _TEXT, _HEAD, _TITLE = 7, 9, 12, 22
_LINE = 1.4
_POINT_MM = 0.3528
_DIGEST_WIDTHS = (16, 38, 26, 14, 86)


def render_pdf(document: Mapping[str, Any], signed: Mapping[str, Any] | None = None) -> bytes:
    """Makes the PDF.

    Args:
        document: the proof, as from ``loosehanger.proof.verdict.judge``.
        signed: the evidence, as from ``loosehanger.proof.evidence.signed_file.write_evidence``; None without.

    Returns:
        The content of the file: A4, with page numbers, and nothing that runs or is loaded.
    """
    sheet = _Sheet()
    sheet.set_title(f"{document['verdict'].capitalize()}: {printable(document['scenario'])}")
    sheet.add_page()
    sheet.set_text_color(*_COLOURS[document["verdict"]])
    sheet.words(document["verdict"].capitalize(), _TITLE, "B")
    sheet.set_text_color(0)
    sheet.words(printable(document["scenario"]), _HEAD)
    sheet.words(summary(document))
    for region, cut in document["cut"].items():
        sheet.words(f"Cut in {printable(region)}: {cut['at']}")
    for title, sentences in (("Why", document["reasons"]), ("Besides", document.get("notes", ()))):
        if sentences:
            sheet.head(title)
            for sentence in sentences:
                sheet.words(f"• {printable(sentence)}")
    sheet.head("What was compared")
    kinds = [kind for kind in FAULTS if not kind.is_rare or document["totals"][kind.value]]
    sheet.rows(
        ("flow", "topic", "verdict", "records", "copies", *(kind.column for kind in kinds)),
        (
            (
                f"{flow['source']} → {flow['target']}",
                flow["topic"] if flow["topic"] == flow["target_topic"] else f"{flow['topic']} → {flow['target_topic']}",
                flow["verdict"],
                *(f"{flow[name]:,}" for name in ("source_records", "target_records", *(kind.value for kind in kinds))),
            )
            for flow in document["flows"]
        ),
        (26, 40, 18, 16, 16, *[64 // len(kinds)] * len(kinds)),
    )
    if signed:
        _evidence(sheet, signed)
    return bytes(sheet.output())


def _evidence(sheet: _Sheet, signed: Mapping[str, Any]) -> None:
    statement = signed["statement"]
    sheet.head("The evidence")
    sheet.words(
        f"This paper is for people. What is signed is the file {signed['name']}, which mirrorproof verify checks, and "
        "so does minisign."
    )
    facts = {
        "signed by the key": f"{signed['key']} (id {signed['key_id']})",
        "SHA-256 of the file": signed["sha256"],
        "made": f"{statement['made']['at']} by {statement['made']['by']}",
        **{f"cluster {one['name']}": f"id {one['id']}" for one in statement["clusters"]},
    }
    for name, value in facts.items():
        sheet.words(f"{printable(name)}:", style="B")
        sheet.words(printable(value), _SMALL, font=_FIXED)
    sheet.words("the signature:", style="B")
    for line in signed["signature"].splitlines():
        sheet.words(printable(line.replace("\t", " ")), _SMALL, font=_FIXED)
    sheet.head("The digests")
    sheet.rows(
        ("cluster", "partition", "offsets", "records", "SHA-256"),
        (
            (
                one["cluster"],
                f"{one['topic']}-{one['partition']}",
                f"{one['start']:,} to {one['end']:,}",
                f"{one['records']:,}",
                one["sha256"],
            )
            for one in statement["partitions"]
        ),
        _DIGEST_WIDTHS,
    )


class _Sheet(FPDF):
    """Pages of A4 with numbers."""

    def __init__(self) -> None:
        super().__init__(format="A4")
        self.set_margin(15)
        self.set_auto_page_break(True, 18)
        fonts = Path(mpl.get_data_path()) / "fonts" / "ttf"
        for (name, style), file in _FILES.items():
            self.add_font(name, style, fonts / file)

    def footer(self) -> None:
        """Numbers the page."""
        self.set_y(-12)
        self.set_font(_FONT, "", _SMALL)
        self.cell(0, 5, f"{self.page_no()} of {{nb}}", align="R")

    def words(self, text: str, size: int = _TEXT, style: str = "", font: str = _FONT) -> None:
        """A paragraph."""
        self.set_font(font, style, size)
        self.multi_cell(
            0, size * _POINT_MM * _LINE, text, align="L", wrapmode=WrapMode.CHAR if font == _FIXED else WrapMode.WORD
        )
        self.ln(0)
        self.set_x(self.l_margin)

    def head(self, text: str) -> None:
        """The title of a section."""
        self.ln(4)
        self.words(text, _HEAD, "B")

    def rows(self, names: Sequence[str], rows: Iterable[Sequence[str]], widths: Sequence[int]) -> None:
        """A table, whose head is repeated on every page."""
        self.set_font(_FONT, "", _SMALL - 1)
        with self.table(
            col_widths=tuple(widths),
            line_height=_SMALL * _POINT_MM * _LINE,
            text_align="LEFT",
            headings_style=FontFace(emphasis="BOLD"),
            wrapmode=WrapMode.CHAR,
        ) as table:
            for row in (names, *rows):
                table.row([printable(cell) for cell in row])
