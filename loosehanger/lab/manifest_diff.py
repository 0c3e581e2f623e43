"""Compares a scenario's manifests, as they are now, with what was applied of them: reads files only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from loosehanger.errors import WrongUseError
from loosehanger.lab.claims.checks import check_claims, check_writers
from loosehanger.lab.claims.claims import claims_of
from loosehanger.lab.followed_sign_ins import Following
from loosehanger.lab.manifests.documents import Document, dotted
from loosehanger.lab.scenario import MIRROR, Scenario
from loosehanger.lab.token_sign_ins import check_tokens
from loosehanger.lab.topology import Topology

_HIDDEN = "Secret"
"""The kind whose values are not shown."""


@dataclass(frozen=True)
class FieldChange:
    """A field that differs; None where it is missing."""

    field: str
    applied: Any
    now: Any


@dataclass(frozen=True)
class Compared:
    """A resource of a scenario's manifests, and whether the lab's matches the manifests."""

    region: str
    kind: str
    name: str
    file: str
    line: int
    state: Literal["same", "changed", "new"]
    """``new``: the lab does not have it yet."""
    fields: tuple[FieldChange, ...] = ()
    applied: Mapping[str, Any] | None = None
    """The ``spec`` that was applied, of a mirror."""


def compare_manifests(
    scenario: Scenario,
    stage: str,
    recorded: Callable[[str], Iterable[Document]],
    check: Callable[[Document], object],
    regions: Iterable[str] = (),
) -> tuple[list[Compared], list[str]]:
    """Compares the manifests of a stage with the record.

    Args:
        scenario: what is set up.
        stage: the stage that was begun or reached last.
        recorded: the resources that were applied in a region.
        check: checks one resource as a set-up does.
        regions: the regions of the lab.

    Returns:
        Each resource that the stage has, and why a set-up would refuse the manifests; no resources if a file cannot be
        read at all.
    """
    try:
        documents = scenario.manifests(stage)
    except WrongUseError as error:
        return [], [str(error)]
    found, errors = [], []
    known = {*regions, *(document.namespace for document in documents)}
    documents = Following(scenario.sign_ins_follow, [recorded(region) for region in sorted(known)]).of(documents)
    wanted = {(region, one.kind, one.name): one for region in sorted(known) for one in recorded(region)}
    for document in documents:
        try:
            check(document)
        except WrongUseError as error:
            errors.append(str(error))
        there = {(one.kind, one.name): one for one in recorded(document.namespace)}
        applied = there.get((document.kind, document.name))
        if applied or scenario.creates(document, stage, known):
            found.append(_compared(document, applied))
            wanted[document.namespace, document.kind, document.name] = document
    try:
        check_together(scenario, stage, Topology(wanted.values(), scenario.secrets))
    except WrongUseError as error:
        # A set-up looks at this first.
        errors.insert(0, str(error))
    return found, errors


def check_together(scenario: Scenario, stage: str, topology: Topology) -> None:
    """Checks that a stage's resources fit together, as a set-up does before it changes anything.

    Raises:
        WrongUseError: they do not, such as mirrors that form a loop.
    """
    topology.check()
    check_tokens(topology)
    check_claims(scenario, topology)
    check_writers(topology, claims_of(topology.mirrors, scenario.claims, stage))


def _compared(now: Document, applied: Document | None) -> Compared:
    region = now.namespace
    if applied is None:
        return Compared(region, now.kind, now.name, now.source, now.line, "new")
    fields = tuple(_differences(applied.content, now.content))
    if now.kind == _HIDDEN:
        fields = tuple(FieldChange(one.field, "hidden", "hidden") for one in fields)
    spec = applied.spec if now.kind == MIRROR else None
    state: Literal["same", "changed"] = "changed" if fields else "same"
    return Compared(region, now.kind, now.name, now.source, now.line, state, fields, spec)


def _differences(applied: Any, now: Any, path: tuple[str | int, ...] = ()) -> Iterator[FieldChange]:
    if isinstance(applied, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*applied, *now]):
            yield from _differences(applied.get(key), now.get(key), (*path, key))
    elif isinstance(applied, list) and isinstance(now, list) and len(applied) == len(now):
        for index, (one, other) in enumerate(zip(applied, now, strict=True)):
            yield from _differences(one, other, (*path, index))
    elif applied != now:
        yield FieldChange(dotted(path), applied, now)
