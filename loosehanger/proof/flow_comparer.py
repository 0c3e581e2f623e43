"""Reads both sides of the flows and compares them: all together, or as many as can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from pyspark.sql import SparkSession

from loosehanger.errors import UnreachableError
from loosehanger.proof.compare.comparison import compare
from loosehanger.proof.compare.retention_gaps import retention_gaps
from loosehanger.proof.evidence.group_offsets import group_offsets
from loosehanger.proof.flows import Flow
from loosehanger.proof.run import ProofRun
from loosehanger.proof.session import ERRORS, SparkEndedError, cause, ended, is_alive
from loosehanger.proof.snapshot import OffsetSnapshot, is_compacted, settle
from loosehanger.proof.spark_progress import reported

_ATTEMPTS = 3
_MOST_FAILURES = 20
"""The most attempts to read flows apart that cannot be read together: enough for several such flows among hundreds."""


class FlowComparer:
    """Compares the records of flows, up to their mirrors' positions.

    Args:
        run: the proof's run, whose evidence gets the counts and the findings.
    """

    def __init__(self, run: ProofRun) -> None:
        self._run = run
        self._found = run.evidence
        self._silent: dict[str, str] = {}
        """The regions that did not answer after a reading had failed, with the reason: each is asked once."""

    def compare_all(self) -> None:
        """Compares all flows at once; if that fails, as many of them as can be compared."""
        flows = [flow for flow in self._found.flows if flow.id not in self._found.inconclusive]
        if not any(cut.last_records for cut in self._found.cuts.values()):
            return
        # Spark is still starting: small regions can be read meanwhile.
        first: Future[OffsetSnapshot] | None = self._run.threads.submit(self._freeze, flows)
        try:
            spark = self._run.spark.result()
        except SparkEndedError as error:
            self._found.add("no_spark", None, {"reason": str(error)})
            return
        groups, failures = [flows] if flows else [], 0
        while groups:
            group = groups.pop()
            try:
                reason, first = self._compare_with_retries(spark, group, first), None
            except SparkEndedError as error:
                self._found.add("no_spark", None, {"reason": str(error)})
                return
            if not reason:
                continue
            failures += 1
            if away := self._away(group):
                rest = [flow for flow in group if not away & {flow.source, flow.target}]
                groups += [rest] if rest else []
            elif len(group) == 1 or failures > _MOST_FAILURES:
                for flow in group:
                    self._found.leave_inconclusive(flow, reason)
            else:
                middle = len(group) // 2
                groups += [group[middle:], group[:middle]]

    def _away(self, flows: Sequence[Flow]) -> set[str]:
        """The regions of these flows that do not answer; each gets an inconclusive finding."""
        regions = sorted({name for flow in flows for name in (flow.source, flow.target)})
        for region in (region for region in regions if region not in self._silent):
            try:
                self._run.clusters[region].topics()
            except UnreachableError as error:
                self._silent[region] = str(error)
        for flow in flows:
            for region in sorted({flow.source, flow.target} & self._silent.keys()):
                self._found.add("unreachable", flow.mirror, {"reason": self._silent[region]})
        return self._silent.keys() & set(regions)

    def _freeze(self, flows: Sequence[Flow]) -> OffsetSnapshot:
        for region in sorted({flow.target for flow in flows}):
            # Records that a mirror committed behind another producer's open transaction cannot be read yet.
            own = [flow for flow in flows if flow.target == region]
            topics = {flow.target_topic for flow in own}
            _, held = settle(self._run.clusters[region], topics, self._run.deadline, self._run.report)
            for flow in own:
                self._found.hold(flow, region, held)
        return OffsetSnapshot.freeze(flows, self._run.clusters, self._run.since, self._found.archives()).fetch()

    def _compare_with_retries(
        self, spark: SparkSession, flows: Sequence[Flow], frozen_already: Future[OffsetSnapshot] | None
    ) -> str:
        """Compares these flows; returns the reason if that fails, else an empty text.

        Args:
            spark: the session.
            flows: the flows to compare.
            frozen_already: their offsets for the first attempt; None if they are not frozen yet.

        Raises:
            SparkEndedError: Spark has ended.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                ahead, frozen_already = frozen_already, None
                frozen = ahead.result() if ahead else self._freeze(flows)
                comparing = f"reading and comparing {frozen.records:,} records of {len(flows):,} flows"
                self._run.report(comparing)
                frozen = frozen.with_small_partitions(spark)
                cuts, progress = self._found.cuts, self._found.progress
                windows = {flow.id: found for flow in flows if (found := self._found.window_of(flow)) is not None}
                with reported(spark, comparing, self._run.report):
                    arguments = (flows, cuts, progress, frozen, self._run.examples, windows, self._found.digests)
                    self._found.counts |= compare(spark, *arguments)
                self._found.append_time |= {flow.id for flow in flows if frozen.has_append_time(flow)}
                self._look_at_offsets(spark, flows, frozen)
                self._look_at_groups(spark, flows, frozen)
            except UnreachableError as error:
                return str(error)
            except Exception as error:
                if not is_alive(spark):
                    raise SparkEndedError(ended(error)) from error
                spark.catalog.clearCache()
                if not isinstance(error, ERRORS):
                    return f"the records could not be compared: {self._run.defect(error)}"
                reason = f"the records could not be read: {cause(error)}"
                if "TimeoutException" in reason:
                    # Spark has waited for as long as the proof may: what follows must not wait as long again.
                    for region in {name for flow in flows for name in (flow.source, flow.target)}:
                        self._run.clusters[region].hurry()
                # A log may lose its beginning while it is read: then everything is read anew, from where it begins now.
                if attempt < _ATTEMPTS and not self._away(flows) and (moved := _moved(frozen)):
                    self._run.report(f"retention removed records of {moved} while they were read; reading again")
                    continue
                return reason
            return ""
        return ""

    def _look_at_offsets(self, spark: SparkSession, flows: Sequence[Flow], frozen: OffsetSnapshot) -> None:
        """Finds records that neither side has any more, by offsets."""
        # For a chain, records that were deleted before they were copied are judged at its hops.
        ordinary = [flow for flow in flows if not is_compacted(flow, self._found.cuts) and not flow.mirror.hops]
        counts, cuts, progress = self._found.counts, self._found.cuts, self._found.progress
        try:
            self._found.histories |= retention_gaps(spark, ordinary, counts, cuts, progress, frozen)
        except Exception as error:
            # The results of the comparison remain.
            if not is_alive(spark):
                raise
            for flow in ordinary:
                if counts[flow.id].beginnings:
                    self._found.leave_inconclusive(
                        flow, f"deletions at the source could not be examined: {cause(error)}"
                    )

    def _look_at_groups(self, spark: SparkSession, flows: Sequence[Flow], frozen: OffsetSnapshot) -> None:
        """Finds how the groups that move to a target would continue there."""
        own = [flow for flow in flows if self._run.groups.get(flow.mirror.name)]
        if not own:
            return
        arguments = (spark, own, self._run.groups, self._found.cuts, frozen, self._found.counts)
        try:
            self._found.groups |= group_offsets(*arguments)
        except UnreachableError as error:
            # The results of the comparison remain.
            for mirror in {flow.mirror.id: flow.mirror for flow in own}.values():
                self._found.add("groups_unread", mirror, {"reason": str(error)})


def _moved(frozen: OffsetSnapshot) -> str:
    try:
        return frozen.moved()
    except UnreachableError:
        return ""
