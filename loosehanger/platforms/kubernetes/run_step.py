"""One step of a plan on Kubernetes: secrets, resources, and the record of them."""

from __future__ import annotations

from loosehanger.lab.plan import Plan, Step
from loosehanger.lab.record import recorded_documents
from loosehanger.platforms.kubernetes import access
from loosehanger.platforms.kubernetes.apply import RegionNamespace, apply, delete
from loosehanger.platforms.kubernetes.console_facts import with_facts
from loosehanger.platforms.kubernetes.copied_secrets import copy_secrets, delete_copies
from loosehanger.platforms.kubernetes.event_streams import EventStreams
from loosehanger.platforms.kubernetes.region_failure import revived
from loosehanger.platforms.kubernetes.resources import check_documents
from loosehanger.platforms.outcome import Outcome


def carry_out(
    region: RegionNamespace,
    plan: Plan,
    part: Step,
    clients: access.Clients,
    event_streams: EventStreams | None,
    *,
    ready_seconds: float,
    delete_seconds: float,
    dry_run: bool,
) -> Outcome:
    """Applies the resources of one step, waits until they are ready, and records them.

    Args:
        region: where.
        plan: the region's plan.
        part: the step.
        clients: where the kit's clients run, and where their record is kept.
        event_streams: converts resources for IBM Event Streams; None leaves Strimzi's as they stand.
        ready_seconds: how long all of them together may take to become ready.
        delete_seconds: how long deletion may take.
        dry_run: whether to report only what would change.

    Raises:
        WrongUseError: a resource cannot be applied.
        LabError: applying it failed.
    """
    gone = check_documents(plan.deletes(part), region.name, event_streams)
    deleted = delete(region, gone, bound=delete_seconds, dry_run=dry_run)
    # Connect's interface has no password here, so that mirrors make no secrets.
    copies = plan.copies if part is Step.DATAFLOW else ()
    copied = [f"Secret/{name}" for name in copy_secrets(region, copies, dry_run=dry_run)]
    if part is Step.CONSOLES:
        deleted += [f"Secret/{name}" for name in delete_copies(region, plan.leftovers, dry_run=dry_run)]
    wanted = plan.part(part)
    outcome = Outcome()
    if wanted:
        manifests = revived(region, check_documents(wanted, region.name, event_streams))
        if part is Step.CONSOLES:
            manifests = with_facts(region, clients.home, manifests, dry_run=dry_run)
        outcome = apply(region, manifests, ready_seconds=ready_seconds, dry_run=dry_run)
    outcome.changed = [*deleted, *copied, *outcome.changed]
    documents = plan.carried_out(part, recorded_documents(clients.home, region.name))
    if not dry_run and access.record(region, clients, documents, deleted=plan.deleted) and not outcome.changed:
        outcome.changed.append(f"the record of {region.name}")
    return outcome


def delete_described(
    region: RegionNamespace,
    plan: Plan,
    clients: access.Clients,
    event_streams: EventStreams | None,
    *,
    delete_seconds: float,
    dry_run: bool,
) -> list[str]:
    """Deletes what was described, and its record; returns the references of what existed. The region itself stays.

    Args:
        region: where.
        plan: the plan of what was described.
        clients: where the kit's clients run, and where their record is kept.
        event_streams: converts resources for IBM Event Streams; None leaves Strimzi's as they stand.
        delete_seconds: how long deletion may take.
        dry_run: whether to report only what would be deleted.

    Raises:
        WrongUseError: a resource cannot be applied.
        LabError: deleting failed.
    """
    wanted = [document for document in plan.changes if document.kind != "Namespace"]
    manifests = check_documents(wanted, region.name, event_streams)
    deleted = delete(region, manifests, bound=delete_seconds, dry_run=dry_run)
    before = recorded_documents(clients.home, region.name)
    if before and not dry_run:
        gone = {document.reference for document in wanted}
        kept = [document for document in before if document.reference not in gone]
        access.record(region, clients, kept)
    return deleted
