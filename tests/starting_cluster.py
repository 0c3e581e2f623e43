"""The connection manager of kafka-python in front of a cluster that starts; tests/lab has real ones."""

from __future__ import annotations

from typing import Any

from kafka.cluster import ClusterMetadata
from kafka.protocol.metadata import MetadataResponse


class Starting:
    """A cluster whose second node, its controller, starts while a client is there."""

    broker_version = (4, 0)

    def __init__(self) -> None:
        self.cluster = ClusterMetadata(bootstrap_servers=["127.0.0.1:9091"])
        self.cluster.update_metadata(self.answer(1))
        self.answers = [self.answer(1, 2)]
        """What the client gets, one after the other; the last one from then on."""
        self.cluster._manager = self

    @staticmethod
    def answer(*nodes: int) -> Any:
        """An answer that lists some of the nodes."""
        brokers = [
            MetadataResponse.MetadataResponseBroker(node, "127.0.0.1", 9090 + node, None, version=8) for node in nodes
        ]
        return MetadataResponse(version=8, brokers=brokers, cluster_id="c", controller_id=2, topics=[])

    async def send(self, _: Any, node: int | None = None) -> Any:  # noqa: ARG002
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def least_loaded_node(self) -> int:
        return 1

    def reset_backoff(self, _: str) -> None:
        pass
