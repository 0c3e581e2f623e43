"""The watch of the lab: Spark reads its regions, Connect knows its mirrors' positions, and the shop's events count."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from loosehanger.audit.balance import AuditBalance, Bucket, OpenBucket
from loosehanger.audit.canary import Canary, sources
from loosehanger.audit.lab_results import LabResults
from loosehanger.audit.loop import Options, Parts, Report, Watch
from loosehanger.audit.mirror_positions import Positions
from loosehanger.audit.naming import EXAMPLES, NameRecords, Until
from loosehanger.audit.scope import Inventory, Scope, Unfit, scope_between
from loosehanger.audit.spark_naming import RegionClusters, name_records
from loosehanger.audit.spark_reader import SparkReader
from loosehanger.audit.state import Folder
from loosehanger.audit.topic import AuditTopic
from loosehanger.errors import LabError, UnreachableError
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.connection import Connection, connection_for
from loosehanger.lab.kit_users import ADMINISTRATOR, PROVER
from loosehanger.lab.mirrors.lineage import counted
from loosehanger.lab.programs import event_prefixes
from loosehanger.lab.record import Lab
from loosehanger.proof.session import ERRORS, SparkEndedError, cause, ended, is_alive, session_beside
from loosehanger.sales import aggregates


@dataclass(frozen=True)
class LabOptions:
    """The options of a watch of the lab."""

    watch: Options
    lateness_s: float
    """The most seconds by which an event may be late for its minute."""
    kept_s: float
    """Seconds for which results are kept."""
    minutes: int
    """How many minutes to show."""
    products: int
    topic_in: str = ""
    """The region that gets the verdicts as records of a topic; empty for none."""
    canary_s: float | None = None
    """Seconds from one canary to the next; None for none."""


def watch_lab(
    spark: SparkSession, lab: Lab, scope: Scope, options: LabOptions, folder: Folder, report: Report
) -> Watch:
    """Returns a watch of the lab.

    Args:
        spark: the session.
        lab: what is set up.
        scope: as from ``survey``.
        options: the options of the watch.
        folder: holds the watch's state and tables.
        report: takes a line of progress.
    """
    mirrors = tuple(mirror for mirror in lab.mirrors if mirror.source in scope.clusters)
    canary = None
    if options.canary_s is not None:
        regions = [region for region in sources(lab.mirrors) if region in lab.clusters]
        canary = Canary(
            {region: connection_for(lab.region(region), ADMINISTRATOR) for region in regions}, options.canary_s
        )
    parts = Parts(
        lab.scenario,
        mirrors,
        lambda inventories, unfit: scope_of(lab, scope.clusters, inventories, unfit),
        {name: SparkReader(spark, lab.region(name)) for name in scope.clusters},
        lambda copied_by: Positions(mirrors, lambda mirror: Cluster.of(lab.region(mirror.source), PROVER), copied_by),
        namer(spark, lab),
        LabResults(
            spark,
            folder,
            lab.clusters,
            products=options.products,
            minutes=options.minutes,
            lateness_s=options.lateness_s,
            kept_s=options.kept_s,
            report=report,
        ),
        AuditTopic(publisher(lab, options.topic_in)) if options.topic_in else None,
        canary,
    )
    return Watch(parts, scope, options.watch, folder, report)


def namer(spark: SparkSession, lab: Lab) -> NameRecords:
    """Returns the function that names records with Spark."""
    beside = session_beside(spark)

    def name(balance: AuditBalance, found: Mapping[Bucket, OpenBucket], until: Until) -> None:
        try:
            with ExitStack() as stack:
                # Clients of its own: kafka-python's are for one thread each.
                clusters = {name: stack.enter_context(closing(Cluster.of(lab.region(name), PROVER))) for name in until}
                name_records(beside, RegionClusters(beside, clusters, until), balance, found, EXAMPLES)
        except ERRORS as error:
            if not is_alive(spark):
                raise SparkEndedError(ended(error)) from error
            raise UnreachableError(cause(error)) from error

    return name


def publisher(lab: Lab, region: str) -> Connection:
    """The connection that writes verdicts to a region's topic.

    Raises:
        WrongUseError: the region does not exist, or the kit has no user there who may write.
    """
    return connection_for(lab.region(region), ADMINISTRATOR)


def survey(lab: Lab) -> Scope:
    """Finds the clusters, flows and topics to watch.

    Raises:
        LabError: a region does not answer, or no topic can be watched.
    """
    clusters, inventories = {}, {}
    for name, region in lab.clusters.items():
        with closing(Cluster.of(region, PROVER)) as cluster:
            clusters[name], inventories[name] = cluster.id(), cluster.inventory()
    scope = scope_of(lab, clusters, inventories)
    if not any(scope.topics.values()):
        raise LabError("nothing to watch: no region has a topic that is mirrored or has events")
    return scope


def scope_of(
    lab: Lab, clusters: Mapping[str, str], inventories: Mapping[str, Inventory], unfit: Unfit | None = None
) -> Scope:
    """The clusters, flows and topics to watch, with the topics whose events count.

    Args:
        lab: what is set up.
        clusters: the id of each region's cluster.
        inventories: the topics of the regions that have answered.
        unfit: why topics of a region cannot be judged.
    """
    copies = {mirror for claim in lab.claims if claim.kind == "copy" for mirror in claim.mirrors}
    scope = scope_between(lab.mirrors, copies, clusters, inventories, unfit)
    topics, events, pattern = {}, {}, aggregates.topic_pattern(event_prefixes(lab.topology))
    for name, inventory in inventories.items():
        kinds = {topic: match[1] for topic in inventory if (match := re.match(pattern, topic))}
        events[name] = {topic: kinds[topic] for topic in counted(lab.mirrors, name, kinds)}
        topics[name] = {**scope.topics[name], **{topic: inventory[topic] for topic in kinds}}
    return replace(scope, topics=topics, events=events)
