"""Experiments: their arithmetic, what they say, their page, and what is refused before anything is changed."""

from __future__ import annotations

import argparse
import fcntl
import json
import random
import signal
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loosehanger.cli import completion, experiments
from loosehanger.cli.bootstrap_cli import answer
from loosehanger.cli.command_line import COMMANDS
from loosehanger.errors import LabError, NothingSetUpError, WrongUseError
from loosehanger.experiments import compress, dedicated_mirror, mirror_location, read_location, site, write_location
from loosehanger.experiments.catalogue import EXPERIMENTS
from loosehanger.experiments.client import value
from loosehanger.experiments.clients import ClientProcess
from loosehanger.experiments.compress import CompressStep
from loosehanger.experiments.measures import Spread, carried, milliseconds
from loosehanger.experiments.mirror_location import DEFAULTS, KIT, ONE_MORE, SOURCE, TARGET, MirrorStep
from loosehanger.experiments.progress import SweepProgress
from loosehanger.experiments.read_location import DIRECT, MIRRORED, ReadStep
from loosehanger.experiments.write_location import ABROAD, HOME, WriteStep, judged
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.properties import parse_properties
from loosehanger.lab.link_settings import size_text
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.record import Lab, Region
from loosehanger.platforms import registry
from loosehanger.proof.report.experiment_page import render
from loosehanger.quantiles import quantile

from .test_relay import MB, Link, Server, echo
from .test_report import Page

BOTH = ("europe", "north-america")
BOTH_WAYS = ("europe>north-america", "north-america>europe")


def test_a_quantile_is_the_least_value_that_the_share_does_not_exceed() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert [quantile(values, share) for share in (0, 0.5, 0.99, 1)] == [1, 50, 99, 100]
    assert [quantile([7.0], 0.5), quantile([1.0, 2.0, 3.0], 0.5)] == [7, 2]
    assert [quantile(values, percent / 100) for percent in range(1, 101)] == sorted(values)


def test_a_spread_is_the_median_with_the_least_and_the_most() -> None:
    assert Spread.of([3, 1, 2]) == Spread(2, 1, 3)
    assert Spread.of([4, 1]) == Spread(2.5, 1, 4)
    assert Spread.of([2e6, 1e6, 3e6]).text(size_text) == "2.0 MB (1.0 MB to 3.0 MB)"
    assert Spread.of([1.01e6, 1.02e6]).text(size_text) == "1.0 MB"
    assert [milliseconds(12.4), milliseconds(1240)] == ["12 ms", "1.2 s"]


