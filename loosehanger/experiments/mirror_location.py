"""``mirror-where``: a mirror beside its target or its source, with the kit's settings or with MM2's defaults."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from kafka.admin import NewTopic

from loosehanger.experiments.clients import ClientProcess, access
from loosehanger.experiments.dedicated_mirror import DedicatedMirror, MirrorSettings, permitted, settings_of
from loosehanger.experiments.load_generator import SIZE, produce, write_payload
from loosehanger.experiments.measures import Spread, milliseconds, times
from loosehanger.experiments.progress import SweepProgress
from loosehanger.experiments.site import Site, administration
from loosehanger.lab.link_settings import time_text
from loosehanger.quantiles import quantile
from loosehanger.waiting import wait_for

TARGET, SOURCE = "beside its target", "beside its source"
KIT, DEFAULTS = "the kit's settings", "MM2's defaults"
_MIRRORS = tuple((place, settings) for place in (TARGET, SOURCE) for settings in (KIT, DEFAULTS))
_HEAD = ("delay", "the mirror runs", "settings", "records/s", "p50", "p99")
ONE_MORE = {
    "exactly once": MirrorSettings(
        {"exactly.once.support": "required", "source.consumer.isolation.level": "read_committed"},
        {"exactly.once.source.support": "enabled"},
    ),
    "5000 records a poll": MirrorSettings({"source.consumer.max.poll.records": 5000}),
    "batches of 320 KiB": MirrorSettings({"producer.override.batch.size": 327_680}),
    "fetches of 16 MiB": MirrorSettings({"source.consumer.max.partition.fetch.bytes": 16_777_216}),
    "fetches of 64 KiB or more": MirrorSettings({"source.consumer.fetch.min.bytes": 65_536}),
}
"""Single changes of the defaults."""
FAR = 0.08
"""The delay at which they are measured."""
DELAYS, QUICK_DELAYS = (0.0, 0.02, 0.08, 0.16), (0.0, 0.08)
RECORDS, SECONDS = 40_000, 8
"""The burst: its records, and the seconds for which arrivals are counted from the first one on."""
LIVE, RATE = 200, 50
"""Before the burst: records whose latency is measured, and their rate a second."""
STEP_S, BEFORE_S, BOUND_S = 24, 30, 150
RESULTS = 1
"""Results of each step."""
Step = tuple[int, str, str, float]
"""Round, the mirror's place, its settings, and the delay."""


def sweep(rounds: int, *, quick: bool) -> list[Step]:
    """Every step; the steps of one mirror follow each other."""
    found = []
    for number in range(rounds):
        found += [(number, *mirror, delay) for mirror in _MIRRORS for delay in (QUICK_DELAYS if quick else DELAYS)]
        if not quick:
            found += [(number, place, settings, FAR) for place in (TARGET, SOURCE) for settings in ONE_MORE]
    return found


@dataclass(frozen=True)
class MirrorStep:
    """One step."""

    round: int
    place: str
    settings: str
    delay: float
    p50_ms: float
    """From production to the arrival of the copy, of records that are sent one by one."""
    p99_ms: float
    records_per_s: float
    """Of the burst, from the first arrivals on."""


