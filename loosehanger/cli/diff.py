"""``./lab diff``: what the manifests say and the lab does not have yet, and what a set-up would refuse."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from loosehanger.cli.problems import apply_again
from loosehanger.errors import ExitCode, WrongUseError
from loosehanger.lab.manifest_diff import Compared, compare_manifests
from loosehanger.lab.manifests.loader import check_document
from loosehanger.lab.record import Lab, recorded_documents
from loosehanger.lab.scenario import read_scenario
from loosehanger.paths import lab_home


def run(lab: Lab, options: argparse.Namespace) -> int:
    """Shows the differences; ``FAILED`` if there are any.

    Raises:
        WrongUseError: a set-up would refuse the manifests. With ``--json`` the document says so.
    """
    found, errors = _compare(lab)
    differ = [one for one in found if one.state != "same"]
    if options.json:
        print(json.dumps(_as_json(lab, found, errors), indent=1, ensure_ascii=False))
        return ExitCode.FAILED if differ or errors else ExitCode.DONE
    for one in differ:
        _show(one)
    if errors:
        raise WrongUseError("; ".join(errors))
    if not differ:
        print(f"The lab is as the manifests of {lab.scenario} say.")
        return ExitCode.DONE
    print(f"\n{apply_again(lab)} applies this.")
    return ExitCode.FAILED


def document(lab: Lab) -> dict[str, Any]:
    """Returns what ``./lab diff --json`` prints."""
    return _as_json(lab, *_compare(lab))


def _compare(lab: Lab) -> tuple[list[Compared], list[str]]:
    """Each resource of the manifests beside what was applied of it, and what a set-up would refuse."""
    return compare_manifests(
        read_scenario(lab.scenario),
        lab.unfinished or lab.stage,
        lambda region: recorded_documents(lab_home(), region),
        check_document,
        lab.regions,
    )


def _as_json(lab: Lab, found: Sequence[Compared], errors: Sequence[str]) -> dict[str, Any]:
    resources = [asdict(one) for one in found]
    return {
        "scenario": lab.scenario,
        "stage": lab.unfinished or lab.stage,
        "errors": errors,
        "resources": resources,
    }


def _show(one: Compared) -> None:
    print(f"{one.file}:{one.line}: {one.region}: {one.kind}/{one.name}{' is new' if one.state == 'new' else ''}")
    for change in one.fields:
        print(f"  {change.field}: {_text(change.applied)} -> {_text(change.now)}")


def _text(value: object) -> str:
    return "–" if value is None else json.dumps(value, ensure_ascii=False)