def reported(**counts: int) -> dict[str, Any]:
    """What a relay says of clients that had as many bytes in one direction, and a tenth in the other."""
    ways = [
        {"clients": [{"client": name, "bytes": count // part} for name, count in counts.items()]} for part in (1, 10)
    ]
    return {"directions": ways}


def test_bytes_are_those_of_one_client_in_both_directions() -> None:
    assert carried(reported(experiment=1000, prove=50), "experiment") == 1100
    assert carried(reported(prove=50), "experiment") == 0


def test_what_is_left_is_told_from_the_steps_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    progress = SweepProgress("read-where", 4, 10, 20)
    assert progress.left(0) == 40
    progress.step("direct")
    progress.step("mirrored")
    assert progress.left(6) == 6
    shown = capsys.readouterr()
    assert "read-where: 4 steps, about 1.0 min" in shown.err
    assert "1 of 4   direct" in shown.err
    assert not shown.out


def readings(rounds: int = 3) -> list[ReadStep]:
    """As of a perfect world: 1 MB for each reader or mirror, 10 kB/s of the mirror's for other topics."""
    found = []
    for number, delay, consumers, mode in read_location.sweep(rounds, quick=False):
        direct = mode == DIRECT
        found.append(
            ReadStep(
                number, delay, consumers, mode,
                seconds=5, p50_ms=10 + delay * 1000, p99_ms=50,
                readers=consumers * MB if direct else 0, mirror=50_000 + (0 if direct else MB),
                again_seconds=0.5, again_readers=consumers * MB if direct else 0, again_mirror=5000,
            )
        )  # fmt: skip
    return found


def test_the_mirrors_other_traffic_is_taken_off_its_own_only() -> None:
    found = readings()
    assert read_location.idle_rate(found) == 10_000
    ocean = {(r.mode, r.consumers): (r.ocean(10_000), r.again_ocean(10_000)) for r in found}
    assert ocean[DIRECT, 10] == (10 * MB, 10 * MB)
    assert ocean[MIRRORED, 10] == ocean[MIRRORED, 1] == (MB, 0)
    # A mirror that was quieter than usual has not carried less than nothing.
    assert replace(found[1], mirror=0).ocean(10_000) == 0


def test_reading_is_told_in_a_sentence_with_its_spread() -> None:
    found = readings()
    last = next(place for place in reversed(range(len(found))) if found[place].mode == DIRECT)
    found[last] = replace(found[last], readers=2 * found[last].readers)
    result = read_location.result(found, *BOTH)
    assert result["finding"] == (
        "At 120 ms, to read 1.0 MB twice, 10 consumers had 20.0 MB (20.0 MB to 30.0 MB) carried from europe to "
        "north-america (10.0 times what 1 had), the mirror for all of them 1.0 MB (1.0 times); half of the records "
        "arrived within 130 ms directly, and within 130 ms by the copy."
    )
    (table,) = result["tables"]
    assert table["rows"][0] == ["0 ms", "1", DIRECT, "1.0 MB", "1.0 MB", "10 ms", "50 ms", "2.0 MB/s"]
    assert len(table["rows"]) == 24
    assert result["charts"][0]["groups"]["10 consumers"] == [10 * MB, MB]
    assert len(result["steps"]) == 72


def test_in_every_other_round_the_mirrored_comes_first() -> None:
    first = {step[0]: step[3] for step in reversed(read_location.sweep(2, quick=True))}
    assert first == {0: DIRECT, 1: MIRRORED}


def test_a_silence_is_judged_by_what_was_sent_in_it() -> None:
    sent = [float(second) for second in range(10)]
    answers = {"sent": sent, "acknowledged": [1.0, 1.0, 8500.0, 7500.0, None, 5500.0, 1.0, 1.0, 1.0, 1.0]}
    found = judged((0, 0.04, 4), ABROAD, answers, (1.5, 5.5), None)
    assert found == WriteStep(0, 0.04, 4, ABROAD, 4, 7500, 8500, 8500, 1, 5.0, None)
    assert judged((0, 0.04, 0), HOME, answers | {"acknowledged": [2.0] * 10}, None, 80.0) == WriteStep(
        0, 0.04, 0, HOME, 10, 2, 2, 2, 0, 0, 80
    )


def test_writing_is_told_in_a_sentence() -> None:
    writings = [
        WriteStep(
            number, delay, cut, mode, 10,
            p50_ms=5 if mode == HOME else 5 + 2000 * delay + 100 * number,
            p99_ms=9, most_ms=9 if mode == HOME else 1000 * (cut + number),
            unacknowledged=0, late_s=0, copy_ms=12_000 if mode == HOME else None,
        )
        for number, delay, cut in write_location.sweep(3, quick=True)
        for mode in (HOME, ABROAD)
    ]  # fmt: skip
    result = write_location.result(writings, *BOTH)
    assert result["finding"] == (
        "A producer that writes at home in europe has half of its acknowledgements within 5 ms at 40 ms, one that "
        "writes there from north-america within 185 ms (85 ms to 285 ms), and at 0 ms within 105 ms (5 ms to 205 ms); "
        "while the link was silent for 10 s the first waited 9 ms at most and its copies came up to 12.0 s late, the "
        "other waited up to 11.0 s (10.0 s to 12.0 s)."
    )
    assert [row[-1] for row in result["tables"][1]["rows"]] == ["12.0 s", "–"]


def test_the_steps_of_a_mirror_follow_each_other_and_single_changes_are_for_the_whole_sweep() -> None:
    steps = mirror_location.sweep(2, quick=True)
    assert [step[3] for step in steps[:4]] == [0.0, 0.08, 0.0, 0.08]
    assert len(steps) == 2 * 2 * 2 * 2
    whole = mirror_location.sweep(1, quick=False)
    assert len(whole) == 4 * 4 + 2 * len(ONE_MORE)
    assert len({step[:3] for step in whole}) == 4 + 2 * len(ONE_MORE)


def test_where_a_mirror_belongs_is_told_in_a_sentence() -> None:
    speeds = {(TARGET, KIT): 8000, (SOURCE, KIT): 1000, (TARGET, DEFAULTS): 4000, (SOURCE, DEFAULTS): 2000}
    found = [
        MirrorStep(
            number, place, settings, delay,
            p50_ms=10, p99_ms=20 + 1000 * delay,
            records_per_s=speeds.get((place, settings), 12_000 if "16 MiB" in settings else 4000) / (1 + delay),
        )
        for number, place, settings, delay in mirror_location.sweep(2, quick=False)
    ]  # fmt: skip
    result = mirror_location.result(found, *BOTH)
    assert result["finding"] == (
        "At 160 ms a mirror with the kit's settings copies 6,897 records/s from europe to north-america when it runs "
        "beside its target, and 862 beside its source; with MM2's defaults 3,448 and 1,724; at 0 ms the kit's gives "
        "8,000 and 1,000; of single changes at 80 ms, beside the target, 'fetches of 16 MiB' gives most: 3.0 times the "
        "defaults."
    )
    sweep, changes = result["tables"]
    assert sweep["rows"][0] == ["0 ms", TARGET, KIT, "8,000", "10 ms", "20 ms"]
    assert len(sweep["rows"]) == 16
    assert len(changes["rows"]) == 2 * (1 + len(ONE_MORE))
    assert len(mirror_location.result([one for one in found if one.settings in (KIT, DEFAULTS)], *BOTH)["tables"]) == 1


def test_an_own_mirror_is_as_the_manifest_sets_it_and_names_its_copies_itself(tmp_path: Path) -> None:
    ends = {}
    for number, region in enumerate(BOTH):
        file = tmp_path / f"{region}.properties"
        file.write_text(f"bootstrap.servers=10.0.0.{number}:1\nsecurity.protocol=PLAINTEXT\n", encoding="utf-8")
        ends[f"e-{number}"] = (Connection((f"127.0.0.1:{number}",)), file)
    settings = dedicated_mirror.MirrorSettings(
        {"tasks.max": 2, "x.y": True}, {"exactly.once.source.support": "enabled"}
    )
    text = dedicated_mirror.mm2_properties("t", "e-0", "e-1", ends, settings)
    found = parse_properties(text)
    assert found["clusters"] == "e-0, e-1"
    assert found["e-0.bootstrap.servers"] == "127.0.0.1:0"
    assert found["e-1.security.protocol"] == "PLAINTEXT"
    assert found["e-1.exactly.once.source.support"] == "enabled"
    assert (found["e-0->e-1.tasks.max"], found["e-0->e-1.x.y"]) == ("2", "true")
    assert (found["e-0->e-1.topics"], found["e-1->e-0.enabled"]) == ("t", "false")
    policy = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    text = dedicated_mirror.mm2_properties(
        "t", "e-0", "e-1", ends, dedicated_mirror.MirrorSettings({"replication.policy.class": policy})
    )
    assert policy not in text


def test_compression_is_told_as_a_share_of_plain() -> None:
    left = {"none": 1.0, "gzip": 0.25, "snappy": 0.5, "lz4": 0.45, "zstd": 0.2}
    found = [
        CompressStep(number, who, codec, MB, MB * (1 if who == compress.MIRROR else left[codec]), MB)
        for number, who, codec in compress.sweep(2, quick=False)
    ]
    result = compress.result(found, *BOTH)
    assert result["finding"].startswith(
        "Of 1.0 MB without compression, zstd at the producer leaves 20% to cross from europe to north-america "
        "(gzip: 25%), gzip at the topic 25%, and gzip at the mirror's own producer 100%: "
    )
    assert result["tables"][0]["rows"][0][:2] == ["none", "–"]


def test_events_are_of_the_size_and_compressible_as_events_are() -> None:
    chance = random.Random(1)  # noqa: S311 (no secret)
    events = [value(1000, chance) for _ in range(60)]
    assert {len(event) for event in events} == {1000}
    assert len(set(events)) == 60
    assert 2 < 60_000 / len(zlib.compress(b"".join(events))) < 10


@pytest.fixture
def page() -> Page:
    """Of reading, with a region's name that would be markup."""
    document = {
        "experiment": "read-where", "shows": EXPERIMENTS["read-where"].shows, "scenario": "03-broadcast",
        "mirror": "mm2-na", "source": "<b>europe", "target": "north-america", "rounds": 3, "quick": False,
        "machine": "2 cores", "at": "2026-01-01T00:00:00+00:00", "seconds": 12.3,
        **read_location.result(readings(), "<b>europe", "north-america"),
    }  # fmt: skip
    return Page(render(json.loads(json.dumps(document))))


def test_the_page_has_the_sentence_the_tables_and_the_charts(page: Page) -> None:
    assert "10 consumers had 20.0 MB carried from <b>europe to north-america" in page.text
    head, row, *rest = page.cells["Bytes across the ocean, latency, speed"]
    assert dict(zip(head, row, strict=True))["first reading"] == "1.0 MB"
    assert len(rest) == 23
    assert len(page.all("svg")) == 4
    assert "10 consumers" in page.drawn
    assert not page.open


def test_the_page_needs_nothing_but_itself(page: Page) -> None:
    assert not page.all("script")
    assert not page.all("b")
    assert all(str(link["href"]).startswith("data:") for link in page.all("link"))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["write"], "there is no experiment 'write'; did you mean 'write-where'?"),
        (["nope"], "there is no experiment 'nope'; the experiments are: read-where, mirror-where, write-where, comp"),
        (["--quick"], "name an experiment: read-where"),
        (["read-where", "--rounds", "0"], "'0' is not a number of rounds from 1 to 20"),
        (["read-where", "--rounds", "many"], "'many' is not a number of rounds"),
        (["read-where", "--source", "europe", "--target", "europe"], "europe cannot be both"),
        (["read-where", "compress"], "unrecognized arguments: compress"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(words: list[str], reason: str) -> None:
    with pytest.raises(WrongUseError) as error:
        COMMANDS["experiment"].parse(words)
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


def test_without_a_name_experiments_are_listed_without_a_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAB_HOME", str(tmp_path))
    assert answer(["experiment"], installed=False) == 0
    listed = " ".join(capsys.readouterr().out.split())
    assert all(experiment.shows in listed for experiment in EXPERIMENTS.values())
    assert answer(["experiment", "--json"], installed=False) == 0
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)["experiments"]] == list(EXPERIMENTS)
    with pytest.raises(NothingSetUpError):
        answer(["experiment", "read-where"], installed=False)


def test_a_shell_completes_experiments() -> None:
    assert [word for word, _ in completion.candidates(["experiment", ""])] == list(EXPERIMENTS)
    assert "--quick" in [word for word, _ in completion.candidates(["experiment", "read-where", "--"])]


def lab(mirrors: tuple[Mirror, ...], folder: Path, platform: str = "local") -> Lab:
    """A lab of three regions with clusters."""
    properties = folder / "admin.properties"
    properties.write_text("bootstrap.servers=127.0.0.1:1\n", encoding="utf-8")
    regions = {
        name: Region(name, name, {"admin": properties}, {}, mirrors if name == BOTH[1] else ())
        for name in (*BOTH, "south-america")
    }
    return Lab("03-broadcast", platform, "inventories/local", regions)


MIRROR = Mirror(
    "mm2-na", "europe", "northamerica", *BOTH, "identity", ".", r"LH\..*", "", "connector", region="north-america"
)  # fmt: skip


@pytest.fixture
def link(tmp_path: Path) -> Iterator[Link]:
    """A relay between Europe and North America, and the name by which the latter goes through it."""
    folder = tmp_path / "regions" / "europe" / "links" / "north-america"
    folder.mkdir(parents=True)
    services = {
        "europe-kafka-bootstrap.europe.svc:9098": {
            "here": ["127.0.0.1:1"], "elsewhere": {"north-america": ["127.0.0.1:2"]}
        }
    }  # fmt: skip
    (tmp_path / "regions" / "europe" / "services.json").write_text(json.dumps(services), encoding="utf-8")
    server = Server(echo)
    found = Link(folder, server.port, between=BOTH)
    try:
        yield found
    finally:
        found.close()
        server.close()


@pytest.mark.usefixtures("link")
def test_the_first_mirror_that_fits_is_taken_and_read_through_its_link(tmp_path: Path) -> None:
    beside_its_source = replace(MIRROR, name="far", region="europe")
    chosen = site.choose(lab((beside_its_source, MIRROR), tmp_path), tmp_path, registry.addresses_from, None, None)
    assert chosen.mirror == MIRROR
    assert chosen.abroad.bootstrap_servers == ("127.0.0.1:2",)
    assert chosen.at_home("europe").bootstrap_servers == ("127.0.0.1:1",)
    assert chosen.copy == chosen.mirrored


@pytest.mark.usefixtures("link")
@pytest.mark.parametrize(
    ("mirrors", "pair", "reason"),
    [
        ((), (None, None), "has no mirror for an experiment"),
        ((replace(MIRROR, state="stopped"),), (None, None), "has no mirror for an experiment"),
        ((replace(MIRROR, topics="ORDERS"),), (None, None), "copy topics whose names begin with LH."),
        ((replace(MIRROR, topics=".*"),), (None, None), "has no mirror for an experiment"),
        ((MIRROR,), ("europe", "south-america"), "from europe to south-america .* --source europe --target north-am"),
        ((MIRROR,), ("asia", None), "unknown region 'asia'"),
    ],
)
def test_where_no_experiment_can_happen_it_is_said(
    tmp_path: Path, mirrors: tuple[Mirror, ...], pair: tuple[str | None, str | None], reason: str
) -> None:
    with pytest.raises(WrongUseError, match=reason):
        site.choose(lab(mirrors, tmp_path), tmp_path, registry.addresses_from, *pair)


def test_a_link_that_is_cut_or_on_kubernetes_is_refused(tmp_path: Path, link: Link) -> None:
    with pytest.raises(WrongUseError, match="on strimzi the cluster provides the links between regions"):
        site.choose(lab((MIRROR,), tmp_path, "strimzi"), tmp_path, registry.addresses_from, None, None)
    link.change("silent", BOTH_WAYS)
    with pytest.raises(WrongUseError, match=r"the link is silent; run \./lab link europe north-america --heal"):
        site.choose(lab((MIRROR,), tmp_path), tmp_path, registry.addresses_from, None, None)


def test_a_links_settings_come_back_each_direction_its_own(tmp_path: Path, link: Link) -> None:
    link.change(None, BOTH_WAYS[:1], delay=0.02, jitter=0.01)
    chosen = site.choose(lab((MIRROR,), tmp_path), tmp_path, registry.addresses_from, None, None)
    before = chosen.link()
    chosen.link({"delay": 0.12, "jitter": 0, "rate": 5e6})
    chosen.link(action="silent")
    site.put_back(chosen, before)
    ways = chosen.link()["directions"]
    assert [(way["delay"], way["jitter"], way["rate"], way["silent"]) for way in ways] == [
        (0.02, 0.01, 0, False), (0, 0, 0, False),
    ]  # fmt: skip


@pytest.mark.usefixtures("link")
def test_one_experiment_at_a_time(tmp_path: Path) -> None:
    chosen = site.choose(lab((MIRROR,), tmp_path), tmp_path, registry.addresses_from, None, None)
    (tmp_path / "access").mkdir()
    with (tmp_path / "access" / "experiment.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(WrongUseError, match="another experiment is running"), site.prepared(chosen):
            pass


@pytest.mark.usefixtures("link")
@pytest.mark.parametrize(
    ("failing", "error", "reason", "whole"),
    [
        (2, LabError("a broker died"), "a broker died", 0),
        (len(compress.QUICK), LabError("a broker died"), "a broker died", 1),
        (len(compress.QUICK) + 2, KeyboardInterrupt(), "^$", 1),
        (2 * len(compress.QUICK), LabError("a broker died"), "a broker died", 2),
        (0, LabError("a broker died"), "a broker died", 0),
    ],
)
def test_what_was_measured_before_an_experiment_failed_is_kept(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failing: int,
    error: BaseException,
    reason: str,
    whole: int,
) -> None:
    """Measuring takes a lab; here it only counts, and fails between two steps, or after the last."""

    def run(_: Any, sweep: list[compress.Step], progress: SweepProgress) -> Iterator[CompressStep]:
        for step in sweep[:failing]:
            progress.step("a step")
            yield CompressStep(*step, at_source=1_000, ocean=1_000.0, at_target=1_000)
        raise error

    monkeypatch.setattr(compress, "run", run)
    monkeypatch.setattr(experiments, "prepared", lambda _: nullcontext())
    monkeypatch.setattr(experiments, "lab_home", lambda: tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    options = argparse.Namespace(
        name="compress", source=None, target=None, output=str(tmp_path), rounds=2, quick=True, json=False
    )
    with pytest.raises(type(error), match=reason):
        experiments.run(lab((MIRROR,), tmp_path), options)
    kept = tmp_path / "compress-unfinished.json"
    assert kept.exists() == bool(failing)
    assert kept.with_suffix(".html").exists() == bool(whole)
    assert not (tmp_path / "compress.json").exists()
    if failing:
        document = json.loads(kept.read_text())
        assert (document["rounds"], len(document["steps"])) == (whole, failing)
        assert ("finding" in document) == bool(whole)
        assert f"kept: {whole} of 2 rounds, {kept}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("LH.EXPERIMENT-0123abcd", True),
        ("europe.LH.EXPERIMENT-0123abcd", True),
        ("experiment-0123abcd", True),
        ("LH.EXPERIMENT-ORDERS", False),
        ("my-experiment-0123abcd", False),
        ("experiment-0123abcd-3", True),
        ("experiment-0123abcd-6.experiment-0123abcd-3", True),
        ("mm2-offsets.experiment-0123abcd-6.internal", True),
        ("experiment-0123abcd-3-4", False),
        ("experiment-0123abcd-3.internal.more", False),
        ("LH.EXPERIMENT-0123abcd.MORE", False),
    ],
)
def test_only_an_experiments_own_topics_are_deleted(name: str, own: bool) -> None:
    assert site.is_own(name) == own


def test_clients_that_fail_say_so_and_end_with_whoever_started_them() -> None:
    untrusting = {"bootstrap_servers": ["127.0.0.1:1"], "security_protocol": "SSL", "ca_file": "/nowhere/ca.crt"}
    with ClientProcess() as clients:
        with pytest.raises(LabError, match="the experiment's clients: FileNotFoundError"):
            clients.ask("open_writer", access=untrusting, topic="T", name="N")
        assert clients.ask("close_readers") == {}
        process = clients.process
    assert process.poll() is not None
    with ClientProcess() as clients, pytest.raises(LabError, match=r"the experiment's clients ended: .*no_such_thing"):
        clients.ask("no_such_thing")
