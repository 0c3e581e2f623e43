"""``read-where``: consumers read across the ocean, or a local copy; then each rewinds and reads everything again."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from loosehanger.experiments.clients import NAME, ClientProcess, access
from loosehanger.experiments.measures import Spread, carried, milliseconds, times
from loosehanger.experiments.progress import SweepProgress
from loosehanger.experiments.site import Site
from loosehanger.lab.link_settings import size_text, time_text
from loosehanger.quantiles import quantile

DIRECT, MIRRORED = "direct", "mirrored"
RECORDS, RATE, SIZE = 1000, 250, 1000
"""Records of each step, records a second, and bytes of a record."""
LINK_RATE = 5e6
"""The link's rate in bytes a second: twice the need of ten consumers."""
STEP_S, BEFORE_S, BOUND_S = 7, 20, 90
RESULTS = 1
"""Results of each step."""


Step = tuple[int, float, int, str]
"""Round, delay, number of consumers, and their place."""
FULL, QUICK = ((0.0, 0.04, 0.12), (1, 2, 5, 10)), ((0.0, 0.04), (1, 2, 5))
"""Delays, and numbers of consumers."""


def sweep(rounds: int, *, quick: bool) -> list[Step]:
    """Every step; direct and mirrored alternate in which is first."""
    delays, numbers = QUICK if quick else FULL
    return [
        (number, delay, consumers, mode)
        for number in range(rounds)
        for delay in delays
        for consumers in numbers
        for mode in ((DIRECT, MIRRORED) if number % 2 == 0 else (MIRRORED, DIRECT))
    ]


@dataclass(frozen=True)
class ReadStep:
    """One step. Bytes are the link's, in both directions, with the overhead of connections."""

    round: int
    delay: float
    consumers: int
    mode: str
    seconds: float
    """From the first record to the last arrival."""
    p50_ms: float
    p99_ms: float
    readers: int
    """Bytes that the link carried for the consumers, and for the mirror."""
    mirror: int
    again_seconds: float
    again_readers: int
    again_mirror: int

    def ocean(self, idle: float) -> float:
        """Bytes that crossed for this topic.

        Args:
            idle: bytes a second that the link carries for the mirror's other topics.
        """
        return self.readers + (max(0.0, self.mirror - idle * self.seconds) if self.mode == MIRRORED else 0)

    def again_ocean(self, idle: float) -> float:
        """The same for the second reading."""
        return self.again_readers + (
            max(0.0, self.again_mirror - idle * self.again_seconds) if self.mode == MIRRORED else 0
        )

    @property
    def again_rate(self) -> float:
        """Bytes a second of the second reading, all consumers together."""
        return self.consumers * RECORDS * SIZE / self.again_seconds


def run(site: Site, steps: Iterable[Step], progress: SweepProgress) -> Generator[ReadStep, None, None]:
    """Measures, and yields each result.

    Raises:
        LabError: a cluster, a mirror or the link does not answer, or records do not arrive.
    """
    home = {region: access(site.at_home(region)) for region in (site.mirror.source, site.mirror.target)}
    abroad = access(site.abroad)
    with ClientProcess() as writer, ClientProcess() as readers:
        for name, topic in ((DIRECT, site.direct), (MIRRORED, site.mirrored)):
            writer.ask("open_writer", access=home[site.mirror.source], topic=topic, name=name)
        _wait_for_the_copy(site, readers)
        for number, delay, consumers, mode in steps:
            progress.step(f"{mode}, {consumers} consumer{'s' * (consumers > 1)}, {time_text(delay)} one way")
            site.link({"delay": delay, "jitter": 0, "rate": LINK_RATE})
            topic, way = (site.direct, abroad) if mode == DIRECT else (site.copy, home[site.mirror.target])
            before = site.link()
            readers.ask("open_readers", access=way, topic=topic, consumers=consumers)
            mark = f"{number}-{delay}-{consumers}-{mode}"
            readers.send("read", records=RECORDS, mark=mark, bound=BOUND_S)
            writer.ask(
                "write", name=mode, topic=site.direct if mode == DIRECT else site.mirrored, mark=mark,
                records=RECORDS, rate=RATE, size=SIZE, bound=BOUND_S,
            )  # fmt: skip
            live = readers.answer(BOUND_S + 10)
            between = site.link()
            readers.send("read", records=RECORDS, mark=mark, bound=BOUND_S, again=True)
            again = readers.answer(BOUND_S + 10)
            after = site.link()
            readers.ask("close_readers")
            own, own_live, own_all = (carried(link, NAME) for link in (before, between, after))
            mirror, mirror_live, mirror_all = (carried(link, site.mirror_client) for link in (before, between, after))
            yield ReadStep(
                round=number,
                delay=delay,
                consumers=consumers,
                mode=mode,
                seconds=live["seconds"],
                p50_ms=quantile(live["latencies"], 0.5),
                p99_ms=quantile(live["latencies"], 0.99),
                readers=own_live - own,
                mirror=mirror_live - mirror,
                again_seconds=again["seconds"],
                again_readers=own_all - own_live,
                again_mirror=mirror_all - mirror_live,
            )


def _wait_for_the_copy(site: Site, readers: ClientProcess) -> None:
    """Waits for the first record of the copy, which shows that the mirror copies the topic."""
    target = access(site.at_home(site.mirror.target))
    readers.ask("open_readers", access=target, topic=site.copy, consumers=1, beginning=True)
    readers.send("read", records=1, mark="first", bound=BOUND_S)
    readers.answer(BOUND_S + 10)
    readers.ask("close_readers")


