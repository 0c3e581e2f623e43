"""Which topic a mirror's task failed for: Connect's interface shows the reason, and only its log the topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from loosehanger.kafka.stalled import worker_logs
from loosehanger.stack_traces import innermost_cause, topic_of


def name_topics(
    present: Mapping[str, Mapping[str, Any]], home: Path | None, region: str, mirror: str
) -> dict[str, Mapping[str, Any]]:
    """Adds the topic to the reason of each task that failed for one.

    Args:
        present: by connector, what Connect says of it, with ``tasks``.
        home: the lab's home; None where it is another machine's.
        region: the region that the mirror runs in.
        mirror: its name.

    Returns:
        The same; the trace of such a task ends in its reason and the topic.
    """
    return name_topics_from(present, lambda: worker_logs(home, region, mirror))


def name_topics_from(
    present: Mapping[str, Mapping[str, Any]], read_logs: Callable[[], Iterable[str]]
) -> dict[str, Mapping[str, Any]]:
    """Does the same with logs from anywhere.

    Args:
        present: by connector, what Connect says of it, with ``tasks``.
        read_logs: reads the ends of the logs of a mirror's workers; called only if a task has failed.
    """
    logs: list[str] | None = None
    named: dict[str, Mapping[str, Any]] = {}
    for connector, status in present.items():
        tasks = []
        for task in status.get("tasks") or ():
            reason = innermost_cause(task.get("trace"))
            if reason and logs is None:
                logs = list(read_logs())
            of_task = (topic_of(log, f"{connector}-{task['id']}", reason) for log in logs or () if reason)
            topic = next(filter(None, of_task), "")
            more = {"trace": f"{task['trace'].rstrip()}\nCaused by: {reason} (topic {topic})\n"} if topic else {}
            tasks.append({**task, **more})
        named[connector] = {**status, "tasks": tasks} if tasks else status
    return named
