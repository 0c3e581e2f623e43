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
    """Carries out one step of what a region shall have, waits until it is ready, and keeps what was done.

    Args:
        region: where.
        plan: what it shall have.
        part: the step.
        ready_seconds: how long things may take to get ready.
        dry_run: only tell what would change.

    Raises:
        WrongUseError: a resource cannot be carried out.
        LabError: carrying it out failed.
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
        # Nothing may bring a region back to life that is dead.
        if part is Step.CLUSTERS and not plan.lost and (wanted or is_supervised(region)):
            outcome.changed += apply_links(region, plan.topology, plan.links, ready_seconds)
        documents = plan.carried_out(part, recorded_documents(region.home, region.name))
        if record(region, documents, plan.topology) and not outcome.changed:
            outcome.changed.append(f"the record of {region.name}")
    return outcome


def delete_described(region: LocalRegion, plan: Plan, *, dry_run: bool) -> list[str]:
    """Deletes what was described, and forgets it; returns the references of what was there. The region itself stays.

    Args:
        region: where.
        plan: made of what was described.
        dry_run: only tell what would be deleted.

    Raises:
        WrongUseError: a resource cannot be carried out.
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
    """Copies what this step needs: a mirror's own secrets are there only once the mirror is."""
    wanted = [
        copy for copy in plan.copies if part is (Step.CONSOLES if copy.maker == "KafkaMirrorMaker2" else Step.DATAFLOW)
    ]
    copied = []
    for name, copies in groupby(sorted(wanted, key=lambda copy: copy.origin), key=lambda copy: copy.origin):
        origin = LocalRegion(region.home, region.checkout, name, 0)
        copied += copy_secrets(origin, region, copies, dry_run=dry_run)
    return [f"Secret/{name}" for name in copied]
