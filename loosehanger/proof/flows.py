"""Flows: what the proof compares. One topic on its way through one mirror."""

from __future__ import annotations

from dataclasses import dataclass

from loosehanger.lab.mirrors.mirror import Mirror

FlowId = str
MirrorId = str


@dataclass(frozen=True)
class Flow:
    """One topic on its way from one region to another."""

    mirror: Mirror
    topic: str
    target_topic: str

    @property
    def id(self) -> FlowId:
        """What tells it from every other: two mirrors may bring one topic into one region."""
        return f"{self.mirror.id}/{self.topic}"

    @property
    def source(self) -> str:
        """The region that it comes from."""
        return self.mirror.source

    @property
    def target(self) -> str:
        """The region that it goes to."""
        return self.mirror.target
