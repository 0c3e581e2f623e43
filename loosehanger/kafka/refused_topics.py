"""Topics that a mirror's target refuses to create or to change, by the logs of the mirror's workers.

MM2 asks for a topic with the settings of its source, and logs a refusal at each look for topics. Its connector
and its tasks keep running: the first record of such a topic waits for it, and so does all that its task reads later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from loosehanger.kafka.failure_causes import explain
from loosehanger.problems import Problem, Rank
from loosehanger.stack_traces import innermost_cause

_REFUSED = re.compile(
    r"^\[?\d{4}-[^\n]*Could not (?P<work>create topic|alter configuration of topic) (?P<topic>[\w.-]+)\.[^\n]*\n"
    r"(?P<trace>(?:[^\[\d\n][^\n]*\n)*)",
    re.MULTILINE,
)
_FINAL = re.compile(
    r"(?:InvalidConfiguration|InvalidTopic|InvalidReplicationFactor|InvalidPartitions|PolicyViolation|\w*Authorization)"
    r"Exception\b"
)
"""What the next look for topics meets again; a broker that does not answer has a cause of its own."""
_CREATED = "Created remote topic {topic} with "
_CREATE = "create topic"
_UNKNOWN = re.compile(r"InvalidConfigurationException: Unknown topic config name: ([\w.-]+)")
TimeOf = Callable[[str, int], float | None]
"""The time of the line at a place of a log."""


class RefusedTopic(NamedTuple):
    """A topic at the target, and why it was refused last."""

    topic: str
    is_new: bool
    """Whether it could not be created; otherwise its settings could not be changed."""
    exception: str
    at: float


def refused_topics(logs: Sequence[str], time_of: TimeOf, after: float) -> list[RefusedTopic]:
    """Returns the topics that were refused, and not created since.

    Args:
        logs: the ends of the logs of a mirror's workers.
        time_of: reads the time of a line.
        after: in seconds since the epoch; what was logged before it does not count.
    """
    found: dict[tuple[str, str], RefusedTopic] = {}
    for log in logs:
        for entry in _REFUSED.finditer(log):
            topic, at, exception = entry["topic"], time_of(log, entry.start()), innermost_cause(entry["trace"])
            # MM2 logs the same line, without an exception, after each change that succeeds (KAFKA-20017).
            if at is not None and at >= after and _FINAL.search(exception):
                key, before = (entry["work"], topic), found.get((entry["work"], topic))
                if before is None or before.at <= at:
                    found[key] = RefusedTopic(topic, entry["work"] == _CREATE, exception, at)

    def created(topic: str) -> float:
        places = ((log, log.rfind(_CREATED.format(topic=topic))) for log in logs)
        return max((time_of(log, place) or 0.0 for log, place in places if place >= 0), default=0.0)

    return [one for one in found.values() if not (one.is_new and created(one.topic) >= one.at)]


def refused_topic_causes(refused: Iterable[RefusedTopic], *, where: str, target: str) -> Iterator[Problem]:
    """The problems of a mirror whose target refuses topics or their settings.

    Args:
        refused: as from ``refused_topics``.
        where: the region and the mirror, for the user.
        target: the region that it writes to.
    """
    for one in refused:
        what = f"{target} refuses to {'create' if one.is_new else 'change the settings of'} topic {one.topic}"
        waits = "; what the mirror reads after its first record waits for it" if one.is_new else ""
        place = f"{where}, topic {one.topic}"
        if unknown := _UNKNOWN.search(one.exception):
            remedy = (
                f"remove {unknown[1]} from the topic at the source, or add it to config.properties.exclude of the "
                "mirror's source connector, beside the names that are excluded by default"
            )
            cause = f"{what}: its source has the setting {unknown[1]}, which {target} does not know{waits}"
            yield Problem(Rank.TOPIC, cause, place, one.at, remedy)
            continue
        known = explain(one.exception, target)
        if known and known.rights:
            yield Problem(Rank.RIGHTS, f"{known.cause}; {what}", where)
            continue
        message = known.cause if known else one.exception.rpartition("Exception: ")[2]
        remedy = known.remedy if known else f"./lab kafka {target} topics --list"
        yield Problem(Rank.TOPIC, f"{what}: {message}{waits}", place, one.at, remedy)
