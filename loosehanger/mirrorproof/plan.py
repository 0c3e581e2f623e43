"""``mirrorproof plan FILE``: shows what a proof would compare, and what it could not, before it is run."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from loosehanger.arguments import Parser
from loosehanger.errors import ExitCode, UnreachableError, WrongUseError
from loosehanger.mirrorproof.rights import READ, Operations, lacking, operations_of
from loosehanger.paths import caller_path

if TYPE_CHECKING:
    from loosehanger.kafka.cluster import Cluster
    from loosehanger.lab.mirrors.mirror import Mirror
    from loosehanger.lab.record import Lab

_MEASURED = ((0, 9.0), (1_000_000, 21.6), (5_000_000, 41.9), (20_000_000, 76.7))
"""Records on a side, and how many seconds their proof took: docs/performance.md."""
_MEASURED_PARTITIONS = 3
_PARTITION_S = 0.006
"""Seconds for each further partition, likewise."""


@dataclass
class TopicPlan:
    """One topic of a flow."""

    topic: str
    copy: str
    partitions: int | None = None
    """None for a topic that does not exist, or that the user may not see."""
    copy_partitions: int | None = None
    records: int | None = None
    """At the source, between the first and the last offset: an upper bound."""
    copy_records: int | None = None
    problem: str = ""
    """Why it would not be compared; empty for a topic that would."""
    notes: list[str] = field(default_factory=list)


@dataclass
class FlowPlan:
    """What a proof would compare of a flow."""

    name: str
    source: str
    target: str
    topics: list[TopicPlan] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    suggestion: str = ""
    """What to write as ``names``; empty for none."""

    @property
    def fits(self) -> bool:
        """Whether everything would be compared."""
        return not self.problems and not any(topic.problem for topic in self.topics)


@dataclass
class ListedCluster:
    """What a cluster has, as its user sees it."""

    id: str
    user: str
    topics: dict[str, int]
    """The number of partitions of each."""
    operations: Operations


@dataclass
class ProofPlan:
    """What a proof would compare."""

    flows: list[FlowPlan]
    away: dict[str, str]
    """The clusters that do not answer, and why."""

    @property
    def exit_code(self) -> ExitCode:
        """Done if everything would be compared, inconclusive if a cluster does not answer, else failed."""
        if self.away:
            return ExitCode.INCONCLUSIVE
        return ExitCode.DONE if all(flow.fits for flow in self.flows) else ExitCode.FAILED

    def document(self) -> dict[str, Any]:
        """The plan for programs."""
        compared = [topic for flow in self.flows for topic in flow.topics if not topic.problem]
        records = sum(topic.records or 0 for topic in compared)
        copies = sum(topic.copy_records or 0 for topic in compared)
        return {
            "fits": self.exit_code == ExitCode.DONE,
            "flows": [asdict(flow) | {"fits": flow.fits} for flow in self.flows],
            "away": self.away,
            "totals": {
                "topics": len(compared),
                "not_compared": sum(1 for flow in self.flows for topic in flow.topics if topic.problem),
                "partitions": sum(topic.partitions or 0 for topic in compared),
                "records": records,
                "copy_records": copies,
            },
            "estimate_s": round(estimate_s(max(records, copies), sum(topic.partitions or 0 for topic in compared))),
        }


def add_options(parser: Parser) -> None:
    """Adds the file and the choice of flows."""
    parser.add_argument(
        "file",
        type=caller_path,
        metavar="FILE",
        help="the configuration file; or MM2's properties, a KafkaMirrorMaker2 manifest, Replicator's configuration",
    )
    parser.add_argument("--flow", action="append", default=[], metavar="NAME", help="only this flow; can be repeated")
    parser.add_argument("--json", action="store_true", help="print one JSON document in place of lines")


def run(options: argparse.Namespace) -> int:
    """Prints the plan.

    Returns:
        The exit code.

    Raises:
        WrongUseError: the file cannot be used, or two sides are one cluster.
    """
    from loosehanger.mirrorproof.configuration import read_configuration  # slow to import

    def warn(line: str) -> None:
        print(line, file=sys.stderr)

    plan = plan_of(read_configuration(options.file).lab(os.environ, options.flow, warn))
    document = plan.document()
    if options.json:
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        print("\n".join(lines(plan, document)))
    return plan.exit_code


def plan_of(lab: Lab) -> ProofPlan:
    """Asks the clusters, and plans every flow.

    Raises:
        WrongUseError: the two sides of a flow are one cluster.
    """
    from loosehanger.kafka.cluster import Cluster  # slow to import
    from loosehanger.kafka.patches import repair
    from loosehanger.lab.kit_users import PROVER
    from loosehanger.proof.read.external import flow_name

    repair()
    clusters = {name: Cluster.of(region, PROVER) for name, region in lab.clusters.items()}
    plan = ProofPlan([], {})
    try:
        views = _of_each(clusters, lambda _, cluster: _look(cluster), plan)
        _refuse_one_cluster(lab.mirrors, views)
        flows = [(mirror, plan_flow(mirror, mirror.name.removeprefix(flow_name("")), views)) for mirror in lab.mirrors]
        plan.flows = [flow for _, flow in flows]
        unseen = {name: _unseen(name, flows, views) for name in clusters}
        hidden = _of_each(clusters, lambda name, cluster: cluster.hidden(unseen[name]), plan)
        wanted = {name: _places(name, flows) for name in clusters}
        sizes = _of_each(clusters, lambda name, cluster: _sizes(cluster, wanted[name]), plan)
    finally:
        for cluster in clusters.values():
            cluster.close()
    for _, flow in flows:
        _add_hidden(flow, hidden, views)
        for topic in flow.topics:
            topic.records = sizes.get(flow.source, {}).get(topic.topic)
            topic.copy_records = sizes.get(flow.target, {}).get(topic.copy)
    return plan


def _of_each(clusters: Mapping[str, Cluster], ask: Callable[[str, Cluster], Any], plan: ProofPlan) -> dict[str, Any]:
    """Asks the clusters that answer, all at the same time."""

    def one(name: str) -> Any:
        try:
            return ask(name, clusters[name])
        except UnreachableError as error:
            plan.away[name] = str(error)
            return None

    names = [name for name in clusters if name not in plan.away]
    with ThreadPoolExecutor(max(1, len(names))) as threads:
        found = dict(zip(names, threads.map(one, names), strict=True))
    return {name: answer for name, answer in found.items() if answer is not None}


def _look(cluster: Cluster) -> ListedCluster:
    described = cluster.described()
    return ListedCluster(
        cluster.id(),
        cluster.connection.username or "ANONYMOUS",
        {topic["name"]: len(topic["partitions"]) for topic in described},
        operations_of(described),
    )


def _sizes(cluster: Cluster, topics: Mapping[str, int]) -> dict[str, int]:
    from loosehanger.kafka.cluster import partitions_of  # slow to import

    places = partitions_of(topics)
    starts, ends = cluster.start_offsets(places), cluster.end_offsets(places)
    sizes = dict.fromkeys(topics, 0)
    for place in places:
        sizes[place.topic] += max(0, ends.get(place, 0) - starts.get(place, 0))
    return sizes


def _refuse_one_cluster(mirrors: Sequence[Mirror], views: Mapping[str, ListedCluster]) -> None:
    from loosehanger.lab.mirrors.replication import changes_every_name  # slow to import

    for mirror in mirrors:
        ids = [views[end].id for end in (mirror.source, mirror.target) if end in views]
        if len(ids) > 1 and ids[0] and ids[0] == ids[1] and not changes_every_name(mirror):
            raise WrongUseError(
                f"{mirror.source} and {mirror.target} are the same cluster (id {ids[0]}), so each topic would be "
                "compared with itself; give the client properties of two clusters"
            )


def plan_flow(mirror: Mirror, name: str, views: Mapping[str, ListedCluster]) -> FlowPlan:
    """Plans one flow, by what its clusters have.

    Args:
        mirror: the flow.
        name: its name.
        views: the clusters that answer.
    """
    from loosehanger.lab.mirrors.replication import idle_patterns, named_topics, selected_topics, target_topic

    plan = FlowPlan(name, mirror.source, mirror.target)
    if gone := [end for end in (mirror.source, mirror.target) if end not in views]:
        plan.problems.append(f"not compared: no answer from {' and '.join(gone)}")
        return plan
    source, target = views[mirror.source], views[mirror.target]
    selected = selected_topics(mirror, source.topics)
    plan.topics = [TopicPlan(topic, target_topic(mirror, topic), source.topics[topic]) for topic in selected]
    for topic in plan.topics:
        topic.copy_partitions = target.topics.get(topic.copy)
        if topic.copy_partitions is None:
            topic.problem = f"{mirror.target} has no topic {topic.copy}"
            continue
        if topic.copy_partitions != topic.partitions:
            topic.notes.append(f"{topic.partitions} partitions, and its copy has {topic.copy_partitions}")
        for cluster, view, called in ((mirror.source, source, topic.topic), (mirror.target, target, topic.copy)):
            _add_rights(topic, cluster, view, called)
    _add_equal_names(plan)
    for topic_name in sorted(named_topics(mirror, selected)):
        reason = f"{mirror.source} has no topic {topic_name}"
        if topic_name in source.topics:
            reason = "its name is that of an internal topic, of an excluded one, or of a copy from the target"
        plan.topics.append(TopicPlan(topic_name, target_topic(mirror, topic_name), problem=reason))
    plan.notes += [f"{mirror.source} has no topic that matches '{one}'" for one in idle_patterns(mirror, source.topics)]
    if not selected:
        plan.problems.append(f"{mirror.source} has no topic of this flow that the user '{source.user}' may see")
    _add_suggestion(plan, mirror, source, target)
    return plan


def _add_rights(topic: TopicPlan, cluster: str, view: ListedCluster, called: str) -> None:
    for right in lacking(view.operations.get(called)):
        lacks = f"user '{view.user}' lacks {right} on topic {called} in {cluster}"
        if right == READ:
            topic.problem = topic.problem or lacks
        else:
            topic.notes.append(f"{lacks}: neither its settings nor what retention has deleted can be judged")


def _add_equal_names(plan: FlowPlan) -> None:
    sources: dict[str, list[TopicPlan]] = {}
    for topic in plan.topics:
        sources.setdefault(topic.copy, []).append(topic)
    for copy, topics in sources.items():
        if len(topics) > 1:
            names = ", ".join(topic.topic for topic in topics)
            for topic in topics:
                topic.problem = f"'names' gives the copies of {names} the same name {copy}"


def _add_suggestion(plan: FlowPlan, mirror: Mirror, source: ListedCluster, target: ListedCluster) -> None:
    from loosehanger.lab.mirrors.replication import is_internal  # slow to import
    from loosehanger.mirrorproof.mapping import suggest

    absent = [topic.topic for topic in plan.topics if topic.partitions is not None and topic.copy_partitions is None]
    taken = {topic.copy for topic in plan.topics if topic.copy_partitions is not None}
    # Under the identity policy a name that the source has, too, is that topic's copy.
    taken |= set(source.topics) if mirror.policy == "identity" else set()
    free = [name for name in target.topics if name not in taken and not is_internal(name)]
    if absent and (found := suggest(absent, free)):
        plan.suggestion = (
            f"{found.as_yaml()} would give {found.topics} of {len(absent)} topics without a copy one "
            f"(such as {next(_copies(found.names, absent, free))})"
        )


def _copies(names: Mapping[str, str], absent: Sequence[str], free: Collection[str]) -> Any:
    """The names of copies by a suggestion."""
    prefix = f"{names['alias']}{names.get('separator', '.')}" if "alias" in names else names.get("prefix", "")
    there = set(free)
    for topic in absent:
        if (name := f"{prefix}{topic}{names.get('suffix', '')}") in there:
            yield name


def _unseen(name: str, flows: Sequence[tuple[Mirror, FlowPlan]], views: Mapping[str, ListedCluster]) -> set[str]:
    """The topics of a cluster that are not listed: they do not exist, or the user may not see them."""
    there = views[name].topics if name in views else {}
    sources = {topic.topic for mirror, flow in flows if mirror.source == name for topic in flow.topics}
    copies = {topic.copy for mirror, flow in flows if mirror.target == name for topic in flow.topics}
    return (sources | copies) - there.keys()


def _add_hidden(flow: FlowPlan, hidden: Mapping[str, Collection[str]], views: Mapping[str, ListedCluster]) -> None:
    for topic in flow.topics:
        ends = ((flow.source, topic.topic, topic.partitions), (flow.target, topic.copy, topic.copy_partitions))
        for cluster, called, partitions in ends:
            if partitions is None and called in hidden.get(cluster, ()):
                topic.problem = f"user '{views[cluster].user}' lacks Describe on topic {called} in {cluster}"
                break


def _places(name: str, flows: Sequence[tuple[Mirror, FlowPlan]]) -> dict[str, int]:
    """The topics of a cluster whose sizes are asked for, with their partitions."""
    found: dict[str, int] = {}
    for mirror, flow in flows:
        for topic in flow.topics:
            if mirror.source == name and topic.partitions is not None:
                found[topic.topic] = topic.partitions
            if mirror.target == name and topic.copy_partitions is not None:
                found[topic.copy] = topic.copy_partitions
    return found


def estimate_s(records: int, partitions: int = _MEASURED_PARTITIONS) -> float:
    """Estimates how many seconds a proof takes, from measurements on two cores.

    Args:
        records: on the larger side.
        partitions: at the source.
    """
    more = max(0, partitions - _MEASURED_PARTITIONS) * _PARTITION_S
    before, after = next(
        ((low, high) for low, high in pairwise(_MEASURED) if records <= high[0]), (_MEASURED[-2], _MEASURED[-1])
    )
    return more + before[1] + (records - before[0]) * (after[1] - before[1]) / (after[0] - before[0])


def lines(plan: ProofPlan, document: Mapping[str, Any]) -> list[str]:
    """The plan for people."""
    found = []
    for flow in plan.flows:
        found.append(f"flow {flow.name}: {flow.source} → {flow.target}")
        rows = [("topic", "copy", "partitions", "records", "at the target")]
        rows += [
            (topic.topic, topic.copy, str(topic.partitions), f"{topic.records or 0:,}", f"{topic.copy_records or 0:,}")
            for topic in flow.topics
            if not topic.problem
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        if len(rows) > 1:
            found += ["  " + _row(row, widths) for row in rows]
        found += [f"  NOT COMPARED  {topic.topic}: {topic.problem}" for topic in flow.topics if topic.problem]
        found += [f"  PROBLEM       {problem}" for problem in flow.problems]
        found += [f"  note          {topic.topic}: {note}" for topic in flow.topics for note in topic.notes]
        found += [f"  note          {note}" for note in flow.notes]
        found += [f"  suggestion    {flow.suggestion}"] if flow.suggestion else []
        found.append("")
    found += [f"NO ANSWER  {reason}" for reason in plan.away.values()]
    totals = document["totals"]
    if not totals["topics"]:
        return [*found, "nothing would be compared"]
    found.append(
        f"{totals['topics']} topics with {totals['partitions']} partitions would be compared, "
        f"{totals['not_compared']} would not; at most {totals['records']:,} records at the source and "
        f"{totals['copy_records']:,} at the target"
    )
    found.append(
        f"estimate: {document['estimate_s']} s, from measurements on two cores beside the clusters, start-up included"
    )
    return found


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    names, numbers = zip(cells[:2], widths[:2], strict=True), zip(cells[2:], widths[2:], strict=True)
    return "  ".join([*(f"{cell:<{width}}" for cell, width in names), *(f"{cell:>{width}}" for cell, width in numbers)])
