"""The proof as a page: what it says, and that nothing in it can do more than be read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from decimal import Decimal
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from loosehanger.errors import LabError, WrongUseError
from loosehanger.lab.job_options import check_writable
from loosehanger.proof import judge
from loosehanger.proof.difference import FAULTS
from loosehanger.proof.report.charts import brief
from loosehanger.proof.report.files import write
from loosehanger.proof.report.page import render
from tests import samples

# What has no end tag.
_VOID = {"meta", "link", "path", "use", "br", "img"}


class Page(HTMLParser):
    """What a browser would make of the page, as far as the tests ask."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.cells: dict[str, list[list[str]]] = {}
        self.drawn: list[str] = []
        self._text: list[str] = []
        self._caption = ""
        self.feed(text)
        self.close()
        self.text = " ".join(" ".join(self._text).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)
        if tag == "tr":
            self.cells[self._caption].append([])
        elif tag in ("td", "th"):
            self.cells[self._caption][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "caption":
            self._caption = self._text[-1]
            self.cells[self._caption] = []

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        self._text.append(" ".join(data.split()))
        if self.open and self.open[-1] == "text":
            self.drawn.append(data)
        if "td" in self.open or "th" in self.open:
            row = self.cells[self._caption][-1]
            row[-1] = f"{row[-1]} {data}".strip()

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of every element of this name."""
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def proved() -> Page:
    """Of a proof without a fault."""
    flows = [samples.flow(target=target) for target in ("north-america", "south-america")]
    return Page(render(samples.proof(*flows), samples.aggregates()))


@pytest.fixture(scope="module")
def disproved() -> Page:
    """Of a proof with every kind of fault."""
    return Page(render(samples.broken_proof(), {}))


def test_the_verdict_stands_first_and_in_words(proved: Page) -> None:
    assert proved.text.startswith(
        "Proved: 03-broadcast, the mirrors' proof The mirrors' proof · 03-broadcast ✓ Proved Everything was mirrored. "
        "1,000 records of 1 topic are in north-america and south-america: 0 missing,"
    )
    assert "cut in europe 2026-01-01 00:00:00 UTC took 12.3 s records per second 4,321" in proved.text
    assert "Why it is" not in proved.text


def test_a_flows_numbers(disproved: Page) -> None:
    head, row, *_ = disproved.cells["Numbers of each topic, europe → north-america"]
    assert dict(zip(head, row, strict=True)) == {
        "topic": "LH.ORDERS",
        "result": "✗  differs",
        "source records": "1,000",
        "target records": "1,000",
        "missing": "2",
        "duplicates": "1",
        "altered": "0",
        "unexpected": "0",
        "reordered": "0",
        "moved": "1",
        "never mirrored": "3",
        "settings": "2",
        "p50": "18 ms",
        "p99": "140 ms",
    }


def test_rare_kinds_have_a_column_only_where_there_are_some(disproved: Page) -> None:
    head = disproved.cells["Numbers of each topic, europe → south-america"][0]
    assert "missing" in head
    assert not {"moved", "never mirrored"} & set(head)


def test_every_fault_has_its_words() -> None:
    assert {kind.value for kind in FAULTS} >= set(judge.FAULT_KEYS)
    assert {kind.value for kind in FAULTS} == set(samples.FAULTS)


def test_each_flow_opens_to_its_partitions(proved: Page) -> None:
    assert proved.cells["Partitions of LH.ORDERS, europe → south-america"] == [
        ["partition", "source records", "target records", "end of the cut"],
        ["0", "600", "600", "612"],
        ["1", "400", "400", "1,400"],
    ]
    assert "12 buckets of time compared by fingerprint, 1 of them record by record." in proved.text
    assert all("open" not in attributes for attributes in proved.all("details"))


def test_reasons_settings_and_examples(disproved: Page) -> None:
    for reason in samples.broken_proof()["reasons"]:
        assert reason in disproved.text
    settings = disproved.cells["Settings that differ between source and target"]
    assert settings[1] == ["LH.ORDERS", "europe → north-america", "retention.ms", "604800000", "not set"]
    examples = disproved.cells["Examples of LH.ORDERS, europe → north-america"]
    assert examples[1] == ["missing", "1", "1,234", "–", "customer-7", "2026-01-01 00:00:01.250"]
    assert ["moved", "1 → 0", "1,234", "77", "customer-7", "2026-01-01 00:00:01.250"] in examples
    assert {"duplicate", "reordered", "never mirrored"} < {row[0] for row in examples}
    assert "no key" in {row[4] for row in examples}


def test_hostile_text_stays_text(disproved: Page) -> None:
    assert {tag for tag, _ in disproved.tags} & {"script", "img", "iframe", "object", "base", "form"} == set()
    assert not [name for _, attributes in disproved.tags for name in attributes if name.startswith("on")]
    assert "<script>alert(1)</script>&amp;{{ 7*7 }}" in disproved.text
    assert '"><img src=x onerror=alert(1)>' in disproved.text


def test_hostile_names_stay_text_in_charts_and_headings() -> None:
    hostile = "</title></svg><script>x</script>$\\frac{1}{2}$ 東京 \x00\x1b \ud800"
    flow = samples.flow(topic=hostile, source=hostile, mirror=hostile, target_topic=hostile)
    text = render(samples.proof(flow), samples.aggregates(**{hostile: "1.00"}) | {"scenario": hostile})
    assert "<script" not in text
    assert "$\\frac{1}{2}$ 東京" in text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\ud800]", text)
    assert Page(text).open == []


@pytest.mark.parametrize("name", ["$\\frac{1}{2}$", "東京 \N{JEANS}", "</text><script>x", "a\x00b", "n" * 300, "_^\\"])
def test_charts_write_labels_as_they_are(name: str) -> None:
    page = Page(render(samples.proof(samples.flow()), samples.aggregates(**{name: "1.00"})))
    label = name.replace("\0", "\N{REPLACEMENT CHARACTER}")
    assert (label if len(label) <= 42 else f"{label[:41]}…") in page.drawn


def test_it_needs_nothing_but_itself(proved: Page, disproved: Page) -> None:
    for page in (proved, disproved):
        (policy,) = (meta["content"] for meta in page.all("meta") if "http-equiv" in meta)
        assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
        for _, attributes in page.tags:
            for name in ("src", "href", "srcset", "data", "action"):
                assert (attributes.get(name) or "#").startswith(("#", "data:"))


def test_ids_are_unique_and_whatever_is_referred_to_is_there(proved: Page) -> None:
    ids = [attributes["id"] for _, attributes in proved.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in proved.tags:
        assert set((attributes.get("aria-labelledby") or "").split()) <= set(ids)


def test_headings_are_in_order_and_header_cells_have_a_scope(proved: Page, disproved: Page) -> None:
    for page in (proved, disproved):
        levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))
        assert {cell.get("scope") for cell in page.all("th")} == {"col", "row"}
        assert page.all("html") == [{"lang": "en"}]


def test_every_chart_says_what_it_shows(proved: Page) -> None:
    charts = [attributes for attributes in proved.all("svg") if attributes.get("role") == "img"]
    assert len(charts) == 4
    assert "Half of 1,000 sampled records arrived within 20 ms, 99 % within 100 ms." in proved.text
    assert proved.cells["Latency, europe → south-america"][2] == ["10 ms", "310", "35.0 %"]
    # Text is text, and the colours are the page's.
    assert "Nîmes Straight" in proved.text
    assert "81.2k" in proved.text
    styles = " ".join(attributes.get("style") or "" for _, attributes in proved.tags)
    assert "var(--series-2)" in styles
    assert not re.search(r"#0102|rgb\(", styles)


@pytest.mark.parametrize("histogram", [[], None, [[1, 0]]])
def test_without_samples_there_is_no_latency(histogram: list[list[int]] | None) -> None:
    latency = {"p50": None, "p95": None, "p99": None, "max": None, "samples": 0}
    flow = samples.flow(latency_ms=latency if histogram is None else latency | {"histogram": histogram})
    page = Page(render(samples.proof(flow), {}))
    assert page.all("svg") == []
    assert page.cells["Numbers of each topic, europe → north-america"][1][-2:] == ["–", "–"]


def test_the_regions_side_by_side(proved: Page) -> None:
    totals = proved.cells["The regions' totals side by side"]
    assert totals[0] == ["events read in", "europe", "north-america", "south-america"]
    assert ["revenue", "146,183.75", "146,183.75", "–"] in totals
    assert ["mean temperature °C", "21.37", "21.37", "–"] in totals
    assert proved.cells["Revenue by product"][1] == ["Nîmes Straight", "81,250.00", "81,250.00", "–"]
    assert proved.cells["Orders by where they came from"][2] == ["Łódź", "750", "750", "–"]


def test_the_aggregates_may_be_the_jobs_own_values_too() -> None:
    document = samples.aggregates()
    as_json = render(samples.proof(samples.flow()), document)
    for region in document["regions"].values():
        if region["events"]:
            region["revenue"] = Decimal(region["revenue"])
            for row in region["by_product"] + region["by_region"]:
                row["revenue"] = Decimal(row["revenue"])
    assert render(samples.proof(samples.flow()), document) == as_json


def test_notes_stand_beside_the_verdict() -> None:
    page = Page(render({**samples.proof(samples.flow()), "notes": ["there is <b>LH.OWN</b>"]}, {}))
    assert "Besides there is <b>LH.OWN</b>" in page.text


def test_nothing_at_all() -> None:
    document = samples.proof(verdict="inconclusive", reasons=("europe: the cluster does not answer (x)",))
    page = Page(render(document, {"regions": {}}))
    assert "? Inconclusive Not everything could be decided. europe: the cluster does not answer (x)" in page.text
    assert "Nothing was compared." in page.text
    assert page.all("svg") == []


def test_the_same_input_gives_the_same_page() -> None:
    assert len({render(samples.broken_proof(), samples.aggregates()) for _ in range(2)}) == 1


def test_the_page_stays_small() -> None:
    flows = [samples.flow(f"topic-{number}") for number in range(200)]
    assert len(render(samples.proof(*flows), samples.aggregates())) < 1_000_000


def test_what_was_claimed_comes_before_everything_else(disproved: Page) -> None:
    claims, flows = disproved.text.index("What was claimed"), disproved.text.index("What was compared")
    said = disproved.text[claims:flows]
    north, south = said.index("✗ disproved north-america has an exact copy"), said.index("? inconclusive south-america")
    assert north < said.index("LH.ORDERS, europe → north-america: 2 missing") < south
    assert south < said.index("mirror mm2-south-america is STOPPED, 5 records behind")
    assert said.count("2 missing") == 1


def test_what_concerns_every_claim_is_said_once() -> None:
    reason = "Spark did not start: x"
    claims = tuple(samples.claim(target, verdict="inconclusive", reasons=[reason]) for target in ("a", "b"))
    document = samples.proof(verdict="inconclusive", reasons=(reason,), claims=claims)
    said = Page(render(document, {})).text.partition("What was claimed")[2]
    assert said.count(reason) == 1
    assert "Why it is inconclusive" in said


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0"), (7, "7"), (999, "999"), (1000, "1k"), (12_345, "12.3k"), (999_900, "1M"), (-4_560_000, "-4.56M")],
)
def test_numbers_in_few_characters(number: int, shown: str) -> None:
    assert brief(number) == shown


class TestWriting:
    """Whole, or not at all."""

    def test_the_old_is_replaced(self, tmp_path: Path) -> None:
        path = tmp_path / "report.html"
        for text in ("old", "new ✓\n"):
            check_writable(path)
            write(path, text)
        assert path.read_bytes() == "new ✓\n".encode()
        assert list(tmp_path.iterdir()) == [path]

    def test_others_may_read_it_as_the_user_has_it(self, tmp_path: Path) -> None:
        before = os.umask(0o027)
        try:
            write(tmp_path / "report.html", "")
        finally:
            os.umask(before)
        assert (tmp_path / "report.html").stat().st_mode & 0o777 == 0o640

    @pytest.mark.parametrize("make", [check_writable, lambda path: write(path, "text")])
    @pytest.mark.parametrize("name", ["nowhere/report.html", "file/report.html", "folder"])
    def test_what_cannot_be_written_is_one_clear_line(
        self, tmp_path: Path, make: Callable[[Path], None], name: str
    ) -> None:
        (tmp_path / "file").touch()
        (tmp_path / "folder").mkdir()
        with pytest.raises(LabError, match=rf"^{re.escape(str(tmp_path / name))}: cannot be written: [^\n]+$"):
            make(tmp_path / name)
        assert {path.name for path in tmp_path.rglob("*")} == {"file", "folder"}

    def test_a_folder_without_the_right_to_write(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # By hand, since root may do everything.
        monkeypatch.setattr(os, "access", lambda *_: False)
        with pytest.raises(WrongUseError, match="no right to make files in"):
            check_writable(tmp_path / "report.html")


def test_a_link_that_somebody_plants_is_not_written_through(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / f".report.html.{os.getpid()}").symlink_to(elsewhere)
    write(tmp_path / "report.html", "text")
    assert (tmp_path / "report.html").read_text() == "text"
    assert not elsewhere.exists()
