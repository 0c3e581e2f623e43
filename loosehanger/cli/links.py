"""``./lab link``: shows and changes the links between regions of the local platform."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loosehanger.errors import ExitCode, LabError, WrongUseError
from loosehanger.kafka.links import ask, link_state, relay_folders, wanted_change
from loosehanger.lab.link_settings import OneWay, rate_text, size_text, time_text
from loosehanger.lab.progress import LOCAL
from loosehanger.lab.record import Lab
from loosehanger.paths import lab_home

LinkState = Mapping[str, Any]
"""The answer of a link's relay."""


def run(lab: Lab, options: argparse.Namespace) -> int:
    """Shows the chosen links, after the changes that the command line names.

    Raises:
        WrongUseError: the platform has no links, the link does not exist, or the settings do not fit together.
        LabError: a relay does not answer.
    """
    chosen = _chosen(lab, options.regions)
    wanted = _change(options)
    links = [_ask(pair, folder, wanted) for pair, folder in chosen.items()]
    if options.json:
        print(json.dumps(_as_json(links), indent=1))
    else:
        print("\n\n".join("\n".join(_lines(link)) for link in links))
    return ExitCode.DONE


def document(lab: Lab, regions: Sequence[str]) -> dict[str, Any]:
    """Returns what ``./lab link --json`` prints of the links of this lab, or of the one between two regions.

    Raises:
        WrongUseError: the platform has no links, or the link does not exist.
        LabError: a relay does not answer.
    """
    return _as_json([_ask(pair, folder, None) for pair, folder in _chosen(lab, regions).items()])


def _chosen(lab: Lab, regions: Sequence[str]) -> dict[tuple[str, str], Path]:
    """The folders of the relays between these regions, or of all, by the regions of each."""
    if lab.platform != LOCAL:
        raise WrongUseError(
            f"on {lab.platform} the cluster provides the links between regions, not the kit; "
            "docs/links.md names tools for it"
        )
    for region in regions:
        lab.region(region)
    folders = relay_folders(lab_home())
    chosen = {pair: folder for pair, folder in folders.items() if not regions or set(pair) == set(regions)}
    if not chosen:
        known = "; ".join(" and ".join(pair) for pair in folders) or "none"
        raise WrongUseError(f"{lab.scenario} has no link between {' and '.join(regions)}; its links are: {known}")
    return chosen


def _as_json(links: Sequence[LinkState]) -> dict[str, Any]:
    return {"links": [{**link, "state": link_state(link)} for link in links]}


def _change(options: argparse.Namespace) -> dict[str, Any] | None:
    values = {name: getattr(options, name) for name in ("delay", "jitter", "rate")}
    wanted = {name: value for name, value in values.items() if value is not None}
    if not wanted and not options.action and options.outbound_only is None:
        return None
    one, other = options.regions
    return wanted_change(
        one, other, wanted, options.action, one_way=options.one_way, outbound_only=options.outbound_only
    )


def _ask(pair: tuple[str, str], folder: Path, wanted: Mapping[str, Any] | None) -> LinkState:
    try:
        return ask(folder, wanted)
    except OSError as error:
        raise LabError(
            f"the link between {' and '.join(pair)} does not answer ({error.strerror or error}); run ./lab status"
        ) from error


def _lines(link: LinkState) -> Iterator[str]:
    one, other = link["between"]
    yield f"{one} and {other}: {link_state(link)}, counting for {time.time() - link['since']:.0f} s"
    for way in link["directions"]:
        settings = OneWay(way["delay"], way["jitter"], way["rate"], way["silent"])
        yield f"  {way['from']} -> {way['to']}: {described(settings)}; {size_text(way['bytes'])}{_stuck(way)}"
        for client in way["clients"]:
            yield (
                f"    {client['client'].rpartition('/')[2] + ' in ' + client['region']:<40}"
                f"{size_text(client['bytes']):>10}   {client['open']} of {client['connections']} connections open"
            )
    for way in link["directions"]:
        if way["refuses"]:
            yield (
                f"  {way['to']} lets no connection in: {way['connections']} came from {way['from']}, "
                f"{way['turned_away']} refused"
            )


def described(settings: OneWay) -> str:
    """A direction's settings in words."""
    jitter = f" ± {time_text(settings.jitter)}" if settings.jitter else ""
    delay = f"{time_text(settings.delay)}{jitter}" if settings.delay else "no delay"
    return (
        f"{delay}, {rate_text(settings.rate) if settings.rate else 'any rate'}{', silent' if settings.silent else ''}"
    )


def _stuck(way: LinkState) -> str:
    return f", and {size_text(way['held'])} on the way" if way["held"] else ""