def run(site: Site, steps: Iterable[Step], progress: SweepProgress) -> Generator[MirrorStep, None, None]:
    """Measures, and yields each result.

    Raises:
        LabError: a cluster, a mirror or the link does not answer, or records do not arrive.
    """
    known = {KIT: settings_of(site), DEFAULTS: MirrorSettings(), **ONE_MORE}
    places = {TARGET: site.mirror.target, SOURCE: site.mirror.source}
    with tempfile.TemporaryDirectory(prefix="lab-") as folder, permitted(site):
        payload = write_payload(Path(folder))
        for mirror_number, (_, of_one) in enumerate(groupby(steps, key=lambda step: step[:3])):
            of_mirror = list(of_one)
            _, place, settings, _ = of_mirror[0]
            site.link({"delay": 0, "jitter": 0, "rate": 0})
            topic = f"{site.direct}-{mirror_number}"
            with administration(site, site.mirror.source) as admin:
                admin.create_topics([NewTopic(topic, 1, -1)])
            with DedicatedMirror(site, topic, mirror_number, places[place], known[settings]) as mirror:
                _wait_for_the_copy(site, mirror)
                # A warm-up, in which Java compiles the mirror's code.
                _measure(site, mirror, payload, (*of_mirror[0][:-1], 0.0))
                for step in of_mirror:
                    progress.step(f"{place}, {settings}, {time_text(step[-1])} one way")
                    yield _measure(site, mirror, payload, step)


def _wait_for_the_copy(site: Site, mirror: DedicatedMirror) -> None:
    with administration(site, site.mirror.target) as admin:

        def missing() -> str | None:
            last = mirror.said()
            return None if mirror.copy in admin.list_topics() else last or "the topic does not exist"

        wait_for(missing, BOUND_S, f"{site.mirror.target}: {mirror.copy}, which the experiment's mirror creates")


def _measure(site: Site, mirror: DedicatedMirror, payload: Path, step: Step) -> MirrorStep:
    number, place, settings, delay = step
    home, target = access(site.at_home(site.mirror.source)), access(site.at_home(site.mirror.target))
    with ClientProcess() as writer, ClientProcess() as reader:
        # The first record shows that the mirror copies the topic, and is idle afterwards.
        reader.ask("open_readers", access=target, topic=mirror.copy, consumers=1)
        reader.send("read", records=1, mark="first", bound=BOUND_S)
        writer.ask("open_writer", access=home, topic=mirror.topic, name="writer")
        reader.answer(BOUND_S + 10)
        site.link({"delay": delay, "jitter": 0, "rate": 0})
        reader.send("read", records=LIVE, mark="live", bound=BOUND_S)
        writer.ask(
            "write", name="writer", topic=mirror.topic, mark="live", records=LIVE, rate=RATE, size=SIZE, bound=BOUND_S
        )
        live = reader.answer(BOUND_S + 10)["latencies"]
        reader.send("follow", records=RECORDS, seconds=SECONDS, bound=BOUND_S)
        produce(site, mirror.topic, payload, RECORDS)
        came = reader.answer(BOUND_S + 10)
        # The rest may arrive without the delay.
        site.link({"delay": 0, "jitter": 0, "rate": 0})
        reader.send("read", records=1, mark="last", bound=BOUND_S)
        writer.ask(
            "write", name="writer", topic=mirror.topic, mark="last", records=1, rate=RATE, size=SIZE, bound=BOUND_S
        )
        reader.answer(BOUND_S + 10)
    return MirrorStep(
        number, place, settings, delay,
        p50_ms=quantile(live, 0.5),
        p99_ms=quantile(live, 0.99),
        records_per_s=came["records"] / came["seconds"],
    )  # fmt: skip


def result(found: Sequence[MirrorStep], source: str, target: str) -> dict[str, Any]:
    """The finding in a sentence, tables and charts, and every step."""
    delays = sorted({one.delay for one in found if one.settings in (KIT, DEFAULTS)})
    finding, tables, charts = _by_delay(found, delays, source, target)
    if any(one.settings in ONE_MORE for one in found):
        clause, table, chart = _single_changes(found)
        finding += clause
        tables.append(table)
        charts.append(chart)
    return {
        "finding": f"{finding}.",
        "tables": tables,
        "charts": charts,
        "notes": [
            f"Each mirror is one process of MirrorMaker 2 of the experiment's own, with one task and one topic of one "
            f"partition. Records are of {SIZE:,} bytes.",
            f"Records a second: of a burst of {RECORDS:,}, for {SECONDS} s from the first arrivals on; one before it, "
            f"which is not measured, has warmed the mirror up. p50 and p99: from production to arrival, of {RATE} "
            "records a second.",
            "The kit's settings are those of the mirror's manifest, with its transactions; MM2's defaults are at least "
            "once, without transactions.",
        ],
        "steps": [asdict(one) for one in found],
    }


