"""The proof, step by step: freeze a cut, wait for the mirrors to pass it, read both sides, compare."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import datetime

from pyspark.sql import SparkSession

from loosehanger.errors import LabError, UnreachableError
from loosehanger.lab.access import listed_rules, readers_from
from loosehanger.lab.claims.claims import OF_LEDGERS, Forbidden
from loosehanger.lab.record import Lab
from loosehanger.paths import lab_home
from loosehanger.proof.compare.configurations import Handling
from loosehanger.proof.compare.digests import Digests
from loosehanger.proof.compare.isolation import Present, named_like, scan, to_scan
from loosehanger.proof.cuts import Cuts
from loosehanger.proof.evidence.evidence import Evidence
from loosehanger.proof.evidence.findings import Finding
from loosehanger.proof.evidence.latency import LatencySampler
from loosehanger.proof.evidence.switch_evidence import look
from loosehanger.proof.flow_comparer import FlowComparer
from loosehanger.proof.flow_finder import FlowFinder
from loosehanger.proof.read.batches import read_records
from loosehanger.proof.read.external import EXTERNAL
from loosehanger.proof.run import ProofRun, Report
from loosehanger.proof.session import ERRORS, SparkEndedError, cause, fit
from loosehanger.proof.settings_comparer import SettingsComparer
from loosehanger.proof.snapshot import freeze, settle


class Proof:
    """One run of the proof over all topics that the lab's mirrors copy.

    Args:
        lab: what is set up.
        start_spark: creates the session, given the number of records; called in a thread, since Spark takes seconds
            to start.
        timeout_s: bound of the wait for the mirrors, in seconds.
        examples: the number of differences of each kind and flow to show.
        report: takes a line of progress.
        since: records older than this are left out.
        while_moving: whether the bound restarts whenever a mirror has made progress.
        configs: the effect of differing topic settings; by default they are judged in a lab, and reported between two
            clusters of the user's own, where providers have their own defaults.
        allow_same_cluster: two clusters of the user's own may have the same id.
        order: the effect of records in another order.
        digests: whether to make the digests of what is compared.
        groups: by the name of a mirror, the consumer groups that must continue at its target.
        group_handling: the effect of records that such a group would skip.
    """

    def __init__(
        self,
        lab: Lab,
        start_spark: Callable[[int | None], SparkSession],
        timeout_s: float,
        examples: int,
        report: Report,
        since: datetime | None = None,
        *,
        while_moving: bool = False,
        configs: Handling | None = None,
        allow_same_cluster: bool = False,
        order: Handling = "judge",
        digests: bool = False,
        groups: Mapping[str, Collection[str]] | None = None,
        group_handling: Handling = "judge",
    ) -> None:
        default: Handling = "report" if lab.platform == EXTERNAL else "judge"
        self._found = Evidence(claims=lab.claims, since=since, handling=configs or default, order=order)
        self._found.digests = Digests() if digests else None
        self._run = ProofRun(
            *(lab, self._found, report, timeout_s, examples, since),
            while_moving=while_moving,
            allow_same_cluster=allow_same_cluster,
            groups={} if group_handling == "ignore" else groups or {},
        )
        self._found.group_handling = group_handling
        self._start_spark = start_spark
        self._samplers: dict[str, LatencySampler] = {}

    @property
    def evidence(self) -> Evidence:
        """The results so far."""
        return self._found

    def run(self) -> Evidence:
        """Runs the steps of the proof, in the order of its argument.

        Raises:
            WrongUseError: two clusters of the user's own are one and the same.
        """
        run = self._run
        finder, cuts, settings = FlowFinder(run), Cuts(run), SettingsComparer(run)
        try:
            finder.refuse_the_same_cluster()
            self._name_clusters()
            finder.find_flows()
            finder.leave_out_other_names()
            run.spark = run.threads.submit(self._start_spark, self._records())
            self._start_sampling()
            cuts.freeze()
            settings.start()
            cuts.wait_for_mirrors()
            finder.find_hidden_topics()
            finder.find_topics_only_at_a_target()
            FlowComparer(run).compare_all()
            self._name_unknown_groups()
            self._check_isolation()
            self._check_rights()
            self._look_at_ledgers()
            settings.collect()
            self._finish_sampling()
        except Exception as error:
            if isinstance(error, LabError) and not isinstance(error, UnreachableError):
                raise
            # The results so far remain valid.
            self._found.add("broke_off", None, {"reason": run.defect(error)})
        finally:
            run.close()
        return self._found

    def _records(self) -> int | None:
        """The approximate number of records to compare; None if a cluster does not answer."""
        regions = sorted({flow.source for flow in self._found.flows})
        try:
            frozen = [freeze(self._run.clusters[region], self._run.topics_of(region)) for region in regions]
        except UnreachableError:
            return None  # It has just answered. The next steps report it if it stays silent.
        records = sum(end - start for ranges in frozen for start, end in ranges.values())
        return records * (1 + len(self._run.mirrors()))

    def _name_clusters(self) -> None:
        if self._found.digests is None:
            return
        for region, cluster in self._run.clusters.items():
            # One that does not answer has nothing compared.
            with suppress(UnreachableError):
                self._found.clusters[region] = cluster.id()

    def _start_sampling(self) -> None:
        for region in sorted({flow.target for flow in self._found.flows}):
            wanted = {flow.target_topic for flow in self._found.flows if flow.target == region}
            try:
                there = {name: count for name, count in self._run.clusters[region].topics().items() if name in wanted}
            except UnreachableError:
                continue  # It has just answered. If it is away for longer, what follows will say so.
            self._samplers[region] = LatencySampler(self._run.clusters[region].connection, there)
            self._samplers[region].start()

    def _name_unknown_groups(self) -> None:
        """Names each group that has committed no offset in any compared topic of its mirror."""
        findings = tuple(self._found.findings)
        for mirror in self._run.mirrors().values():
            if any(one.kind == "groups_unread" and one.concerns(self._found.claim_of(mirror)) for one in findings):
                continue
            own = [flow.id for flow in self._found.flows if flow.mirror == mirror and flow.id in self._found.counts]
            known = {offsets.group for flow in own for offsets in self._found.groups.get(flow, ())}
            for group in self._run.groups.get(mirror.name, ()) if own else ():
                if group not in known:
                    self._found.add("group_unknown", mirror, {"source": mirror.source, "group": group})

    def _check_isolation(self) -> None:
        """Scans regions for forbidden data, and for users there who could read it elsewhere."""
        for claim in self._run.lab.claims:
            if claim.forbidden is None:
                continue
            region = claim.subject["region"]
            reason = self._unread(region)
            try:
                if not reason:
                    self._found.present[claim.id] = self._present(claim.id, region, claim.forbidden)
            except (UnreachableError, SparkEndedError) as error:
                reason = str(error)
            except ERRORS as error:
                reason = cause(error)
            if reason:
                self._found.findings.append(Finding("inconclusive", "undecides", claim.id, details={"reason": reason}))

    def _unread(self, region: str) -> str:
        """Why nothing is read in a region; empty if its cluster answered."""
        without = "" if region in self._run.clusters else f"{region} has no cluster at this stage"
        return self._found.away.get(region, without)

    def _present(self, claim: str, region: str, forbidden: Forbidden) -> Present:
        cluster = self._run.clusters[region]
        there = cluster.topics()
        self._run.report(f"looking for data that must not be in {region}")
        spark = self._run.spark.result()
        ranges, held = settle(cluster, to_scan(there), self._run.deadline, self._run.report)
        if held:
            reason = f"{region} cannot be scanned completely: {held[0]}"
            self._found.findings.append(Finding("inconclusive", "undecides", claim, details={"reason": reason}))
        fit(spark, sum(end - start for start, end in ranges.values()))
        rows = scan(read_records(spark, cluster.connection, ranges).persist(), forbidden).collect()
        return Present(
            named_like(there, forbidden.topics),
            tuple(
                {"origin": reader.region, "user": reader.user, "rule": reader.rule, "topic": topic}
                for topic in forbidden.topics
                for reader in readers_from(self._run.lab.topology, region, topic)
            ),
            tuple(row.asDict() for row in rows),
        )

    def _check_rights(self) -> None:
        """Compares the ACLs of clusters with those of the manifests."""
        for claim in self._run.lab.claims:
            if claim.kind != "rights":
                continue
            region = claim.subject["region"]
            reason = self._unread(region)
            try:
                if not reason:
                    listed = listed_rules(self._run.lab.topology, region)
                    rules = sorted(set(self._run.clusters[region].rules()) - listed)
                    self._found.unlisted[claim.id] = tuple(rules)
            except UnreachableError as error:
                reason = str(error)
            if reason:
                self._found.findings.append(Finding("inconclusive", "undecides", claim.id, details={"reason": reason}))

    def _look_at_ledgers(self) -> None:
        """Examines the cost of a switch, for the claims about it."""
        claims = [claim for claim in self._run.lab.claims if claim.kind in OF_LEDGERS]
        if not claims:
            return
        try:
            spark = self._run.spark.result()
            self._found.switch = look(self._run.lab, lab_home(), claims, spark, self._run.timeout_s, self._run.report)
        except SparkEndedError as error:
            self._found.add("no_spark", None, {"reason": str(error)})
        except LabError as error:
            for claim in claims:
                self._found.findings.append(
                    Finding("inconclusive", "undecides", claim.id, details={"reason": str(error)})
                )

    def _finish_sampling(self) -> None:
        for region, sampler in self._samplers.items():
            for topic, samples in sampler.finish().items():
                self._found.latencies[region, topic] = samples
