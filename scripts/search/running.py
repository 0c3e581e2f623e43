"""Runs a schedule on a lab, and compares what is seen with what was predicted."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from loosehanger.errors import ExitCode, LabError
from loosehanger.faults.fault import Fault
from loosehanger.waiting import wait_for
from scripts.sandbox import Kit
from scripts.search.accounts import Accountant, Acknowledged
from scripts.search.effects import At, is_near, stops_copying
from scripts.search.prediction import ANY, INCONCLUSIVE, PROVED, Expected, cause_findings, predict
from scripts.search.quick import QuickKit
from scripts.search.schedules import Placed, Schedule, placed_faults

HEALTHY_S = 150.0
"""Seconds after healing within which the lab must be healthy."""
NOTICED_S = 45.0
"""Seconds by which a cause may be named later than the catalogue says: other faults and other work slow everything."""
UNDECIDED_S, DECIDED_S, HEALED_S = 4, 60, 150
"""Seconds that the proof waits for a mirror: where it may be inconclusive, where it must decide, and after healing."""
COMMAND_S = 300.0
"""Seconds after which a command counts as hung."""
_TAIL = 40
"""Lines of each log that a finding keeps."""


@dataclass(frozen=True)
class Sabotage:
    """Undeclared damage, which the search must find."""

    hidden: Placed | None = None
    """A fault that the prediction does not know."""
    stays: bool = False
    """Whether it is not healed with the others."""
    spoil: Callable[[Kit, Acknowledged], None] | None = None
    """Called after healing, with the records that are counted."""


NO_SABOTAGE = Sabotage()


@dataclass(frozen=True)
class SearchFinding:
    """Something that was seen against the prediction."""

    oracle: str
    """``command``, ``cause``, ``proof``, ``recovery`` or ``records``."""
    expected: str
    seen: str


@dataclass
class ScheduleOutcome:
    """What was seen of a schedule."""

    schedule: Schedule
    findings: list[SearchFinding] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    """What was done, and when: seconds since the schedule's beginning."""
    refused: list[str] = field(default_factory=list)
    """Faults that could not be injected beside the others."""
    verdicts: dict[str, str] = field(default_factory=dict)
    records: int = 0
    """Acknowledged records that were looked for in copies."""
    healthy_s: float | None = None
    """Seconds from healing to a healthy lab."""
    seconds: float = 0
    logs: dict[str, list[str]] = field(default_factory=dict)
    proofs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The documents of proofs that were not as predicted."""

    @property
    def oracles(self) -> frozenset[str]:
        """The oracles that found something."""
        return frozenset(finding.oracle for finding in self.findings)

    def summary(self) -> dict[str, Any]:
        """Returns the schedule's line of the results."""
        return {
            "number": self.schedule.number,
            "scenario": self.schedule.scenario,
            "faults": [placed.fault for placed in self.schedule.faults],
            "refused": self.refused,
            "verdicts": self.verdicts,
            "records": self.records,
            "healthy_s": self.healthy_s,
            "seconds": round(self.seconds),
            "findings": [vars(finding) for finding in self.findings],
        }

    def document(self) -> dict[str, Any]:
        """Returns all that is known, for a finding's file."""
        known = {"events": self.events, "proofs": self.proofs, "logs": self.logs}
        return {"schedule": self.schedule.model_dump(), **self.summary(), **known}


