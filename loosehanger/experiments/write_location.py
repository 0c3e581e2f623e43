"""``write-where``: a producer writes to its own region, which is mirrored, or across the ocean; then the link falls
silent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from loosehanger.experiments.clients import ClientProcess, access
from loosehanger.experiments.measures import Spread, milliseconds
from loosehanger.experiments.progress import SweepProgress
from loosehanger.experiments.site import Site
from loosehanger.lab.link_settings import time_text
from loosehanger.quantiles import quantile

HOME, ABROAD = "at home", "across"
_SERIES = {"unit": "milliseconds", "series": [HOME, ABROAD]}
RATE, SIZE, SECONDS = 50, 1000, 4
"""Records a second, bytes of a record, and seconds of a step."""
BEFORE_CUT_S, AFTER_CUT_S, CUT_DELAY = 3, 4, 0.04
STEP_S, BEFORE_S, BOUND_S = 10, 20, 150
RESULTS = 2
"""Results of each step: one for each producer."""
FULL, QUICK = ((0.0, 0.04, 0.12), 30.0), ((0.0, 0.04), 10.0)
"""Delays, and seconds of silence."""
Step = tuple[int, float, float]
"""Round, delay, and the seconds for which the link is silent."""


def sweep(rounds: int, *, quick: bool) -> list[Step]:
    """Every step; in each one, both producers write at the same time."""
    delays, cut = QUICK if quick else FULL
    return [
        step
        for number in range(rounds)
        for step in (*((number, delay, 0.0) for delay in delays), (number, CUT_DELAY, cut))
    ]


@dataclass(frozen=True)
class WriteStep:
    """One producer in one step."""

    round: int
    delay: float
    cut: float
    """Seconds of silence; 0 for none."""
    mode: str
    records: int
    """Records sent while the link was silent; all records where it was not."""
    p50_ms: float
    """Their time from sending to the acknowledgement. A record without one counts as the longest."""
    p99_ms: float
    most_ms: float
    unacknowledged: int
    late_s: float
    """Seconds from the healing to their last acknowledgement; 0 where that came before."""
    copy_ms: float | None
    """The longest time from sending to the copy, of all records of the step; None where there is no copy."""


def run(site: Site, steps: Iterable[Step], progress: SweepProgress) -> Generator[WriteStep, None, None]:
    """Measures, and yields each result.

    Raises:
        LabError: a cluster, a mirror or the link does not answer, or records do not arrive.
    """
    home = access(site.at_home(site.mirror.source))
    ways = {HOME: (home, site.mirrored), ABROAD: (access(site.abroad), site.direct)}
    copies = {"access": access(site.at_home(site.mirror.target)), "topic": site.copy, "consumers": 1}
    with ClientProcess() as at_home, ClientProcess() as across, ClientProcess() as reader:
        writers = {HOME: at_home, ABROAD: across}
        for mode, (way, topic) in ways.items():
            writers[mode].ask("open_writer", access=way, topic=topic, name=mode)
        reader.ask("open_readers", **copies, beginning=True)
        reader.send("read", records=1, mark="first", bound=BOUND_S)
        reader.answer(BOUND_S + 10)
        for number, delay, cut in steps:
            progress.step(f"{time_text(delay)} one way{f', silent for {cut:.0f} s' if cut else ''}")
            site.link({"delay": delay, "jitter": 0, "rate": 0})
            mark = f"{number}-{delay}-{cut}"
            records = round(RATE * (BEFORE_CUT_S + cut + AFTER_CUT_S if cut else SECONDS))
            reader.send("read", records=records, mark=mark, bound=BOUND_S)
            for mode, (_, topic) in ways.items():
                writers[mode].send(
                    "write", name=mode, topic=topic, mark=mark, records=records, rate=RATE, size=SIZE, bound=BOUND_S
                )  # fmt: skip
            silence = _silence(site, cut) if cut else None
            written = {mode: writer.answer(BOUND_S + cut + 30) for mode, writer in writers.items()}
            arrived = reader.answer(BOUND_S + 10)
            for mode, times in written.items():
                longest = max(arrived["latencies"]) if mode == HOME else None
                yield judged((number, delay, cut), mode, times, silence, longest)


def _silence(site: Site, seconds: float) -> tuple[float, float]:
    """Makes the link silent for a time; returns when that began and ended."""
    measured = threading.Event()  # It is never set: the measurement is over a time.
    measured.wait(BEFORE_CUT_S)
    site.link(action="silent")
    began = time.time()
    measured.wait(seconds)
    site.link(action="heal")
    return began, time.time()


def judged(
    step: Step, mode: str, times: dict[str, Any], silence: tuple[float, float] | None, longest_copy: float | None
) -> WriteStep:
    """The result of a step for one producer.

    Args:
        step: the step.
        mode: the producer's place.
        times: ``sent``, the time of each record, and ``acknowledged``, its milliseconds or None.
        silence: beginning and end of the link's silence; None where it was not silent.
        longest_copy: the longest time to the copy.
    """
    pairs = [
        (sent, ack)
        for sent, ack in zip(times["sent"], times["acknowledged"], strict=True)
        if silence is None or silence[0] <= sent < silence[1]
    ]
    acks = [ack for _, ack in pairs if ack is not None]
    most = max(acks, default=0.0)
    counted = [most if ack is None else ack for _, ack in pairs]
    last = max((sent + ack / 1000 for sent, ack in pairs if ack is not None), default=0.0)
    return WriteStep(
        *step,
        mode=mode,
        records=len(pairs),
        p50_ms=quantile(counted, 0.5),
        p99_ms=quantile(counted, 0.99),
        most_ms=most,
        unacknowledged=len(pairs) - len(acks),
        late_s=max(0.0, last - silence[1]) if silence else 0.0,
        copy_ms=longest_copy,
    )


def result(writings: Sequence[WriteStep], source: str, target: str) -> dict[str, Any]:
    """The finding in a sentence, tables and charts, and every step."""
    (cut,) = {writing.cut for writing in writings if writing.cut}
    finding, table, chart = _open_link(writings, source, target)
    clause, table_of_cut, chart_of_cut = _silent_link(writings, cut)
    return {
        "finding": f"{finding}; {clause}.",
        "tables": [table, table_of_cut],
        "charts": [chart, chart_of_cut],
        "notes": [
            f"Each step: {RATE} records a second of {SIZE:,} bytes from each producer, acknowledged by all replicas; "
            "both write at the same time, from a process of their own.",
            "The producers are kafka-python's, idempotent, with its time-outs: a request that has no answer for 30 s "
            "is sent again on a new connection. Other clients' times after a cut differ.",
            "The oldest copy is the longest time from sending to the arrival of the copy, of what was written at home.",
        ],
        "steps": [asdict(writing) for writing in writings],
    }


def _open_link(writings: Sequence[WriteStep], source: str, target: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The sentence, the table and the chart of the steps without silence, by delay."""
    delays = sorted({writing.delay for writing in writings if not writing.cut})

    def spread(value: Callable[[WriteStep], float], mode: str, delay: float) -> Spread:
        return Spread.of(value(w) for w in writings if (w.mode, w.delay, w.cut) == (mode, delay, 0))

    def p50(mode: str, delay: float) -> Spread:
        return spread(lambda w: w.p50_ms, mode, delay)

    near, far = delays[0], delays[-1]
    finding = (
        f"A producer that writes at home in {source} has half of its acknowledgements within "
        f"{p50(HOME, far).text(milliseconds)} at {time_text(far)}, one that writes there from {target} within "
        f"{p50(ABROAD, far).text(milliseconds)}, and at {time_text(near)} within "
        f"{p50(ABROAD, near).text(milliseconds)}"
    )
    rows = [
        [
            time_text(delay),
            mode,
            p50(mode, delay).text(milliseconds),
            spread(lambda w: w.p99_ms, mode, delay).text(milliseconds),
        ]
        for delay in delays
        for mode in (HOME, ABROAD)
    ]
    groups = {time_text(delay): [round(p50(mode, delay).median, 1) for mode in (HOME, ABROAD)] for delay in delays}
    return (
        finding,
        {"title": "From sending to the acknowledgement", "head": ["delay", "writes", "p50", "p99"], "rows": rows},
        {"title": "Acknowledgement (p50), by delay", **_SERIES, "groups": groups},
    )


