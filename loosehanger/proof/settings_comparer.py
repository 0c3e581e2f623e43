"""Compares the settings of the topics beside everything else, in threads of its own."""

from __future__ import annotations

from concurrent.futures import Future

from loosehanger.errors import UnreachableError
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.proof.compare.configurations import Settings, config_differences, considered
from loosehanger.proof.flows import MirrorId
from loosehanger.proof.run import ProofRun

_CONFIG_TIMEOUT_S = 15.0


class SettingsComparer:
    """Compares the settings of mirrored topics with those of their sources.

    Args:
        run: the proof's run, whose evidence gets the differences and the findings.
    """

    def __init__(self, run: ProofRun) -> None:
        self._run = run
        self._found = run.evidence
        self._comparing: dict[MirrorId, Future[Settings]] = {}

    def start(self) -> None:
        """Starts a thread for each mirror; MM2 has some seconds to synchronise what differs."""
        # Settings that are not judged need not become equal.
        timeout_s = min(self._run.timeout_s, _CONFIG_TIMEOUT_S) if self._found.handling == "judge" else 0.0
        self._comparing = {
            key: self._run.threads.submit(self._compare, mirror, timeout_s)
            for key, mirror in self._run.mirrors().items()
            if not mirror.hops  # equal settings at each hop make equal ends
        }

    def _compare(self, mirror: Mirror, timeout_s: float) -> Settings:
        topics = {flow.topic: flow.target_topic for flow in self._found.flows if flow.mirror == mirror}
        with self._run.cluster_of(mirror.source) as source, self._run.cluster_of(mirror.target) as target:
            return config_differences(source, target, topics, timeout_s)

    def collect(self) -> None:
        """Waits for the threads, and adds what differs."""
        for key, mirror in self._run.mirrors().items():
            if key not in self._comparing:
                continue
            try:
                different, unknown = self._comparing[key].result()
            except UnreachableError as error:
                self._found.add("unreachable", mirror, {"reason": str(error)})
                continue
            except Exception as error:
                reason = f"the settings could not be compared: {self._run.defect(error)}"
                self._found.add("failed", mirror, {"mirror": mirror.name, "reason": reason})
                continue
            for flow in self._found.flows:
                if flow.mirror != mirror:
                    continue
                # Of a topic that cannot be seen, the only difference would be that it is not there.
                if flow.topic in different and flow.id not in self._found.hidden:
                    self._found.configs[flow.id] = considered(different[flow.topic], self._found.handling)
                if flow.topic in unknown and flow.id not in self._found.inconclusive:
                    self._found.add("settings_unknown", flow, {"lacks": unknown[flow.topic]})
