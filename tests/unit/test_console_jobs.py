"""The proofs that were run from the control room: their steps, what came of each claim, and what is kept of them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from loosehanger.console import jobs as jobs_module
from loosehanger.console.jobs import MOST_CLAIMS, MOST_PROOFS, MOST_REPORTS, PAST, Jobs
from loosehanger.console.models import PastProof
from tests import samples
from tests.consoles import HOSTILE, running, settings

REGIONS = ("europe", "north-america", "south-america")


class MadeUpJobs(Jobs):
    """Jobs whose child says and answers what a test wants."""

    document: dict[str, Any] | None = None
    said: Sequence[str] = ()
    exit_code = 0

    async def _child(self, arguments: Sequence[str]) -> tuple[int, bytes]:
        stream = asyncio.StreamReader()
        stream.feed_data("".join(f"{line}\n" for line in self.said).encode())
        stream.feed_eof()
        await self._follow(stream)
        if "--report" in arguments and self.document:
            Path(arguments[arguments.index("--report") + 1]).write_text(f"report {arguments[-1]}")
        return self.exit_code, json.dumps(self.document).encode() if self.document else b""


def run(jobs: Jobs, name: str = "proof") -> None:
    """Runs a job to its end."""

    async def wait() -> None:
        jobs.start(name)
        assert jobs._running
        await jobs._running[2]

    asyncio.run(wait())


def test_what_a_job_says_becomes_its_steps(tmp_path: Path) -> None:
    jobs = MadeUpJobs(tmp_path)
    jobs.said = ["waiting: mm2 is 9 behind", "waiting: mm2 is 3 behind", "", "reading and comparing", "waiting: again"]
    jobs.document = samples.proof(samples.flow())
    run(jobs)
    state = jobs.state("proof")
    assert [step.said for step in state.steps] == [
        "waiting: mm2 is 3 behind",
        "reading and comparing",
        "waiting: again",
    ]
    assert all(step.seconds is not None for step in state.steps)
    assert len(state.progress) == 4


def test_the_step_that_a_job_is_at_has_no_end() -> None:
    jobs = Jobs(Path("/nowhere"))
    jobs._step("reading")
    assert jobs._steps[-1].seconds is None
    for number in range(1000):
        jobs._step(f"step {number}: of many")
    assert len(jobs._steps) == jobs_module.MOST_LINES


def test_a_proofs_verdicts_are_kept_with_its_claims_and_its_report(tmp_path: Path) -> None:
    jobs = MadeUpJobs(tmp_path)
    jobs.document = samples.broken_proof()
    jobs.exit_code = 1
    run(jobs)
    (found,) = Jobs(tmp_path).past()
    assert (found.verdict, found.report) == ("disproved", True)
    assert [claim.verdict for claim in found.claims] == ["disproved", "inconclusive"]
    assert jobs.report(found.id) == jobs.report() is not None
    jobs.document, jobs.said, jobs.exit_code = None, ["error: nothing is set up"], 3
    run(jobs)
    latest, before = Jobs(tmp_path).past()
    assert (latest.verdict, latest.report, latest.claims) == ("failed", False, [])
    assert "nothing is set up" in latest.explanation
    assert before == found
    assert jobs.report() is None, "the report of the proof before is not this one's"
    assert (tmp_path / "artifacts" / "console" / PAST).stat().st_mode & 0o077 == 0
    run(jobs, "aggregates")
    assert len(jobs.past()) == 2


def test_what_is_kept_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1_700_000_000, 1_800_000_000))
    monkeypatch.setattr(time, "time", lambda: float(next(clock)))
    jobs = MadeUpJobs(tmp_path)
    jobs.document = samples.proof(samples.flow(), claims=tuple(samples.claim(says="x" * 9999) for _ in range(200)))
    for _ in range(MOST_PROOFS + 5):
        run(jobs)
    past = jobs.past()
    assert len(past) == MOST_PROOFS
    assert past == sorted(past, key=lambda one: -one.started)
    assert len(past[0].claims) == MOST_CLAIMS
    assert [one.report for one in past].count(True) == MOST_REPORTS
    assert len(list((tmp_path / "artifacts" / "console").glob("proof-*.html"))) == MOST_REPORTS
    size = (tmp_path / "artifacts" / "console" / PAST).stat().st_size
    assert size < 3e6


def test_a_line_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    jobs = MadeUpJobs(tmp_path)
    jobs.document = samples.proof(samples.flow())
    run(jobs)
    path = tmp_path / "artifacts" / "console" / PAST
    path.write_text(f'{{"id": "of another version"}}\nno JSON\n{path.read_text()}')
    assert [one.verdict for one in jobs.past()] == ["proved"]


def test_the_page_and_the_api_have_the_past(tmp_path: Path) -> None:
    folder = tmp_path / "artifacts" / "console"
    folder.mkdir(parents=True)
    claims = [{"id": "copy:1", "says": f"a copy {HOSTILE}", "verdict": "proved"}]
    proofs = [
        PastProof.model_validate({"id": str(number), "started": 1.7e9 + number, "seconds": 12.0, "verdict": "proved",
                                  "explanation": "", "claims": claims, "report": False})
        for number in range(3)
    ]  # fmt: skip
    (folder / PAST).write_text("".join(f"{one.model_dump_json()}\n" for one in proofs))
    (folder / "proof-1.html").write_text("<p>the second report</p>")
    with running(settings(*REGIONS, lab_home=tmp_path)) as found:
        browser = found.browser()
        reported = browser.get("/api/proof/history").json()["proofs"]
        assert [(one["id"], one["report"]) for one in reported] == [("0", False), ("1", True), ("2", False)]
        page = browser.get("/proof").text
        assert "1 of 1 proved" in page
        assert 'href="/proof/report?of=1"' in page
        assert 'href="/proof/report?of=2"' not in page
        assert "<script>document" not in page
        assert "the second report" in browser.get("/proof/report?of=1").text
        assert "no longer kept" in browser.get("/proof/report?of=2").text
        assert browser.get("/proof/report?of=../../etc/passwd").status_code == 422
