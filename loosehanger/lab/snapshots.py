"""Snapshots: what a stage records of the moment it switched, beside the record, in ``access/marks/<stage>/``.

For a lost region it is the time of its death, for a stopped mirror the offsets at both ends. The proof compares with
them, and they outlive the clusters that they describe.
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
"""Offsets by topic and by partition."""


@dataclass(frozen=True)
class RegionLoss:
    """The death of a region."""

    region: str
    died_ms: int
    """When its first process was killed, in milliseconds since the epoch. If no process was running, or its end was
    not seen, when the stage killed the region."""


@dataclass(frozen=True)
class MirrorSnapshot:
    """The offsets at the moment a mirror was stopped."""

    mirror: str
    """The id of the mirror's source: its name and the source's alias. For a group whose offsets came from its ledger,
    ``by ledger`` and the group."""
    source: str
    """The region it reads."""
    target: str
    """The region that it writes."""
    cluster: str
    """The id of the target's cluster."""
    held_ms: int
    """When Connect had no more tasks of the mirror, in milliseconds since the epoch."""
    ends: Offsets
    """End offsets of each copied topic at the target."""
    positions: Offsets = field(default_factory=dict)
    """Offsets of the last source records that were copied."""
    groups: dict[str, Offsets] = field(default_factory=dict)
    """Target offsets of each group that the mirror translates."""


@dataclass(frozen=True)
class FenceSnapshot:
    """The end offsets of a region when its write fence was complete."""

    region: str
    since_ms: int
    """In milliseconds since the epoch."""
    ends: Offsets
    """End offsets of each topic with events."""


@dataclass(frozen=True)
class RegionWipe:
    """The wipe of a lost region: its data that no other region has is given up."""

    region: str
    wiped_ms: int


@dataclass(frozen=True)
class RegionEnding:
    """A region whose deletion has begun: from now on it may be deleted in part."""

    region: str
    since_ms: int
    """In milliseconds since the epoch."""


@dataclass(frozen=True)
class OffsetReset:
    """A mirror whose offsets were reset to the end of its source."""

    mirror: str
    """The id of the mirror's source, as in the snapshot of a stopped mirror."""
    positions: Offsets
    """Offsets of the last source records that it must skip."""
    archives: Offsets = field(default_factory=dict)
    """End offsets of each copy whose source topic was empty: earlier records come from a source that is gone."""
    target: str = ""
    """The region that it writes."""
    at_ms: int = 0
    """In milliseconds since the epoch."""


@dataclass(frozen=True)
class SalvageSnapshot:
    """The records of a stopped mirror's source that it had not copied."""

    mirror: str
    """The id of the mirror's source, as in the snapshot of a stopped mirror."""
    source: str
    target: str
    file: str
    """The file they were exported to, one JSON document per line."""
    records: int
    written: int
    """How many of them were written to the target, in this run or an earlier one."""


@dataclass(frozen=True)
class Snapshots:
    """All snapshots of a stage."""

    losses: tuple[RegionLoss, ...] = ()
    fences: tuple[MirrorSnapshot, ...] = ()
    write_fences: tuple[FenceSnapshot, ...] = ()
    wipes: tuple[RegionWipe, ...] = ()
    resets: tuple[OffsetReset, ...] = ()
    rescues: tuple[SalvageSnapshot, ...] = ()
    endings: tuple[RegionEnding, ...] = ()


def group_snapshot_id(group: str) -> str:
    """Returns the id, in snapshots, of a group whose offsets came from its ledger."""
    return f"by ledger/{group}"


def snapshot_id(mirror: Mirror) -> str:
    """Returns the id of a mirror's source in snapshots."""
    return f"{mirror.name}/{mirror.source_alias}"


def keep_loss(home: Path, stage: str, loss: RegionLoss) -> None:
    """Writes the death of a region."""
    write_file(_folder(home, stage) / f"loss.{loss.region}.json", json.dumps(asdict(loss), indent=1))


def is_lost(home: Path, stage: str, region: str) -> bool:
    """Whether a stage has recorded the death of a region."""
    return any(loss.region == region for loss in read_snapshots(home, stage).losses)


def has_mirror_snapshot(home: Path, stage: str, mirror: Mirror) -> bool:
    """Whether a stage has recorded the offsets at which it stopped a mirror."""
    return any(fence.mirror == snapshot_id(mirror) for fence in read_snapshots(home, stage).fences)


def is_wiped(home: Path, stage: str, region: str) -> bool:
    """Whether a stage has wiped a region."""
    return any(wipe.region == region for wipe in read_snapshots(home, stage).wipes)


def is_ending(home: Path, stage: str, region: str) -> bool:
    """Whether a stage has begun to delete a region."""
    return any(ending.region == region for ending in read_snapshots(home, stage).endings)


def is_reset(home: Path, stage: str, mirror: Mirror) -> bool:
    """Whether a stage has reset the offsets of a mirror."""
    return any(done.mirror == snapshot_id(mirror) for done in read_snapshots(home, stage).resets)


def keep_mirror_snapshot(home: Path, stage: str, fence: MirrorSnapshot) -> None:
    """Writes the offsets at which a mirror was stopped."""
    name = fence.mirror.replace("/", ".").replace(" ", "-")
    write_file(_folder(home, stage) / f"fence.{name}.json", json.dumps(asdict(fence), indent=1))


