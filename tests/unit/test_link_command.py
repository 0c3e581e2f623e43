"""``./lab link``: what it takes, what it refuses, and what it shows of a real relay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from loosehanger.cli import links
from loosehanger.cli.command_line import COMMANDS
from loosehanger.errors import WrongUseError
from loosehanger.lab.link_settings import OneWay, parse_rate, parse_time, rate_text, size_text, time_text
from loosehanger.lab.record import Lab, Region

from .test_relay import MB, Link, Server, echo, is_reset, received

BOTH = ("europe", "north-america")


@pytest.mark.parametrize(
    ("text", "seconds"), [("80ms", 0.08), ("0.5s", 0.5), ("0ms", 0), ("1.5 ms", 0.0015), ("10s", 10)]
)
def test_times(text: str, seconds: float) -> None:
    assert parse_time(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "rate"), [("20MB/s", 20 * MB), ("100Mbit/s", 12.5 * MB), ("10kB/s", 10_000), ("unlimited", 0)]
)
def test_rates(text: str, rate: float) -> None:
    assert parse_rate(text) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["europe"], "name the two regions"),
        (["europe", "europe"], "europe has no link to itself"),
        (["a", "b", "c"], "name the two regions"),
        (["--delay", "80ms"], "name the two regions of the link"),
        ([*BOTH, "--delay", "80"], "'80' has no unit"),
        ([*BOTH, "--delay", "80 minutes"], "'80 minutes' is not a time"),
        ([*BOTH, "--delay", "fast"], "'fast' is not a time"),
        ([*BOTH, "--delay=-80ms"], "'-80ms' is negative"),
        ([*BOTH, "--delay", "-80ms"], "is negative; write a time"),
        ([*BOTH, "--delay", "11s"], "more than 10 s"),
        ([*BOTH, "--rate", "20"], "'20' has no unit"),
        ([*BOTH, "--rate", "20mb/s"], "'20mb/s' is not a rate"),
        ([*BOTH, "--rate=-1MB/s"], "is negative"),
        ([*BOTH, "--rate", "0MB/s"], "not between 10 kB/s and 10 GB/s; to stop everything, cut"),
        ([*BOTH, "--rate", "11GB/s"], "not between"),
        ([*BOTH, "--one-way"], "needs a change"),
        ([*BOTH, "--one-way", "--outbound-only"], "--one-way needs a change"),
        (["--outbound-only"], "name the two regions of the link to change"),
        ([*BOTH, "--cut", "--heal"], "not allowed with argument"),
        ([*BOTH, "--cut", "--one-way"], "--silent --one-way"),
        ([*BOTH, "--slow"], "unrecognized arguments"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(words: list[str], reason: str) -> None:
    with pytest.raises(WrongUseError) as error:
        COMMANDS["link"].parse(words)
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


def test_settings_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(WrongUseError, match="jitter of 5 ms is more than the delay of 1 ms"):
        OneWay(delay=0.001).with_(jitter=0.005)
    with pytest.raises(WrongUseError, match="on the way; a link holds 256 MiB at most"):
        OneWay(delay=10).with_(rate=1e9)
    assert OneWay(delay=0.1, rate=MB).with_(silent=True, rate=None) == OneWay(0.1, 0, MB, silent=True)


def test_values_for_people() -> None:
    assert [time_text(0.08), time_text(1.5), time_text(0)] == ["80 ms", "1.5 s", "0 ms"]
    assert [rate_text(20 * MB), rate_text(12_500), rate_text(2e9), rate_text(0)] == [
        "20 MB/s",
        "12.5 kB/s",
        "2 GB/s",
        "unlimited",
    ]
    assert [size_text(7), size_text(12_345), size_text(3 * MB), size_text(4e9)] == [
        "7 B",
        "12.3 kB",
        "3.0 MB",
        "4.0 GB",
    ]


def lab(platform: str = "local") -> Lab:
    """A lab of two regions."""
    regions = {name: Region(name, name, {}, {}, ()) for name in (*BOTH, "south-america")}
    return Lab("03-broadcast", platform, "inventories/local", regions)


def run(*words: str, platform: str = "local") -> int:
    """Runs the command."""
    return links.run(lab(platform), COMMANDS["link"].parse(words))


@pytest.fixture
def link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Link]:
    """A relay between Europe and North America, where a lab has it."""
    monkeypatch.setenv("LAB_HOME", str(tmp_path))
    folder = tmp_path / "regions" / "europe" / "links" / "north-america"
    folder.mkdir(parents=True)
    server = Server(echo)
    link = Link(folder, server.port, between=BOTH)
    try:
        yield link
    finally:
        link.close()
        server.close()


def test_a_link_is_changed_and_shown(link: Link, capsys: pytest.CaptureFixture[str]) -> None:
    with link.connect() as client:
        client.sendall(bytes(100_000))
        received(client, 100_000)
    assert run(*reversed(BOTH), "--delay", "80ms", "--jitter", "5ms", "--one-way") == 0
    assert run(*BOTH, "--rate", "20MB/s", "--silent", "--one-way") == 0
    capsys.readouterr()
    assert run() == 0
    shown = capsys.readouterr().out
    assert "europe and north-america: silent to north-america" in shown
    assert "europe -> north-america: no delay, 20 MB/s, silent; 100.0 kB\n" in shown
    assert "north-america -> europe: 80 ms ± 5 ms, any rate; 100.0 kB\n" in shown
    assert run(*BOTH, "--json") == 0
    (reported,) = json.loads(capsys.readouterr().out)["links"]
    assert (reported["between"], reported["state"]) == (list(BOTH), "silent to north-america")
    assert [way["bytes"] for way in reported["directions"]] == [100_000, 100_000]
    assert run(*BOTH, "--heal") == 0
    assert run(*BOTH, "--rate", "unlimited") == 0
    assert run(*BOTH, "--cut") == 0
    capsys.readouterr()
    assert run() == 0
    assert "europe and north-america: cut" in capsys.readouterr().out


def test_a_firewall_is_put_up_shown_and_taken_away(link: Link, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("north-america", "europe", "--outbound-only", "--delay", "1ms") == 0
    is_reset(link)
    capsys.readouterr()
    assert run() == 0
    shown = capsys.readouterr().out
    assert "europe and north-america: open" in shown
    assert "\n  north-america lets no connection in: 0 came from europe, 1 refused\n" in shown
    assert [way["delay"] for way in link.reported()["directions"]] == [0.001, 0.001]
    assert run("north-america", "europe", "--heal") == 0
    assert [way["refuses"] for way in link.reported()["directions"]] == [True, False]
    assert run("north-america", "europe", "--no-outbound-only") == 0
    with link.connect() as client:
        client.sendall(b"x")
        assert received(client, 1) == b"x"


def test_a_change_that_does_not_fit_changes_nothing(link: Link) -> None:
    run(*BOTH, "--delay", "10ms")
    with pytest.raises(WrongUseError, match="jitter"):
        run(*BOTH, "--jitter", "20ms", "--silent")
    assert [(way["jitter"], way["silent"]) for way in link.reported()["directions"]] == [(0, False)] * 2


@pytest.mark.usefixtures("link")
def test_links_that_are_not_there() -> None:
    with pytest.raises(WrongUseError, match="unknown region 'asia'; the regions are: europe, north-america"):
        run("europe", "asia", "--cut")
    with pytest.raises(
        WrongUseError, match="has no link between europe and south-america; its links are: europe and north-am"
    ):
        run("europe", "south-america", "--cut")


@pytest.mark.parametrize("platform", ["strimzi", "eventstreams"])
def test_elsewhere_links_are_the_clusters_business(platform: str) -> None:
    with pytest.raises(WrongUseError, match=f"on {platform} the cluster provides the links between regions"):
        run(*BOTH, "--cut", platform=platform)
