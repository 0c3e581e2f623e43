"""``./lab diff``: what the manifests say and the lab does not have yet, and what a set-up would refuse."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

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
    stage = lab.unfinished or lab.stage
    found, errors = compare_manifests(
        read_scenario(lab.scenario),
        stage,
        lambda region: recorded_documents(lab_home(), region),
        check_document,
        lab.regions,
    )
    differ = [one for one in found if one.state != "same"]
    if options.json:
        resources = [asdict(one) for one in found]
        document = {"scenario": lab.scenario, "stage": stage, "errors": errors, "resources": resources}
        print(json.dumps(document, indent=1, ensure_ascii=False))
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


def _show(one: Compared) -> None:
    print(f"{one.file}:{one.line}: {one.region}: {one.kind}/{one.name}{' is new' if one.state == 'new' else ''}")
    for change in one.fields:
        print(f"  {change.field}: {_text(change.applied)} -> {_text(change.now)}")


def _text(value: object) -> str:
    return "–" if value is None else json.dumps(value, ensure_ascii=False)
