"""Asks all regions side by side, and leaves out of a round those that do not answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import wait
from typing import Any

from kafka import TopicPartition

from loosehanger.audit.balance import RegionPartition
from loosehanger.audit.region_reader import RegionReader
from loosehanger.audit.scope import Inventory
from loosehanger.errors import UnreachableError

_PATIENCE_S, _FIRST_S = 15.0, 60.0
"""A region that takes longer is left out of a round. The first one has Spark's start in it, and a sign-in for each
partition."""


class Regions:
    """The regions of a watch.

    Args:
        readers: of each region.
    """

    def __init__(self, readers: Mapping[str, RegionReader]) -> None:
        self.readers = readers
        self.problems: dict[str, str] = {}
        """Of this round, by region."""
        self.inventories: dict[str, Inventory] = {}
        """All topics of the regions that have answered."""
        self._patience_s = _FIRST_S

    def begin_round(self) -> None:
        """Forgets the problems of the last round."""
        self.problems = {}

    def end_round(self) -> None:
        """From the second round on, no region is waited for as long as in the first."""
        self._patience_s = _PATIENCE_S

    def ask(self, questions: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
        """Asks the regions in parallel; one that does not answer is noted as a problem of this round, and left out.

        Args:
            questions: for each region a function, and its arguments.

        Raises:
            LabError: the reader has ended for good, as Spark may.
        """
        asked = {}
        for name, (question, *arguments) in questions.items():
            if self.readers[name].busy:
                self.problems.setdefault(name, f"{name} has not answered yet")
            elif name not in self.problems:
                asked[name] = self.readers[name].ask(question, *arguments)
        wait(asked.values(), timeout=self._patience_s)
        answers = {}
        for name, future in asked.items():
            try:
                if future.done():
                    answers[name] = future.result()
                else:
                    self.problems[name] = f"{name} has not answered yet"
            except UnreachableError as error:
                self.problems[name] = str(error)
            except KeyError as error:
                # Kafka leaves deleted topics out; the next look finds that out.
                self.problems[name] = f"{name}: {error.args[0]} no longer exists"
        return answers

    def look(self, names: Iterable[str]) -> set[str]:
        """Lists the topics of these regions; returns those that have answered."""
        answered = self.ask({name: (self.readers[name].cluster.inventory,) for name in names})
        self.inventories |= answered
        return set(answered)

    def ends(self, places: Iterable[RegionPartition]) -> dict[RegionPartition, int]:
        """High watermarks; 0 for a partition that does not exist."""
        wanted = set(places)
        # A partition that was missing at the last look may exist by now, and have been copied.
        doubtful = {place.region for place in wanted if self._is_missing(place)} & self.readers.keys()
        looked = self.look(doubtful)
        missing = {place: 0 for place in wanted if place.region in looked and self._is_missing(place)}
        by_region: dict[str, set[TopicPartition]] = {}
        for place in wanted:
            if not self._is_missing(place):
                by_region.setdefault(place.region, set()).add(TopicPartition(place.topic, place.partition))
        found = self.ask(
            {
                name: (self.readers[name].cluster.written_offsets, of_region)
                for name, of_region in by_region.items()
                if name in self.readers
            }
        )
        return missing | {
            RegionPartition(name, place.topic, place.partition): end
            for name, ends in found.items()
            for place, end in ends.items()
        }

    def starts(self, places: Iterable[RegionPartition]) -> dict[RegionPartition, int]:
        """Where the logs of these partitions begin; without the regions that do not answer."""
        by_region: dict[str, set[TopicPartition]] = {}
        for place in places:
            if place.region in self.readers and not self._is_missing(place):
                by_region.setdefault(place.region, set()).add(TopicPartition(place.topic, place.partition))
        found = self.ask(
            {name: (self.readers[name].cluster.start_offsets, of_region) for name, of_region in by_region.items()}
        )
        return {
            RegionPartition(name, *place): start for name, starts in found.items() for place, start in starts.items()
        }

    def _is_missing(self, place: RegionPartition) -> bool:
        """Whether the partition did not exist at the last look at its region."""
        topics = self.inventories.get(place.region)
        return topics is not None and place.partition >= topics.get(place.topic, ("", 0))[1]
