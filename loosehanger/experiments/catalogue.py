"""The list of experiments. It needs only Python's standard library: help and completion need no installation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Experiment:
    """An experiment."""

    name: str
    shows: str
    """Its description in the list of experiments."""


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "read-where",
            "1 to 10 consumers read across the ocean, or a copy at home, and then all again: bytes, latency, speed",
        ),
        Experiment(
            "mirror-where",
            "a mirror beside its target or its source, with the kit's settings or MM2's defaults: speed and latency",
        ),
        Experiment(
            "write-where",
            "a producer writes at home and is mirrored, or across the ocean: acknowledgements, and what a cut does",
        ),
        Experiment(
            "compress",
            "who has to compress, and how, for fewer bytes to cross the ocean: the producer, the topic or the mirror",
        ),
    )
}
