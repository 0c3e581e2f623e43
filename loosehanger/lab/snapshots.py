"""Marks: what a stage has kept of the moment in which it switched, beside the record, in ``access/marks/<stage>/``.

A region that dies leaves the time of its death; a mirror that is held, how far everything was. The proof compares with
them, and they outlive the clusters that they tell of.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from loosehanger.files import write_file
from loosehanger.lab.mirrors.mirror import Mirror

_PROOF = "proof.json"
Offsets = dict[str, dict[int, int]]
"""An offset for each partition of topics."""


@dataclass(frozen=True)
class Loss:
    """A region's death."""

    region: str
    died_ms: int
    """When the first of its processes was killed, in milliseconds since the epoch; of one of which none was there, or
    whose end was not seen, when the stage came to it."""


@dataclass(frozen=True)
class Fence:
    """How far everything was when a mirror was held."""

    mirror: str
    """The id of the mirror's source: its name and the source's alias. Where no mirror was held, but a group got its
    offsets by its ledger, ``by ledger`` and the group."""
    source: str
    """The region that it reads."""
    target: str
    """The region that it writes."""
    cluster: str
    """The id of the target's cluster."""
    held_ms: int
    """When Connect had no task of the mirror any more, in milliseconds since the epoch."""
    ends: Offsets
    """Where each copied topic ended at the target: nothing before it is written any more."""
    positions: Offsets = field(default_factory=dict)
    """The offset of the last record of the source that was copied."""
    groups: dict[str, Offsets] = field(default_factory=dict)
    """The offsets at the target of each group that the mirror translates."""


@dataclass(frozen=True)
class Silence:
    """How far a region was when nobody had the right to write there any more."""

    region: str
    since_ms: int
    """In milliseconds since the epoch."""
    ends: Offsets
    """Where each topic with events ended."""


@dataclass(frozen=True)
class Wipe:
    """The end of what a dead region had: what nobody else has of it is given up."""

    region: str
    wiped_ms: int


@dataclass(frozen=True)
class Ending:
    """A region that goes: from here on it may be half gone."""

    region: str
    since_ms: int
    """In milliseconds since the epoch."""


@dataclass(frozen=True)
class Rearmed:
    """A mirror that was told where its source ends."""

    mirror: str
    """As in a fence."""
    positions: Offsets
    """The offset of the last record of the source that it shall pass over."""
    archives: Offsets = field(default_factory=dict)
    """Where each copy ended of which the source had nothing: what lies before is of a source that is no more."""
    target: str = ""
    """The region that it writes."""
    at_ms: int = 0
    """In milliseconds since the epoch."""


@dataclass(frozen=True)
class Rescue:
    """What the source of a held mirror had beyond it."""

    mirror: str
    """As in a fence."""
    source: str
    target: str
    file: str
    """Where it was exported to, a JSON document in each line."""
    records: int
    written: int
    """How many of them were written to the target, by this run or an earlier one."""


@dataclass(frozen=True)
class Marks:
    """Everything that a stage has kept."""

    losses: tuple[Loss, ...] = ()
    fences: tuple[Fence, ...] = ()
    silences: tuple[Silence, ...] = ()
    wipes: tuple[Wipe, ...] = ()
    rearmed: tuple[Rearmed, ...] = ()
    rescues: tuple[Rescue, ...] = ()
    endings: tuple[Ending, ...] = ()


def mark_of_group(group: str) -> str:
    """What a group that got its offsets by its ledger is known by in marks."""
    return f"by ledger/{group}"


def mark_of(mirror: Mirror) -> str:
    """What a mirror's source is known by in marks."""
    return f"{mirror.name}/{mirror.source_alias}"


def keep_loss(home: Path, stage: str, loss: Loss) -> None:
    """Keeps a region's death."""
    write_file(_folder(home, stage) / f"loss.{loss.region}.json", json.dumps(asdict(loss), indent=1))


def is_lost(home: Path, stage: str, region: str) -> bool:
    """Whether a stage has kept a region's death."""
    return any(loss.region == region for loss in read_marks(home, stage).losses)


def is_marked(home: Path, stage: str, mirror: Mirror) -> bool:
    """Whether a stage has kept how far everything was when it held a mirror."""
    return any(fence.mirror == mark_of(mirror) for fence in read_marks(home, stage).fences)


def is_wiped(home: Path, stage: str, region: str) -> bool:
    """Whether a stage has wiped a region."""
    return any(wipe.region == region for wipe in read_marks(home, stage).wipes)


def is_ending(home: Path, stage: str, region: str) -> bool:
    """Whether a stage has begun to delete a region."""
    return any(ending.region == region for ending in read_marks(home, stage).endings)


def is_rearmed(home: Path, stage: str, mirror: Mirror) -> bool:
    """Whether a stage has re-armed a mirror."""
    return any(done.mirror == mark_of(mirror) for done in read_marks(home, stage).rearmed)


def keep_fence(home: Path, stage: str, fence: Fence) -> None:
    """Keeps how far everything was."""
    name = fence.mirror.replace("/", ".").replace(" ", "-")
    write_file(_folder(home, stage) / f"fence.{name}.json", json.dumps(asdict(fence), indent=1))