class ScheduleRun:
    """One run of a schedule.

    Args:
        kit: a kit whose lab is set up.
        schedule: the schedule.
        catalogue: every fault by its name.
        accountant: counts the acknowledged records; None where no producer keeps a ledger.
        sabotage: damage that is not declared.
        healthy_s: seconds after healing within which the lab must be healthy.
        decided_s: seconds for which a proof that must decide waits for a mirror.
    """

    def __init__(
        self,
        kit: Kit,
        schedule: Schedule,
        catalogue: dict[str, Fault],
        accountant: Accountant | None = None,
        sabotage: Sabotage = NO_SABOTAGE,
        healthy_s: float = HEALTHY_S,
        decided_s: float = DECIDED_S,
    ) -> None:
        self._kit, self._catalogue, self._accountant, self._sabotage = kit, catalogue, accountant, sabotage
        self._healthy_s, self._decided_s = healthy_s, decided_s
        self._lab = kit.lab
        self._faults = placed_faults(schedule, self._lab, catalogue)
        self._began = time.monotonic()
        self._problems: list[dict[str, str]] = []
        self._text: list[str] = []
        self._partial = False
        self.outcome = ScheduleOutcome(schedule)

    def run(self) -> ScheduleOutcome:
        """Runs the schedule; returns what was seen. By then every fault is healed, unless healing itself failed."""
        try:
            self._run()
        except (LabError, subprocess.TimeoutExpired) as error:
            self._find("command", "commands that end", f"{type(error).__name__}: {error}")
            # Faults that are still present must not disturb the next schedule.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._command("fault", "heal")
        self.outcome.seconds = time.monotonic() - self._began
        if self.outcome.findings:
            self.outcome.logs = tails(self._kit.home)
        return self.outcome

    def _run(self) -> None:
        wait_for(self._unhealthy, self._healthy_s, "a healthy lab before the schedule")
        self._problems.clear()
        self._text.clear()
        there = self._inject()
        expected = predict(there, self._lab.mirrors, self._catalogue.values())
        if self._sabotage.hidden:
            self._command("fault", "inject", *self._sabotage.hidden.arguments)
        self._look_for_causes(there, expected)
        self._prove("during", ANY if self._partial else expected.during)
        if expected.heals_itself and not self._partial:
            self._await_health("health without healing")
        self._heal(there)
        if not self._await_health("health after healing"):
            return
        wanted = self._accountant.acknowledged() if self._accountant else {}
        if self._sabotage.spoil:
            self._sabotage.spoil(self._kit, wanted)
        proved = self._prove("after", expected.after)
        if self._accountant:
            self._count(self._accountant, wanted, proved)

    def _inject(self) -> list[At]:
        """Injects the faults; returns those that were injected."""
        there: list[At] = []
        for placed, at in zip(self.outcome.schedule.faults, self._faults, strict=True):
            self._pause(placed.pause)
            done = self._command("fault", "inject", *placed.arguments)
            hidden = any(stops_copying(other[0]) and is_near(at, other, self._lab.mirrors) for other in there)
            if done.returncode != ExitCode.DONE and not hidden:
                self._find("command", f"{placed.fault} is injected", _said(done))
            if done.returncode == ExitCode.DONE:
                there.append(at)
            else:
                self.outcome.refused.append(placed.fault)
                self._partial |= done.returncode != ExitCode.WRONG_USE
            if at in there and at[0].heals_itself and (notice := at[0].noticed.status):
                # It lasts only a moment, so it must be seen before the next fault.
                self._look_until(partial(self._shows, (notice.says,)), notice.within)
        return there

    def _look_for_causes(self, there: Sequence[At], expected: Expected) -> None:
        """Asks for the status until every cause is named, or the longest time of the catalogue has passed."""
        bound = max((fault.noticed.status.within for fault, _ in there if fault.noticed.status), default=0) + NOTICED_S

        def unnamed() -> str | None:
            return next((missing for words in expected.named if (missing := self._shows(words))), None)

        self._look_until(unnamed, bound)
        for wrong in cause_findings(expected, self._problems, "\n".join(self._text)):
            if self._partial and wrong.startswith("status has not"):
                continue
            self._find("cause", "status names each cause that is there, and no other", wrong)

    def _look_until(self, missing: Callable[[], str | None], bound: float) -> None:
        """Asks for the status, at least once, until nothing is missing or the bound has passed."""

        def unseen() -> str | None:
            self._look()
            return missing()

        self._until(unseen, bound)

    def _shows(self, words: Iterable[str]) -> str | None:
        seen = "\n".join(self._text).lower()
        return None if any(word.lower() in seen for word in words) else f"none of {list(words)}"

    def _until(self, condition: Callable[[], str | None], bound: float) -> bool:
        """Waits for a condition; returns whether it holds within the bound."""
        try:
            wait_for(condition, bound, "the schedule")
        except LabError:
            return False
        return True

    def _look(self) -> None:
        """Asks for the status, and keeps what it shows."""
        done = self._command("status", "--json")
        self._text.append(done.stdout + done.stderr)
        self._problems += _document(done).get("problems", ())

    def _unhealthy(self) -> str | None:
        done = self._command("status", "--json")
        shown = _shown(done)
        return None if done.returncode == ExitCode.DONE and not shown else shown or _said(done)

    def _await_health(self, what: str) -> bool:
        """Waits until the lab is healthy; returns whether it is within the bound."""
        began = time.monotonic()
        try:
            wait_for(self._unhealthy, self._healthy_s, what)
        except LabError as error:
            self._find("recovery", f"{what} within {self._healthy_s:.0f} s", str(error))
            return False
        self.outcome.healthy_s = round(time.monotonic() - began, 1)
        return True

    def _prove(self, when: str, allowed: frozenset[str]) -> str:
        """Runs a proof; returns its verdict. If that was not predicted, a proof with a new session is run again."""
        undecided = UNDECIDED_S if INCONCLUSIVE in allowed else self._decided_s
        words = ("prove", "--json", "--timeout", str(int(HEALED_S if when == "after" else undecided)))
        done = self._command(*words)
        quick = self._kit if isinstance(self._kit, QuickKit) and self._sabotage is NO_SABOTAGE else None
        if quick and _verdict(done) not in allowed:
            done = self._command(*words, kit=quick.slow)
        document, verdict = _document(done), _verdict(done)
        self.outcome.verdicts[when] = verdict
        if verdict not in allowed:
            reasons = "; ".join(document.get("reasons", ())) or _said(done)
            self.outcome.proofs[when] = document
            self._find("proof", f"{when}: {' or '.join(sorted(allowed))}", f"{verdict}: {reasons}")
        return verdict

    def _heal(self, there: Sequence[At]) -> None:
        names = [fault.name for fault, _ in reversed(there)]
        if self.outcome.schedule.heal == "all" and not self._sabotage.stays:
            names = [""]
        for name in names:
            done = self._command("fault", "heal", *([name] if name else []))
            if done.returncode:
                self._find("recovery", f"{name or 'every fault'} is healed", _said(done))
        if self._partial or (self._sabotage.hidden and not self._sabotage.stays):
            self._command("fault", "heal")

    def _count(self, accountant: Accountant, wanted: Any, verdict: str) -> None:
        for account in accountant.counts(wanted):
            self.outcome.records += account.acknowledged
            if not account.is_exact and verdict == PROVED:
                self._find("records", "every acknowledged record is copied once, as the proof reports", f"{account}")
            elif not account.is_exact:
                self._find("records", "every acknowledged record is copied once", f"{verdict}, {account}")

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        self._until(lambda: None if time.monotonic() >= until else "not yet", seconds + 1)

    def _command(self, *arguments: str, kit: Kit | None = None) -> subprocess.CompletedProcess[str]:
        began = time.monotonic()
        done = (kit or self._kit).run(arguments[0], *arguments[1:], timeout=COMMAND_S)
        at, took, command = began - self._began, time.monotonic() - began, " ".join(arguments)
        said = _shown(done) if arguments[0] == "status" else _said(done)
        # Printed at once: a search that is stopped midway must show where it was.
        shown = f" {said.splitlines()[-1][:300]}" if arguments[0] in ("status", "prove") and said else ""
        print(f"  {at:6.1f} s  {command} ({took:.1f} s): {done.returncode}{shown}", file=sys.stderr, flush=True)
        self.outcome.events.append(
            {"at": round(at, 1), "took": round(took, 1), "command": command, "code": done.returncode, "said": said}
        )
        return done

    def _find(self, oracle: str, expected: str, seen: str) -> None:
        self.outcome.findings.append(SearchFinding(oracle, expected, seen[:2000]))


def _document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Returns the document that a command printed; empty if it printed none."""
    return dict(json.loads(done.stdout)) if done.stdout else {}


def _verdict(done: subprocess.CompletedProcess[str]) -> str:
    return str(_document(done).get("verdict", f"exit code {done.returncode}"))


def _shown(done: subprocess.CompletedProcess[str]) -> str:
    """Returns the problems that a status named, as one line."""
    return "; ".join(f"{one['cause']} ({one['where']})" for one in _document(done).get("problems", ()))


def _said(done: subprocess.CompletedProcess[str]) -> str:
    """Returns the end of what a command printed: its errors, or else its output."""
    return (done.stderr.strip() or done.stdout.strip())[-600:]


def tails(home: Path) -> dict[str, list[str]]:
    """Returns the last lines of every log of a lab's regions."""
    found = {}
    for path in sorted((home / "regions").glob("*/logs/**/*.log")):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        found[str(path.relative_to(home))] = lines[-_TAIL:]
    return found
