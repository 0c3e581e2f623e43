"""The job of ``mirrorproof verify`` with access to the clusters: reads what was proved, and compares digests."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from typing import Any

from kafka import TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.arguments import Parser
from loosehanger.errors import ExitCode, InconclusiveError, WrongUseError, run_command
from loosehanger.kafka.cluster import Cluster
from loosehanger.lab.kit_users import PROVER
from loosehanger.lab.record import Lab
from loosehanger.mirrorproof.configuration import read_configuration
from loosehanger.mirrorproof.evidence import ProvedPartition, StoredEvidence, check
from loosehanger.mirrorproof.holding import PartitionNow, PartitionState, held_by, state_of
from loosehanger.mirrorproof.verify import add_evidence, show
from loosehanger.proof.compare.digests import digests_of
from loosehanger.proof.read.batches import read_records
from loosehanger.proof.read.external import two_clusters
from loosehanger.proof.report import output
from loosehanger.proof.session import ERRORS, cause, fit, start_session

_ATTEMPTS = 3
_EXIT_CODES = {
    "everything": ExitCode.DONE,
    "changed": ExitCode.FAILED,
    "no longer verifiable": ExitCode.INCONCLUSIVE,
}


def main() -> int:
    """Verifies the evidence; returns the exit code."""
    parser = Parser(prog="mirrorproof verify", allow_abbrev=False)
    add_evidence(parser)
    options = parser.parse_args()
    checked = check(options.file, options.key)
    if checked.evidence is None:
        show(checked, as_json=options.json)
        return ExitCode.FAILED
    states = verify(checked.evidence, _lab(options), lambda records: start_session("verify", records=records))
    held = held_by(states)
    show(checked, as_json=options.json, held=held)
    if not options.json:
        for line in lines(held):
            print(line)
    return _EXIT_CODES[held["held"]]


def _lab(options: argparse.Namespace) -> Lab:
    def warn(line: str) -> None:
        print(line, file=sys.stderr)

    if options.config:
        return read_configuration(options.config).lab(os.environ, (), warn)
    source, target = options.clusters
    return two_clusters(source, target, ".*", report=warn)


def verify(evidence: StoredEvidence, lab: Lab, start_spark: Any) -> list[PartitionState]:
    """Compares what clusters hold with evidence.

    Args:
        evidence: as it was signed.
        lab: the clusters, by the names that they have in the evidence.
        start_spark: creates the session, given the number of records.

    Raises:
        WrongUseError: a cluster is missing or is another one.
        UnreachableError: a cluster does not answer.
        InconclusiveError: records cannot be read.
    """
    by_cluster: dict[str, list[ProvedPartition]] = {}
    for partition in evidence.partitions:
        by_cluster.setdefault(partition.cluster, []).append(partition)
    ids = {one.name: one.id for one in evidence.clusters}
    spark: SparkSession | None = None
    states = []
    for name, partitions in by_cluster.items():
        if name not in lab.clusters:
            raise WrongUseError(_not_given(name))
        with closing(Cluster.of(lab.clusters[name], PROVER)) as cluster:
            if (identity := cluster.id()) != ids.get(name):
                raise WrongUseError(
                    f"{name}: this is the cluster with the id {identity}, and the evidence is about {ids.get(name)}; "
                    "give the clusters that were compared, in the same order"
                )
            if spark is None:
                spark = start_spark(sum(one.records for one in evidence.partitions))
                fit(spark, sum(one.records for one in evidence.partitions))
            states += _states(spark, cluster, partitions, evidence)
    return states


def _not_given(name: str) -> str:
    """What to give in place of clusters that do not have the names in the evidence."""
    of_files = name in ("source", "target")
    option = "--clusters, and the two files with client properties" if of_files else "--config, and the configuration"
    return f"the evidence is about cluster '{name}', which is not given; use {option} that prove took"


def _states(
    spark: SparkSession, cluster: Cluster, partitions: list[ProvedPartition], evidence: StoredEvidence
) -> list[PartitionState]:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            now = _read(spark, cluster, partitions, evidence)
        except ERRORS as error:
            # Retention may remove records while they are read.
            if attempt == _ATTEMPTS:
                raise InconclusiveError(f"{cluster.region}: the records cannot be read: {cause(error)}") from error
        else:
            return [state_of(one, evidence.chunk, now.get(_place(one))) for one in partitions]
    return []


def _read(
    spark: SparkSession, cluster: Cluster, partitions: list[ProvedPartition], evidence: StoredEvidence
) -> dict[TopicPartition, PartitionNow]:
    counts = cluster.topics()
    there = [one for one in partitions if one.partition < counts.get(one.topic, 0)]
    places = [_place(one) for one in there]
    starts, ends = cluster.start_offsets(places), cluster.end_offsets(places)
    ranges = {
        (place := _place(one)): (max(one.start, starts[place]), max(starts[place], min(one.end, ends[place])))
        for one in there
    }
    frame = read_records(spark, cluster.connection, ranges).withColumn("region", F.lit(""))
    if evidence.judged.since:
        frame = frame.where(F.col("timestamp") >= F.lit(datetime.fromisoformat(evidence.judged.since)))
    chunks: dict[TopicPartition, dict[int, tuple[int, str]]] = {place: {} for place in places}
    for row in digests_of(frame, evidence.chunk or 1).collect():
        chunks[TopicPartition(row.topic, row.partition)][row.chunk] = (row.records, row.digest)
    configs = cluster.configs({one.topic for one in there})
    # What retention has removed meanwhile was not read, either.
    starts = cluster.start_offsets(places)
    return {
        place: PartitionNow(starts[place], ends[place], _is_compacted(configs, place), chunks[place])
        for place in places
    }


def _is_compacted(configs: Mapping[str, Mapping[str, Any]], place: TopicPartition) -> bool:
    # A cleanup policy that may not be read could be either.
    policy = configs.get(place.topic, {}).get("cleanup.policy")
    return place.topic not in configs or (policy is not None and "compact" in (policy.value or ""))


def _place(one: ProvedPartition) -> TopicPartition:
    return TopicPartition(one.topic, one.partition)


def lines(held: Mapping[str, Any]) -> list[str]:
    """What the clusters hold, for people."""
    found = []
    for state in held["not_held"]:
        place = f"{state['cluster']}'s {state['topic']}-{state['partition']}"
        found += [f"CHANGED     {place}, {where}" for where in state["changed"]]
        if state["no_longer_verifiable"]:
            gone = f"{state['no_longer_verifiable']:,} of {state['records']:,} records are no longer verifiable"
            found.append(f"GONE        {place}: {gone}: {state['why']}")
    words = {
        "everything": "the clusters hold everything that was proved, unchanged",
        "changed": "records were changed since they were proved",
        "no longer verifiable": "what can still be read is unchanged; the rest is no longer verifiable",
    }
    found.append(f"now         {words[held['held']]} ({held['records_held']:,} records read and found equal)")
    return found


if __name__ == "__main__":
    output.separate_streams(sys.argv)
    sys.exit(run_command(main, failed=ExitCode.INCONCLUSIVE))