def keep_silence(home: Path, stage: str, silence: Silence) -> None:
    """Keeps how far a region was when it was fenced."""
    write_file(_folder(home, stage) / f"silence.{silence.region}.json", json.dumps(asdict(silence), indent=1))


def keep_proof(home: Path, stage: str, document: Mapping[str, Any]) -> None:
    """Keeps what the proof found when a stage asked for it."""
    write_file(_folder(home, stage) / _PROOF, json.dumps(document, indent=1))


def keep_wipe(home: Path, stage: str, wipe: Wipe) -> None:
    """Keeps that a region was wiped, so that the stage does it once."""
    write_file(_folder(home, stage) / f"wipe.{wipe.region}.json", json.dumps(asdict(wipe), indent=1))


def keep_ending(home: Path, stage: str, ending: Ending) -> None:
    """Keeps that a region is being deleted: it cannot be asked any more."""
    write_file(_folder(home, stage) / f"ending.{ending.region}.json", json.dumps(asdict(ending), indent=1))


def keep_rearmed(home: Path, stage: str, rearmed: Rearmed) -> None:
    """Keeps that a mirror was re-armed: once more, after producers have begun to write, it would pass over records."""
    name = rearmed.mirror.replace("/", ".")
    write_file(_folder(home, stage) / f"rearmed.{name}.json", json.dumps(asdict(rearmed), indent=1))


def keep_rescue(home: Path, stage: str, rescue: Rescue) -> None:
    """Keeps what was rescued."""
    name = rescue.mirror.replace("/", ".")
    write_file(_folder(home, stage) / f"rescue.{name}.json", json.dumps(asdict(rescue), indent=1))


def put_away(home: Path, stage: str) -> None:
    """Puts away what a stage kept when it was run before: it begins anew, and keeps marks of its own."""
    folder = _folder(home, stage)
    if folder.exists():
        number = sum(1 for _ in folder.parent.glob(f"{stage}.*")) + 1
        folder.rename(folder.with_name(f"{stage}.{number}"))


def read_marks(home: Path, stage: str) -> Marks:
    """What a stage has kept; nothing where it kept nothing."""
    losses, fences, silences, wipes, rearmed, rescues, endings = [], [], [], [], [], [], []
    for kind, content in _contents(_folder(home, stage)):
        match kind:
            case "loss":
                losses.append(Loss(**content))
            case "wipe":
                wipes.append(Wipe(**content))
            case "ending":
                endings.append(Ending(**content))
            case "rearmed":
                offsets = {name: _offsets(content.get(name, {})) for name in ("positions", "archives")}
                rearmed.append(Rearmed(**{**content, **offsets}))
            case "rescue":
                rescues.append(Rescue(**content))
            case "silence":
                silences.append(Silence(**{**content, "ends": _offsets(content["ends"])}))
            case "fence":
                ends, positions = _offsets(content["ends"]), _offsets(content["positions"])
                groups = {group: _offsets(found) for group, found in content["groups"].items()}
                fences.append(Fence(**{**content, "ends": ends, "positions": positions, "groups": groups}))
    found = (losses, fences, silences, wipes, rearmed, rescues, endings)
    return Marks(*(tuple(of_kind) for of_kind in found))  # type: ignore[arg-type]


def last_wipe_ms(home: Path) -> int | None:
    """When a region was wiped last, in milliseconds since the epoch, in whatever stage; None for never."""
    return max((wipe.wiped_ms for marks in _every(home) for wipe in marks.wipes), default=None)


def last_fence(home: Path, mirror: Mirror) -> Fence | None:
    """Where everything was when a mirror was held last, in whatever stage; None where that was never kept."""
    found = [fence for marks in _every(home) for fence in marks.fences if fence.mirror == mark_of(mirror)]
    return max(found, key=lambda fence: fence.held_ms, default=None)


def archives(home: Path) -> dict[str, Offsets]:
    """Where the copies of each mirror that was re-armed begin to be its source's, as in the last ``Rearmed`` of it.

    A target that was wiped since has no such past.
    """
    every = list(_every(home))
    wipes = sorted((wipe for marks in every for wipe in marks.wipes), key=lambda wipe: wipe.wiped_ms)
    rearmed = sorted((done for marks in every for done in marks.rearmed), key=lambda done: done.at_ms)
    wiped_ms = {wipe.region: wipe.wiped_ms for wipe in wipes}
    last = {done.mirror: done for done in rearmed}
    return {name: done.archives for name, done in last.items() if done.at_ms > wiped_ms.get(done.target, 0)}


def mark_files(home: Path) -> dict[str, str]:
    """The files of all stages' marks, by their names in the folder ``access``, without what proofs found."""
    access = home / "access"
    return {
        str(path.relative_to(access)): path.read_text(encoding="utf-8")
        for path in sorted((access / "marks").glob("*/*.json"))
        if path.name != _PROOF
    }


def _every(home: Path) -> Iterator[Marks]:
    for folder in (home / "access" / "marks").glob("*/"):
        yield read_marks(home, folder.name)


def _contents(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(folder.glob("*.json")):
        yield path.name.split(".")[0], json.loads(path.read_text(encoding="utf-8"))


def _offsets(content: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {topic: {int(number): offset for number, offset in of.items()} for topic, of in content.items()}


def _folder(home: Path, stage: str) -> Path:
    return home / "access" / "marks" / stage
