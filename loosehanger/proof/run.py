"""What the steps of a proof share: the lab and its clusters, the options, the bounds, and the evidence."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import SparkSession

from loosehanger.kafka.cluster import Cluster
from loosehanger.lab.kit_users import PROVER
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.record import Lab
from loosehanger.proof.evidence.evidence import Evidence
from loosehanger.proof.flows import MirrorId

Report = Callable[[str], None]


@dataclass
class ProofRun:
    """One run of a proof, whose steps come one after the other."""

    lab: Lab
    evidence: Evidence
    """Each step adds its results and findings."""
    report: Report
    """Takes a line of progress."""
    timeout_s: float
    """Bound of the wait for the mirrors, in seconds."""
    examples: int
    """The number of differences of each kind and flow to show."""
    since: datetime | None = None
    """Records older than this are left out."""
    while_moving: bool = False
    """Whether the bound restarts whenever a mirror has made progress."""
    allow_same_cluster: bool = False
    """Whether two clusters of the user's own may have the same id."""
    groups: Mapping[str, Collection[str]] = field(default_factory=dict)
    """By the name of a mirror, the consumer groups that must continue at its target."""
    left_s: float = field(init=False)
    """The rest of the bound for the mirrors, after the wait for the topics of chains."""
    deadline: float = 0.0
    """The end of the bound by the monotonic clock; set once the cuts are frozen."""
    clusters: dict[str, Cluster] = field(init=False)
    """By region, for the thread of the steps."""
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(max_workers=16))
    spark: Future[SparkSession] = field(init=False)
    """The session, which starts beside the first steps."""

    def __post_init__(self) -> None:
        self.left_s = self.timeout_s
        self.clusters = {name: Cluster.of(region, PROVER) for name, region in self.lab.clusters.items()}

    def cluster_of(self, region: str) -> Cluster:
        """A region's cluster with clients of its own, for another thread: kafka-python's are for one each; close it."""
        return Cluster.of(self.lab.region(region), PROVER)

    def mirrors(self) -> dict[MirrorId, Mirror]:
        """The mirrors of the flows."""
        return {flow.mirror.id: flow.mirror for flow in self.evidence.flows}

    def topics_of(self, region: str) -> list[str]:
        """The topics of a source that have flows."""
        return sorted({flow.topic for flow in self.evidence.flows if flow.source == region})

    def defect(self, error: Exception) -> str:
        """The text for an unforeseen error; its traceback goes to the progress output."""
        self.report("".join(traceback.format_exception(error)).rstrip())
        return f"{type(error).__name__}: {error}"

    def close(self) -> None:
        """Closes the clusters, and starts nothing more in threads."""
        for cluster in self.clusters.values():
            cluster.close()
        self.threads.shutdown(wait=False, cancel_futures=True)