def keep_write_fence(home: Path, stage: str, fence: FenceSnapshot) -> None:
    """Writes the end offsets at which a region was fenced."""
    write_file(_folder(home, stage) / f"silence.{fence.region}.json", json.dumps(asdict(fence), indent=1))


def keep_proof(home: Path, stage: str, document: Mapping[str, Any]) -> None:
    """Writes the result of the proof that a stage ran."""
    write_file(_folder(home, stage) / _PROOF, json.dumps(document, indent=1))


def keep_wipe(home: Path, stage: str, wipe: RegionWipe) -> None:
    """Records that a region was wiped, so that the stage wipes it once."""
    write_file(_folder(home, stage) / f"wipe.{wipe.region}.json", json.dumps(asdict(wipe), indent=1))


def keep_ending(home: Path, stage: str, ending: RegionEnding) -> None:
    """Records that the deletion of a region has begun, so that it is not queried again."""
    write_file(_folder(home, stage) / f"ending.{ending.region}.json", json.dumps(asdict(ending), indent=1))


def keep_reset(home: Path, stage: str, reset: OffsetReset) -> None:
    """Records that a mirror's offsets were reset: a second reset, after producers resume, would skip records."""
    name = reset.mirror.replace("/", ".")
    write_file(_folder(home, stage) / f"rearmed.{name}.json", json.dumps(asdict(reset), indent=1))


def keep_rescue(home: Path, stage: str, rescue: SalvageSnapshot) -> None:
    """Records what was exported of a mirror's source."""
    name = rescue.mirror.replace("/", ".")
    write_file(_folder(home, stage) / f"rescue.{name}.json", json.dumps(asdict(rescue), indent=1))


def archive_snapshots(home: Path, stage: str) -> None:
    """Archives the snapshots of an earlier run of a stage."""
    folder = _folder(home, stage)
    if folder.exists():
        number = sum(1 for _ in folder.parent.glob(f"{stage}.*")) + 1
        folder.rename(folder.with_name(f"{stage}.{number}"))


def read_snapshots(home: Path, stage: str) -> Snapshots:
    """Reads the snapshots of a stage; empty if it has none."""
    losses, fences, write_fences, wipes, resets, rescues, endings = [], [], [], [], [], [], []
    for kind, content in _contents(_folder(home, stage)):
        match kind:
            case "loss":
                losses.append(RegionLoss(**content))
            case "wipe":
                wipes.append(RegionWipe(**content))
            case "ending":
                endings.append(RegionEnding(**content))
            case "rearmed":
                offsets = {name: _offsets(content.get(name, {})) for name in ("positions", "archives")}
                resets.append(OffsetReset(**{**content, **offsets}))
            case "rescue":
                rescues.append(SalvageSnapshot(**content))
            case "silence":
                write_fences.append(FenceSnapshot(**{**content, "ends": _offsets(content["ends"])}))
            case "fence":
                ends, positions = _offsets(content["ends"]), _offsets(content["positions"])
                groups = {group: _offsets(found) for group, found in content["groups"].items()}
                fences.append(MirrorSnapshot(**{**content, "ends": ends, "positions": positions, "groups": groups}))
    found = (losses, fences, write_fences, wipes, resets, rescues, endings)
    return Snapshots(*(tuple(of_kind) for of_kind in found))  # type: ignore[arg-type]


def last_wipe_ms(home: Path) -> int | None:
    """Returns when any stage last wiped a region, in milliseconds since the epoch; None for never."""
    return max((wipe.wiped_ms for one in _every(home) for wipe in one.wipes), default=None)


def last_mirror_snapshot(home: Path, mirror: Mirror) -> MirrorSnapshot | None:
    """Returns the offsets at which any stage last stopped a mirror; None if none recorded them."""
    found = [fence for one in _every(home) for fence in one.fences if fence.mirror == snapshot_id(mirror)]
    return max(found, key=lambda fence: fence.held_ms, default=None)


def archives(home: Path) -> dict[str, Offsets]:
    """Returns, for each mirror whose offsets were reset, the first target offsets that are copies of its new source.

    A target that was wiped later is left out.
    """
    every = list(_every(home))
    wipes = sorted((wipe for one in every for wipe in one.wipes), key=lambda wipe: wipe.wiped_ms)
    resets = sorted((done for one in every for done in one.resets), key=lambda done: done.at_ms)
    wiped_ms = {wipe.region: wipe.wiped_ms for wipe in wipes}
    last = {done.mirror: done for done in resets}
    return {name: done.archives for name, done in last.items() if done.at_ms > wiped_ms.get(done.target, 0)}


def snapshot_files(home: Path) -> dict[str, str]:
    """Returns the snapshot files of all stages, by their names in the folder ``access``, without results of proofs."""
    access = home / "access"
    return {
        str(path.relative_to(access)): path.read_text(encoding="utf-8")
        for path in sorted((access / "marks").glob("*/*.json"))
        if path.name != _PROOF
    }


def _every(home: Path) -> Iterator[Snapshots]:
    for folder in (home / "access" / "marks").glob("*/"):
        yield read_snapshots(home, folder.name)


def _contents(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(folder.glob("*.json")):
        yield path.name.split(".")[0], json.loads(path.read_text(encoding="utf-8"))


def _offsets(content: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {topic: {int(number): offset for number, offset in of.items()} for topic, of in content.items()}


def _folder(home: Path, stage: str) -> Path:
    return home / "access" / "marks" / stage