def _by_delay(
    found: Sequence[MirrorStep], delays: Sequence[float], source: str, target: str
) -> tuple[str, list[dict[str, Any]], list[dict[str, Any]]]:
    """The sentence, the tables and the charts that compare both places, by delay."""
    near, far = delays[0], delays[-1]

    def rate(*step: Any) -> str:
        return _speed(found, *step).text(_rate)

    finding = (
        f"At {time_text(far)} a mirror with the kit's settings copies "
        f"{rate(TARGET, KIT, far)} records/s from {source} to {target} when it runs beside its "
        f"target, and {rate(SOURCE, KIT, far)} beside its source; with MM2's defaults "
        f"{rate(TARGET, DEFAULTS, far)} and {rate(SOURCE, DEFAULTS, far)}; "
        f"at {time_text(near)} the kit's gives {rate(TARGET, KIT, near)} and {rate(SOURCE, KIT, near)}"
    )
    table = {
        "title": f"A mirror from {source} to {target}",
        "head": list(_HEAD),
        "rows": [_row(found, *mirror, delay) for delay in delays for mirror in _MIRRORS],
    }
    chart = {
        "title": "Records a second, by delay",
        "unit": "records a second",
        "series": [f"{place}, {settings}" for place, settings in _MIRRORS],
        "groups": {
            time_text(delay): [round(_speed(found, *mirror, delay).median) for mirror in _MIRRORS] for delay in delays
        },
    }
    return finding, [table], [chart]


def _single_changes(found: Sequence[MirrorStep]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The clause, the table and the chart of single changes of the defaults."""
    kinds = (DEFAULTS, *ONE_MORE)
    table = {
        "title": f"MM2's defaults, and one change of them at a time, at {time_text(FAR)}",
        "head": list(_HEAD),
        "rows": [_row(found, place, settings, FAR) for place in (TARGET, SOURCE) for settings in kinds],
    }
    chart = {
        "title": f"Records a second with one change of the defaults, at {time_text(FAR)}",
        "unit": "records a second",
        "series": [TARGET, SOURCE],
        "groups": {
            settings: [round(_speed(found, place, settings, FAR).median) for place in (TARGET, SOURCE)]
            for settings in kinds
        },
    }
    best = max(ONE_MORE, key=lambda settings: _speed(found, TARGET, settings, FAR).median)
    ratio = _speed(found, TARGET, best, FAR).median / _speed(found, TARGET, DEFAULTS, FAR).median
    clause = (
        f"; of single changes at {time_text(FAR)}, beside the target, '{best}' gives most: "
        f"{times(ratio)} times the defaults"
    )
    return clause, table, chart


def _row(found: Sequence[MirrorStep], place: str, settings: str, delay: float) -> list[str]:
    latencies: tuple[Callable[[MirrorStep], float], ...] = (lambda one: one.p50_ms, lambda one: one.p99_ms)
    return [
        time_text(delay),
        place,
        settings,
        _speed(found, place, settings, delay).text(_rate),
        *(_spread(found, value, place, settings, delay).text(milliseconds) for value in latencies),
    ]


def _speed(found: Sequence[MirrorStep], place: str, settings: str, delay: float) -> Spread:
    return _spread(found, lambda one: one.records_per_s, place, settings, delay)


def _spread(
    found: Sequence[MirrorStep], value: Callable[[MirrorStep], float], place: str, settings: str, delay: float
) -> Spread:
    return Spread.of(value(one) for one in found if (one.place, one.settings, one.delay) == (place, settings, delay))


def _rate(value: float) -> str:
    return f"{value:,.0f}"