def idle_rate(readings: Iterable[ReadStep]) -> float:
    """Bytes a second of the mirror without the experiment's topics, from the steps with direct reading."""
    rates = [reading.mirror / reading.seconds for reading in readings if reading.mode == DIRECT]
    return Spread.of(rates).median if rates else 0.0


def result(readings: Sequence[ReadStep], source: str, target: str) -> dict[str, Any]:
    """The finding in a sentence, tables and charts, and every step."""
    idle = idle_rate(readings)
    delays = sorted({reading.delay for reading in readings})
    numbers = sorted({reading.consumers for reading in readings})

    def spread(value: Callable[[ReadStep], float], delay: float, consumers: int, mode: str) -> Spread:
        return Spread.of(value(r) for r in readings if (r.delay, r.consumers, r.mode) == (delay, consumers, mode))

    def ocean(reading: ReadStep) -> float:
        return reading.ocean(idle)

    def again(reading: ReadStep) -> float:
        return reading.again_ocean(idle)

    rows = [
        [
            time_text(delay), str(consumers), mode,
            *(spread(value, delay, consumers, mode).text(size_text) for value in (ocean, again)),
            spread(lambda r: r.p50_ms, delay, consumers, mode).text(milliseconds),
            spread(lambda r: r.p99_ms, delay, consumers, mode).text(milliseconds),
            spread(lambda r: r.again_rate, delay, consumers, mode).text(_per_second),
        ]
        for delay in delays for consumers in numbers for mode in (DIRECT, MIRRORED)
    ]  # fmt: skip
    few, many, far = numbers[0], numbers[-1], delays[-1]

    def first_and_again(reading: ReadStep) -> float:
        return ocean(reading) + again(reading)

    direct, mirrored = (spread(first_and_again, far, many, mode) for mode in (DIRECT, MIRRORED))
    alone = spread(first_and_again, far, few, DIRECT)
    copies = spread(first_and_again, far, few, MIRRORED)
    p50 = {mode: spread(lambda r: r.p50_ms, far, many, mode).text(milliseconds) for mode in (DIRECT, MIRRORED)}
    finding = (
        f"At {time_text(far)}, to read {size_text(RECORDS * SIZE)} twice, {many} consumers had "
        f"{direct.text(size_text)} carried from {source} to {target} ({times(direct.median / alone.median)} times what "
        f"{few} had), the mirror for all of them {mirrored.text(size_text)} "
        f"({times(mirrored.median / copies.median)} times); half of the records arrived within {p50[DIRECT]} directly, "
        f"and within {p50[MIRRORED]} by the copy."
    )
    head = ["delay", "consumers", "read", "first reading", "reading again", "p50", "p99", "read again at"]
    return {
        "finding": finding,
        "tables": [{"title": "Bytes across the ocean, latency, speed", "head": head, "rows": rows}],
        "charts": _charts(lambda value, consumers, mode: spread(value, far, consumers, mode), numbers, far, idle),
        "notes": _notes(idle),
        "idle_bytes_per_second": idle,
        "steps": [asdict(r) | {"ocean_bytes": ocean(r), "again_ocean_bytes": again(r)} for r in readings],
    }  # fmt: skip


def _charts(
    spread: Callable[[Callable[[ReadStep], float], int, str], Spread], numbers: Sequence[int], far: float, idle: float
) -> list[dict[str, Any]]:
    """A chart of each measure over the longest delay, by the number of consumers."""
    charts: list[dict[str, Any]] = []
    kinds: tuple[tuple[str, str, Callable[[ReadStep], float]], ...] = (
        (f"Bytes across the ocean, first reading, at {time_text(far)}", "bytes", lambda r: r.ocean(idle)),
        (f"Bytes across the ocean, reading again, at {time_text(far)}", "bytes", lambda r: r.again_ocean(idle)),
        (f"Time from production to consumption (p50), at {time_text(far)}", "milliseconds", lambda r: r.p50_ms),
        (f"Bytes a second that consumers read again, at {time_text(far)}", "bytes a second", lambda r: r.again_rate),
    )
    for title, unit, value in kinds:
        groups = {
            f"{consumers} consumer{'s' * (consumers > 1)}": [
                round(spread(value, consumers, mode).median, 1) for mode in (DIRECT, MIRRORED)
            ]
            for consumers in numbers
        }
        charts.append({"title": title, "unit": unit, "series": [DIRECT, MIRRORED], "groups": groups})
    return charts


def _notes(idle: float) -> list[str]:
    """What the bytes and the speeds include; ``idle`` in bytes a second."""
    return [
        f"Each step: {RECORDS:,} records of {SIZE:,} bytes, {RATE} a second; the link carries "
        f"{size_text(LINK_RATE)} a second. Bytes are the link's, in both directions, with TLS and what it "
        "takes to connect.",
        f"The mirror carries {size_text(idle)} a second for other topics, which is taken off. A topic that is "
        "read directly is not mirrored.",
        "All consumers are threads of one process: with many of them, the machine adds to latency and takes from "
        "speed, in the same way for both.",
    ]


def _per_second(rate: float) -> str:
    return f"{size_text(rate)}/s"