def _silent_link(writings: Sequence[WriteStep], cut: float) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The clause, the table and the chart of the steps in which the link was silent."""

    def spread(value: Callable[[WriteStep], float], mode: str) -> Spread:
        return Spread.of(value(w) for w in writings if w.mode == mode and w.cut)

    def most(mode: str) -> Spread:
        return spread(lambda w: w.most_ms, mode)

    copied = Spread.of(w.copy_ms for w in writings if w.cut and w.copy_ms is not None)
    clause = (
        f"while the link was silent for {cut:.0f} s the first waited "
        f"{most(HOME).text(milliseconds)} at most and its copies came up to {copied.text(milliseconds)} "
        f"late, the other waited up to {most(ABROAD).text(milliseconds)}"
    )
    rows = [
        [
            mode,
            spread(lambda w: w.p50_ms, mode).text(milliseconds),
            most(mode).text(milliseconds),
            spread(lambda w: w.unacknowledged, mode).text(lambda n: f"{n:.0f}"),
            spread(lambda w: w.late_s, mode).text(lambda s: f"{s:.1f} s"),
            copied.text(milliseconds) if mode == HOME else "–",
        ]
        for mode in (HOME, ABROAD)
    ]
    waits = {f"silent for {cut:.0f} s": [round(most(mode).median, 1) for mode in (HOME, ABROAD)]}
    return (
        clause,
        {
            "title": f"What is sent while the link is silent for {cut:.0f} s, at {time_text(CUT_DELAY)}",
            "head": ["writes", "p50", "longest wait", "never acknowledged", "last, after healing", "oldest copy"],
            "rows": rows,
        },
        {"title": "Longest wait for an acknowledgement", **_SERIES, "groups": waits},
    )
