"""Flows, which the proof compares: one topic through one mirror."""

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
        """Its unique id: two mirrors may copy one topic into one region."""
        return f"{self.mirror.id}/{self.topic}"

    @property
    def source(self) -> str:
        """The source region."""
        return self.mirror.source

    @property
    def target(self) -> str:
        """The target region."""
        return self.mirror.target
