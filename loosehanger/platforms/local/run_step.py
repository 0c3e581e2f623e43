"""One step of a plan on this machine: secrets, resources, and the record of them."""

from __future__ import annotations

from itertools import groupby

from loosehanger.lab.manifests.loader import check_document
from loosehanger.lab.plan import Plan, Step
from loosehanger.lab.record import recorded_documents
from loosehanger.platforms.local.access import record
from loosehanger.platforms.local.apply import apply, delete
from loosehanger.platforms.local.links import apply_links
from loosehanger.platforms.local.processes import is_supervised
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.local.secret_store import copy_secrets, delete_copies
from loosehanger.platforms.outcome import Outcome


def carry_out(region: LocalRegion, plan: Plan, part: Step, *, ready_seconds: float, dry_run: bool) -> Outcome:
    """Applies the resources of one step, waits until they are ready, and records them.

    Args:
        region: where.
        plan: the region's plan.
        part: the step.
        ready_seconds: how long resources may take to become ready.
        dry_run: whether to report only what would change.

    Raises:
        WrongUseError: a resource cannot be applied.
        LabError: applying it failed.
    """
    gone = [check_document(document) for document in plan.deletes(part)]
    deleted = delete(region, gone, dry_run=dry_run)
    copied = _copy(region, plan, part, dry_run=dry_run)
    wanted = plan.part(part)
    outcome = Outcome()
    if wanted:
        manifests = [check_document(document, region.name) for document in wanted]
        outcome = apply(region, manifests, ready_seconds=ready_seconds, dry_run=dry_run)
    if part is Step.CONSOLES:
        deleted += [f"Secret/{name}" for name in delete_copies(region, plan.leftovers, dry_run=dry_run)]
    outcome.changed = [*deleted, *copied, *outcome.changed]
    if not dry_run:
        # A step must not revive a dead region.
        if part is Step.CLUSTERS and not plan.lost and (wanted or is_supervised(region)):
            outcome.changed += apply_links(region, plan.topology, plan.links, ready_seconds)
        documents = plan.carried_out(part, recorded_documents(region.home, region.name))
        if record(region, documents, plan.topology) and not outcome.changed:
            outcome.changed.append(f"the record of {region.name}")
    return outcome


def delete_described(region: LocalRegion, plan: Plan, *, dry_run: bool) -> list[str]:
    """Deletes what was described, and its record; returns the references of what existed. The region itself stays.

    Args:
        region: where.
        plan: the plan of what was described.
        dry_run: whether to report only what would be deleted.

    Raises:
        WrongUseError: a resource cannot be applied.
        LabError: deleting failed.
    """
    wanted = [check_document(document) for document in plan.changes if document.kind != "Namespace"]
    deleted = delete(region, wanted, dry_run=dry_run)
    before = recorded_documents(region.home, region.name)
    if before and not dry_run:
        gone = {manifest.resource.reference for manifest in wanted}
        record(region, [document for document in before if document.reference not in gone], plan.topology)
    return deleted


def _copy(region: LocalRegion, plan: Plan, part: Step, *, dry_run: bool) -> list[str]:
    """Copies the secrets that this step needs; a mirror's own secrets exist only once the mirror does."""
    wanted = [
        copy for copy in plan.copies if part is (Step.CONSOLES if copy.maker == "KafkaMirrorMaker2" else Step.DATAFLOW)
    ]
    copied = []
    for name, copies in groupby(sorted(wanted, key=lambda copy: copy.origin), key=lambda copy: copy.origin):
        origin = LocalRegion(region.home, region.checkout, name, 0)
        copied += copy_secrets(origin, region, copies, dry_run=dry_run)
    return [f"Secret/{name}" for name in copied]
