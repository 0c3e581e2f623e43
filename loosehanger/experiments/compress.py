"""``compress``: which client must compress, and with which codec, so that fewer bytes cross the ocean."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from loosehanger.errors import LabError
from loosehanger.experiments.clients import ClientProcess, access
from loosehanger.experiments.load_generator import BATCH, DIFFERENT, LINGER_MS, SIZE, produce, write_payload
from loosehanger.experiments.measures import Spread, carried
from loosehanger.experiments.progress import SweepProgress
from loosehanger.experiments.site import Site, administration, stored, uninterrupted
from loosehanger.kafka.connect import ConnectClient
from loosehanger.kafka.patches import alter_topic, topic_configs
from loosehanger.lab.link_settings import size_text
from loosehanger.waiting import wait_for

PRODUCER, TOPIC, MIRROR = "producer", "topic", "mirror"
NONE = "none"
SETTING = "compression.type"
MIRROR_SETTING = f"producer.override.{SETTING}"
Step = tuple[int, str, str]
"""Round, the place of the setting, and the codec."""
FULL = (
    *((PRODUCER, codec) for codec in (NONE, "gzip", "snappy", "lz4", "zstd")),
    (TOPIC, "gzip"),
    (MIRROR, "gzip"),
)
QUICK = ((PRODUCER, NONE), (PRODUCER, "gzip"), (PRODUCER, "zstd"), (TOPIC, "gzip"), (MIRROR, "gzip"))
RECORDS = 10_000
STEP_S, BEFORE_S, BOUND_S = 10, 25, 120
RESULTS = 1
"""Results of each step."""
_IDLE_S = 5
_FOLLOW_S = 30


def sweep(rounds: int, *, quick: bool) -> list[Step]:
    """Every step."""
    return [(number, who, codec) for number in range(rounds) for who, codec in (QUICK if quick else FULL)]


@dataclass(frozen=True)
class CompressStep:
    """One step, in bytes."""

    round: int
    who: str
    codec: str
    at_source: int
    """Bytes that the source's broker stored."""
    ocean: float
    """Bytes that the mirror transferred, less its traffic at rest."""
    at_target: int
    """Bytes that the target's broker stored."""


def run(site: Site, steps: Iterable[Step], progress: SweepProgress) -> Generator[CompressStep, None, None]:
    """Measures, and yields each result.

    Raises:
        LabError: a cluster, a mirror or the link does not answer, or records do not arrive.
    """
    source, target = site.mirror.source, site.mirror.target
    # The bytes do not depend on how slow they are.
    site.link({"delay": 0, "jitter": 0, "rate": 0})
    copies = {"access": access(site.at_home(target)), "topic": site.copy, "consumers": 1}
    with (
        tempfile.TemporaryDirectory(prefix="lab-") as folder,
        ClientProcess() as reader,
        administration(site, source) as at_source,
        administration(site, target) as at_target,
        # The mirror's manifest may set a compression; the steps override it.
        _mirror(site, NONE),
    ):
        payload = write_payload(Path(folder))
        reader.ask("open_readers", **copies)
        idle = _idle_rate(site)
        for number, who, codec in steps:
            progress.step(f"{codec}, set at the {who}" if codec != NONE else "no compression")
            with _set(site, at_source, at_target, who, codec):
                sizes = stored(at_source, site.mirrored), stored(at_target, site.copy)
                before = carried(site.link(), site.mirror_client)
                reader.send("read", records=RECORDS, mark=None, bound=BOUND_S)
                produce(site, site.mirrored, payload, RECORDS, codec if who == PRODUCER else NONE)
                seconds = reader.answer(BOUND_S + 10)["seconds"]
                ocean = carried(site.link(), site.mirror_client) - before - idle * seconds
                yield CompressStep(
                    number,
                    who,
                    codec,
                    stored(at_source, site.mirrored) - sizes[0],
                    max(0.0, ocean),
                    stored(at_target, site.copy) - sizes[1],
                )


def _idle_rate(site: Site) -> float:
    """Bytes a second that the mirror transfers while the experiment writes nothing."""
    before = carried(site.link(), site.mirror_client)
    threading.Event().wait(_IDLE_S)  # The measurement is over a time.
    return (carried(site.link(), site.mirror_client) - before) / _IDLE_S


@contextlib.contextmanager
def _set(site: Site, at_source: Any, at_target: Any, who: str, codec: str) -> Iterator[None]:
    """Sets the compression of topic or mirror for a step."""
    if who == TOPIC:
        with _topic(site, at_source, at_target, codec):
            yield
    elif who == MIRROR:
        with _mirror(site, codec):
            yield
    else:
        yield


