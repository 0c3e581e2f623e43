"""A mirror that fails, and fails again as soon as it is started: nothing calls it running, and every view says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loosehanger.kafka.connector_states import connector_problems
from loosehanger.kafka.failed_topics import name_topics
from loosehanger.platforms.local.auto_restart import Watched
from loosehanger.platforms.local.status import restarted
from loosehanger.stack_traces import innermost_cause

TRACE = """\
org.apache.kafka.common.KafkaException: Cannot execute transactional method because we are in an error state
\tat org.apache.kafka.clients.producer.internals.TransactionManager.maybeFailWithError(TransactionManager.java:1)
Caused by: org.apache.kafka.common.errors.RecordTooLargeException: The message is 10000088 bytes
"""
REASON = "task 1 failed: org.apache.kafka.common.errors.RecordTooLargeException: The message is 10000088 bytes"


def status(*tasks: str) -> dict[str, Any]:
    """Connect's status of a connector with tasks in these states."""
    return {
        "connector": {"state": "RUNNING"},
        "tasks": [
            {"id": number, "state": state} | ({"trace": TRACE} if state == "FAILED" else {})
            for number, state in enumerate(tasks)
        ],
    }


def problems(found: dict[str, Any]) -> list[str]:
    """What status says of a connector that should run."""
    return [said for _, said in connector_problems({"a->b": "RUNNING"}, {"a->b": found})]


@pytest.mark.parametrize(
    ("trace", "said"),
    [
        (TRACE, "org.apache.kafka.common.errors.RecordTooLargeException: The message is 10000088 bytes"),
        (
            "a.B: no\n\tat x\nCaused by: c.D: why\n\tat y\nCaused by: e.F: that is why\n\t... 3 more\n",
            "e.F: that is why",
        ),
        ("\n\n  a.B: no\n\tat x", "a.B: no"),
        ("", ""),
        (None, ""),
    ],
)
def test_the_innermost_cause_is_told(trace: str | None, said: str) -> None:
    assert innermost_cause(trace) == said


def test_what_fails_again_and_again_is_never_healthy() -> None:
    watched, now, restarts = Watched(), 1000.0, 0
    while now < 1200:
        # It fails a second after each start.
        restarts += watched.look(status("RUNNING", "FAILED"), None, now)
        now += 2
        watched.look(status("RUNNING", "RESTARTING"), None, now)
        watched.look(status("RUNNING", "RUNNING"), None, now)
        if watched.restarts > 1:
            summary = watched.summary(now)
            problem = restarted("a->b", status("RUNNING", "RUNNING"), summary)
            assert problem == f"a->b was restarted {restarts} times and has run for 0 s since {REASON}"
            restarting = status("RUNNING", "RESTARTING")
            assert problems(restarting) == ["a->b task 1 is RESTARTING"]
            assert restarted("a->b", restarting, summary).endswith(f"the last time because {REASON}")
        assert REASON.removeprefix("task 1 failed: ") in problems(status("RUNNING", "FAILED"))[0]
    assert restarts > 3


def test_a_task_that_hangs_on_its_start_is_not_forgotten() -> None:
    watched = Watched()
    assert watched.look(status("RUNNING", "FAILED"), None, 1000)
    for now in range(1002, 1300, 2):
        assert not watched.look(status("RUNNING", "RESTARTING"), None, now)
    assert watched.summary(1300)["reason"] == REASON
    watched.look(status("RUNNING", "RUNNING"), None, 1302)
    assert watched.restarts == 1, "it counts from the start when it has been running for a minute, not earlier"
    watched.look(status("RUNNING", "RUNNING"), None, 1360)
    assert (watched.restarts, watched.reason) == (0, "")


def test_a_restart_that_helped_is_no_problem() -> None:
    watched = Watched()
    watched.look(status("FAILED"), None, 1000)
    assert problems(status("RUNNING")) == []
    assert restarted("a->b", status("RUNNING"), watched.summary(1002)) == ""


def test_it_gives_up_and_says_why() -> None:
    watched = Watched()
    assert [watched.look(status("FAILED"), 2, 1000 + 100 * n) for n in range(4)] == [True, True, False, False]


CAUSE = "org.apache.kafka.common.errors.RecordTooLargeException: The message is 10000088 bytes"
LOG = f"""\
2026-01-01 00:00:00,000 ERROR ExactlyOnceWorkerSourceTask{{id=a->b-0}} failed to send record to LH.OTHER:  (Task)
org.apache.kafka.common.errors.InvalidTimestampException: too old
2026-01-01 00:00:01,000 ERROR ExactlyOnceWorkerSourceTask{{id=a->b-1}} failed to send record to LH.BIG:  (Task)
org.apache.kafka.common.errors.RecordTooLargeException: The record of offset 7 is too large
2026-01-01 00:00:01,001 ERROR ExactlyOnceWorkerSourceTask{{id=a->b-1}} failed to send record to LH.NEXT:  (Task)
org.apache.kafka.common.KafkaException: Cannot execute transactional method because we are in an error state
\tat org.apache.kafka.clients.producer.internals.TransactionManager.maybeFailWithError(TransactionManager.java:1)
Caused by: {CAUSE}
2026-01-01 00:00:02,000 ERROR ExactlyOnceWorkerSourceTask{{id=a->b-1}} Task threw an uncaught exception (Task)
{TRACE}"""


def test_a_task_that_failed_for_a_topic_names_it(tmp_path: Path) -> None:
    logs = tmp_path / "regions" / "b" / "logs"
    logs.mkdir(parents=True)
    (logs / "mm2-0.log").write_text(LOG, encoding="utf-8")
    found = name_topics({"a->b": status("RUNNING", "FAILED", "FAILED")}, tmp_path, "b", "mm2")
    assert problems(dict(found["a->b"])) == [
        f"a->b task 1 is FAILED: {CAUSE} (topic LH.BIG)",
        f"a->b task 2 is FAILED: {CAUSE}",
    ]
    watched = Watched()
    watched.look(found["a->b"], None, 1000.0)
    assert watched.reason == f"{REASON} (topic LH.BIG)"


def test_the_first_record_of_the_last_attempt_names_the_topic(tmp_path: Path) -> None:
    begun = "INFO ExactlyOnceWorkerSourceTask{id=a->b-1} Source task finished initialization and start (Task)\n"

    def attempt(*topics: str) -> str:
        lines = [
            f"2026-01-01 00:00:01,000 ERROR ExactlyOnceWorkerSourceTask{{id=a->b-1}} failed to send record to {topic}: "
            f" (Task)\n{CAUSE}\n"
            for topic in topics
        ]
        return f"2026-01-01 00:00:00,000 {begun}" + "".join(lines)

    logs = tmp_path / "regions" / "b" / "logs"
    logs.mkdir(parents=True)
    text = attempt("LH.EARLIER") + attempt("LH.BIG", "LH.INNOCENT", "LH.EARLIER")
    (logs / "mm2-0.log").write_text(text, encoding="utf-8")
    found = name_topics({"a->b": status("RUNNING", "FAILED")}, tmp_path, "b", "mm2")
    assert problems(dict(found["a->b"])) == [f"a->b task 1 is FAILED: {CAUSE} (topic LH.BIG)"]


def test_a_worker_whose_log_is_elsewhere_leaves_the_reason_as_it_is(tmp_path: Path) -> None:
    present = {"a->b": status("FAILED")}
    assert name_topics(present, None, "b", "mm2") == name_topics(present, tmp_path, "b", "mm2") == present