@contextlib.contextmanager
def _topic(site: Site, at_source: Any, at_target: Any, codec: str) -> Iterator[None]:
    where = f"{site.mirror.source}: {site.mirrored}"

    def change(value: str | None) -> None:
        alter_topic(at_source, site.mirrored, {SETTING: value}, where)

        def differs() -> str | None:
            # Wait until the mirror has copied the setting, so that it does not change during the measurement.
            for admin, topic in ((at_source, site.mirrored), (at_target, site.copy)):
                if set_on_topic(admin, topic) != value:
                    return f"{topic} does not have it"
            return None

        with contextlib.suppress(LabError):  # A mirror need not synchronise settings.
            wait_for(differs, _FOLLOW_S, f"{SETTING} of {site.mirrored}")

    change(codec)
    yield
    # Not after a failure, since the topic is deleted then.
    change(None)


def set_on_topic(admin: Any, topic: str) -> str | None:
    """A topic's compression override; None where it has none."""
    found, _ = topic_configs(admin, [topic], "modified")
    return cast("str | None", found.get(topic, {}).get(SETTING, {}).get("value"))


@contextlib.contextmanager
def _mirror(site: Site, codec: str) -> Iterator[None]:
    """Sets the compression of the mirror's producer in its connector's configuration, and restores that afterwards."""
    rest, connector = ConnectClient.of(site.mirror.connect), site.mirror.connector
    before = rest.connectors()[connector]["info"]["config"]
    if before.get(MIRROR_SETTING, NONE) == codec:
        yield
        return

    def configure(configuration: dict[str, str]) -> None:
        rest.configure(connector, configuration)
        wait_for(lambda: _not_running(rest, connector), BOUND_S, f"the connector {connector}")

    try:
        configure({**before, MIRROR_SETTING: codec})
        yield
    finally:
        with uninterrupted():
            configure(before)


def _not_running(rest: ConnectClient, connector: str) -> str | None:
    status = rest.status(connector)
    states = [status["connector"]["state"], *(task["state"] for task in status["tasks"])] if status else []
    return (
        None if len(states) > 1 and set(states) == {"RUNNING"} else f"its states are {', '.join(states) or 'unknown'}"
    )


_HEAD = ["compression", "set at", "stored at the source", "across the ocean", "of plain", "stored at the target"]
_NOTES = [
    f"Written at home by Kafka's ProducerPerformance in batches of {BATCH:,} bytes (linger.ms={LINGER_MS}); "
    f"{DIFFERENT:,} different events, made up.",
    "Bytes across the ocean are the link's, in both directions, with TLS, less what the mirror carries at rest.",
    "The mirror decompresses what it reads, and its own producer compresses the copy: without "
    f"{MIRROR_SETTING}, or {SETTING} on the topic, the copy is stored uncompressed.",
]


def result(found: Sequence[CompressStep], source: str, target: str) -> dict[str, Any]:
    """The finding in a sentence, tables and charts, and every step."""
    kinds = list(dict.fromkeys((one.who, one.codec) for one in found))

    def spread(value: Callable[[CompressStep], float], who: str, codec: str) -> Spread:
        return Spread.of(value(one) for one in found if (one.who, one.codec) == (who, codec))

    def ocean(one: CompressStep) -> float:
        return one.ocean

    plain = spread(ocean, PRODUCER, NONE).median

    def share(who: str, codec: str) -> str:
        return Spread.of(one.ocean / plain for one in found if (one.who, one.codec) == (who, codec)).text(
            "{:.0%}".format
        )

    rows = [
        [
            codec,
            who if codec != NONE else "–",
            *(spread(value, who, codec).text(size_text) for value in (lambda one: one.at_source, ocean)),
            share(who, codec),
            spread(lambda one: one.at_target, who, codec).text(size_text),
        ]
        for who, codec in kinds
    ]
    best = min((codec for who, codec in kinds if who == PRODUCER), key=lambda c: spread(ocean, PRODUCER, c).median)
    finding = (
        f"Of {size_text(plain)} without compression, {best} at the producer leaves {share(PRODUCER, best)} to cross "
        f"from {source} to {target} (gzip: {share(PRODUCER, 'gzip')}), gzip at the topic {share(TOPIC, 'gzip')}, and "
        f"gzip at the mirror's own producer {share(MIRROR, 'gzip')}: what the mirror fetches is what the source's "
        "broker stores, so it is the producer or the topic that has to compress."
    )
    return {
        "finding": finding,
        "tables": [
            {
                "title": f"{RECORDS:,} records of {SIZE:,} bytes",
                "head": _HEAD,
                "rows": rows,
            }
        ],
        "charts": [
            {
                "title": "Bytes across the ocean, and on disk",
                "unit": "bytes",
                "series": ["at the source", "across the ocean", "at the target"],
                "groups": {
                    f"{codec}, {who}" if codec != NONE else NONE: [
                        round(spread(value, who, codec).median)
                        for value in (lambda one: one.at_source, ocean, lambda one: one.at_target)
                    ]
                    for who, codec in kinds
                },
            }
        ],
        "notes": _NOTES,
        "steps": [asdict(one) for one in found],
    }
