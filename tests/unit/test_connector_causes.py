"""Why connectors are not as their manifest wants them, and since when."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from loosehanger.kafka.connector_causes import WorkerLogs, changed_settings, connector_causes, silent_causes
from loosehanger.problems import Problem, Rank

SOURCE, CHECKPOINT = "east->west.MirrorSourceConnector", "east->west.MirrorCheckpointConnector"
WHERE = "west, KafkaMirrorMaker2/mm2"
LOG = f"""\
2026-11-27 07:10:02,412 INFO  Setting connector {SOURCE} state to PAUSED (Worker)
2026-11-27 07:10:03,000 INFO  Setting connector {SOURCE} state to STARTED (Worker)
2026-11-27 07:11:02,412 INFO  Setting connector {SOURCE} state to PAUSED (Worker)
2026-11-27 07:12:00,500 ERROR [{SOURCE}|task-1] ExactlyOnceWorkerSourceTask{{id={SOURCE}-1}} Task threw an \
uncaught and unrecoverable exception. Task is being killed and will not recover until manually restarted (WorkerTask)
org.apache.kafka.connect.errors.ConnectException: Unrecoverable exception from producer send callback
"""
DENIED = (
    "org.apache.kafka.connect.errors.ConnectException: Unrecoverable exception from producer send callback\n"
    "\tat org.apache.kafka.connect.runtime.WorkerSourceTask.maybeThrowProducerSendException(WorkerSourceTask.java:1)\n"
    "Caused by: org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [LH.A]\n"
)


def at(text: str) -> float:
    """A time of the log, which is local."""
    return datetime.fromisoformat(text).astimezone().timestamp()


def causes(
    source: str, *tasks: str, want: str = "RUNNING", trace: str = DENIED, failures: dict[str, Any] | None = None
) -> list[Problem]:
    """The causes of a mirror with one source connector whose tasks are in these states."""
    listed = [
        {"id": number, "state": state, **({"trace": trace} if state == "FAILED" else {})}
        for number, state in enumerate(tasks)
    ]
    present = {SOURCE: {"connector": {"state": source}, "tasks": listed}}
    logs = WorkerLogs(lambda: [LOG])
    return list(connector_causes({SOURCE: want}, present, failures or {}, logs, where=WHERE, target="west"))


def test_a_paused_connector_is_one_cause_with_the_time_of_its_last_pause() -> None:
    text = f"connector {SOURCE} was paused by hand"
    assert causes("PAUSED", "PAUSED", "PAUSED") == [
        Problem(Rank.CONNECTOR, text, WHERE, at("2026-11-27 07:11:02.412"), "")
    ]


def test_a_stopped_connector_that_no_log_names_has_no_time() -> None:
    assert causes("STOPPED") == [Problem(Rank.CONNECTOR, f"connector {SOURCE} was stopped by hand", WHERE)]
    (found,) = causes("STOPPED", want="PAUSED")
    assert found.cause == f"connector {SOURCE} was stopped by hand and should be PAUSED"


def test_a_connector_that_runs_and_should_not() -> None:
    (found,) = causes("RUNNING", "RUNNING", want="STOPPED")
    assert found.cause == f"connector {SOURCE} runs, and its manifest wants it stopped"


def test_tasks_that_failed_for_the_same_reason_are_one_cause() -> None:
    (found,) = causes(
        "RUNNING", "FAILED", "FAILED", failures={SOURCE: {"restarts": 4, "reason": "", "running_seconds": 0}}
    )
    assert found == Problem(
        Rank.RIGHTS,
        f"a user of the mirror lacks a right on topic LH.A; {SOURCE} task 0, {SOURCE} task 1 failed "
        "and restarted 4 times",
        WHERE,
        at("2026-11-27 07:12:00.500"),
        "",
    )


def test_an_unknown_failure_names_the_log() -> None:
    (found,) = causes("RUNNING", "FAILED", trace="java.lang.IllegalStateException: odd\n\tat x")
    assert (found.rank, found.next) == (Rank.CONNECTOR, "./lab logs west/mm2")
    assert found.cause.startswith("java.lang.IllegalStateException: odd; ")


def test_a_connector_that_fails_again_and_again_is_named_between_its_failures() -> None:
    reason = "task 0 failed: org.apache.kafka.common.errors.RecordTooLargeException: too large (topic LH.BIG)"
    failure = {"restarts": 5, "reason": reason, "running_seconds": 3.0}
    (found,) = causes("RUNNING", "RESTARTING", failures={SOURCE: failure})
    assert found.cause == (
        "a record of topic LH.BIG is larger than west accepts (max.message.bytes of the topic); "
        f"task 0 of {SOURCE} fails again and again: restarted 5 times"
    )
    assert found.next == "./lab topic set west LH.BIG max.message.bytes=BYTES"
    assert causes("RUNNING", "RUNNING", failures={SOURCE: failure}) != [found]


def test_a_task_that_runs_since_its_right_was_given_back_is_not_said_to_lack_it() -> None:
    reason = "task 1 failed: org.apache.kafka.common.errors.TopicAuthorizationException: no (topic LH.A)"
    failure = {"restarts": 5, "reason": reason, "running_seconds": 12.4}
    (found,) = causes("RUNNING", "RUNNING", "RUNNING", failures={SOURCE: failure})
    assert found == Problem(
        # Its rank has the clusters asked: a right that is missing still takes the place of this.
        Rank.RIGHTS,
        f"task 1 of {SOURCE} was restarted 5 times and has run for 12 s; "
        "before that it failed: a user of the mirror lacks a right on topic LH.A",
        WHERE,
        at("2026-11-27 07:12:00.500"),
    )


def test_one_restart_that_helped_is_no_cause() -> None:
    assert causes("RUNNING", "RUNNING", failures={SOURCE: {"restarts": 1, "reason": "x", "running_seconds": 3.0}}) == []


def test_failures_that_have_ended_are_no_cause() -> None:
    failure = {"restarts": 5, "reason": "task 0 failed: x", "running_seconds": 3.0}
    assert causes("RUNNING", "RUNNING", failures={SOURCE: failure | {"running_seconds": 30.0}}) == []
    (found,) = causes("RUNNING", failures={SOURCE: failure})
    assert "has no task" in found.cause


def test_a_connector_without_tasks_and_one_that_is_missing() -> None:
    (found,) = causes("RUNNING")
    assert "has no task" in found.cause
    logs = WorkerLogs(list)
    (absent,) = connector_causes({CHECKPOINT: "RUNNING"}, {}, {}, logs, where=WHERE, target="west")
    assert absent == Problem(Rank.CONNECTOR, f"connector {CHECKPOINT} does not exist", WHERE)


def test_a_pattern_that_was_changed_by_hand_is_named_with_the_one_of_the_manifest() -> None:
    wanted = {SOURCE: {"topics": r"LH\..*", "tasks.max": "1", "target.cluster.sasl.jaas.config": "a"}, CHECKPOINT: {}}
    present = {SOURCE: {"topics": r"LX\..*", "tasks.max": "1", "target.cluster.sasl.jaas.config": "b"}}
    assert list(changed_settings(wanted, present, WHERE)) == [
        Problem(Rank.CONNECTOR, rf"connector {SOURCE} was changed by hand: topics is LX\..* in place of LH\..*", WHERE)
    ]
    assert list(changed_settings(wanted, {SOURCE: wanted[SOURCE]}, WHERE)) == []


def test_a_setting_that_was_added_or_removed_by_hand_is_named_too() -> None:
    (found,) = changed_settings({SOURCE: {"a": "1"}}, {SOURCE: {"emit.checkpoints.enabled": "false"}}, WHERE)
    assert found.cause.endswith("a is not set in place of 1, emit.checkpoints.enabled is false in place of not set")


REFUSED = f"""\
2026-11-27 07:20:00,100 ERROR [{SOURCE}|worker] MirrorSourceConnector caught exception in scheduled task: \
syncing topic configs (org.apache.kafka.connect.mirror.Scheduler:102)
java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.TopicAuthorizationException: Topic \
authorization failed.
\tat java.base/java.util.concurrent.CompletableFuture.reportGet(CompletableFuture.java:396)
Caused by: org.apache.kafka.common.errors.TopicAuthorizationException: Topic authorization failed.
2026-11-27 07:20:01,000 INFO  next
"""


def silent(log: str, now: str, *more: str, exactly_once: bool = False, looks_s: float = 0.0) -> list[Problem]:
    """The causes in a log at a time, and in those of further workers."""
    logs, options = WorkerLogs(lambda: [log, *more]), {"exactly_once": exactly_once, "looks_s": looks_s}
    return list(silent_causes(logs, where=WHERE, target="west", now=at(now), **options))  # type: ignore[arg-type]


def test_work_that_a_missing_right_prevents_is_named_as_long_as_it_is_refused() -> None:
    (found,) = silent(REFUSED, "2026-11-27 07:20:20")
    assert found == Problem(
        Rank.RIGHTS, "a user of the mirror lacks a right on a topic; it fails while syncing topic configs", WHERE
    )
    assert silent(REFUSED, "2026-11-27 07:21:00") == []
    late = REFUSED.replace("errors.TopicAuthorizationException", "errors.TimeoutException")
    assert silent(late, "2026-11-27 07:20:20") == []


def test_a_rebalance_that_does_not_end_is_named_and_one_that_has_ended_is_not() -> None:
    joins = "2026-11-27 07:30:00,000 INFO  [Worker clientId=connect-1, groupId=mm2] (Re-)joining group (Coordinator)\n"
    joined = "2026-11-27 07:30:01,000 INFO  [Worker clientId=connect-1] Successfully joined group with generation 3\n"
    assert silent(joins, "2026-11-27 07:30:05") == []
    (found,) = silent(joined + joins + joins.replace("07:30:00", "07:31:05"), "2026-11-27 07:31:10")
    assert (found.rank, found.since) == (Rank.CONNECTOR, at("2026-11-27 07:30:00"))
    assert "does not end" in found.cause
    assert silent(joins + joined, "2026-11-27 07:31:10") == []


def test_heartbeats_without_an_answer_raise_the_question_of_rights_while_the_log_has_them() -> None:
    log = (
        "2026-11-27 07:15:47,323 INFO  [Worker clientId=connect-1, groupId=mm2] Group coordinator is unavailable or "
        "invalid due to cause: session timed out without receiving a heartbeat response. (WorkerCoordinator)\n"
    )
    # ./lab status asks for the rights of a mirror with such a problem, and drops it where none is missing.
    assert [one.rank for one in silent(log, "2026-11-27 07:15:57")] == [Rank.RIGHTS]
    assert silent(log, "2026-11-27 07:16:57") == []


def test_a_source_that_refuses_to_be_read_is_named_with_its_topic() -> None:
    poll = (
        "2026-11-27 07:20:00,100 WARN  Failure during poll. (MirrorSourceTask)\n"
        "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [LH.A]\n"
    )
    (found,) = silent(poll, "2026-11-27 07:20:20")
    assert found.cause == "a user of the mirror lacks a right on topic LH.A; it fails while reading its source"
    assert silent(poll.replace("TopicAuthorization", "Timeout"), "2026-11-27 07:20:20") == []


@pytest.mark.parametrize(
    ("trace", "cause"),
    [
        (
            "org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed during authentication\n",
            "a user name or a password of the mirror is refused: Authentication failed during authentication",
        ),
        (
            "org.apache.kafka.common.errors.SslAuthenticationException: SSL handshake failed\n"
            "Caused by: sun.security.validator.ValidatorException: PKIX path validation failed\n"
            "Caused by: java.security.cert.CertificateExpiredException: NotAfter: Fri Nov 27 07:00:00 UTC 2026\n"
            "\tat a.B\n",
            "a certificate has expired on Fri Nov 27 07:00:00 UTC 2026",
        ),
        (
            "org.apache.kafka.common.errors.SslAuthenticationException: SSL handshake failed\n"
            "Caused by: java.security.SignatureException: Signature does not match.\n",
            "a certificate is not of the authority that the other side trusts: Signature does not match.",
        ),
    ],
    ids=("password", "expired", "authority"),
)
def test_a_mirror_that_may_not_sign_in_any_more_is_named_while_its_task_runs(trace: str, cause: str) -> None:
    poll = f"2026-11-27 07:20:00,100 WARN  Failure during poll. (MirrorSourceTask)\n{trace}"
    (found,) = silent(poll, "2026-11-27 07:20:20")
    assert (found.rank, found.cause) == (Rank.CONNECTOR, f"{cause}; it fails while reading its source")
    assert silent(poll, "2026-11-27 07:20:40") == []


@pytest.mark.parametrize(
    "text",
    [
        "{id=a->b.MirrorSourceConnector-0} Timed out waiting to flush offsets to storage; will try again on next flush",
        "{id=a->b.MirrorSourceConnector-0} Failed to flush offsets to storage: ",
        "{id=a->b.MirrorSourceConnector-0} Timed out while waiting for previous offset flush to complete, cancelling",
    ],
)
def test_a_flush_of_offsets_that_failed_is_named_for_half_a_minute(text: str) -> None:
    log = f"2026-11-27 07:20:00,100 ERROR {text} (WorkerSourceTask)\n"
    (found,) = silent(log, "2026-11-27 07:20:20")
    assert found.cause.startswith("a flush of offsets times out or fails, so the mirror's positions are not written")
    assert silent(log, "2026-11-27 07:20:40") == []
    usual = "2026-11-27 07:20:00,100 INFO  {id=a} Committing offsets (WorkerSourceTask)\n"
    assert silent(usual, "2026-11-27 07:20:20") == []


def test_a_flush_of_offsets_that_failed_doubles_nothing_with_exactly_once() -> None:
    text = "{id=a->b.MirrorSourceConnector-0} Failed to flush offsets to storage: "
    log = f"2026-11-27 07:20:00,100 ERROR {text} (ExactlyOnceWorkerSourceTask)\n"
    assert silent(log, "2026-11-27 07:20:20", exactly_once=True) == []
    assert silent(log, "2026-11-27 07:20:20") != []


UNKNOWN = """\
2026-11-27 07:20:00,100 WARN  [{source}|worker] Could not {work} LH.OLD.ORDERS. (MirrorSourceConnector)
java.util.concurrent.CompletionException: org.apache.kafka.common.errors.{exception}
\tat java.base/java.util.concurrent.CompletableFuture.encodeThrowable(Unknown Source)
Caused by: org.apache.kafka.common.errors.{exception}
2026-11-27 07:20:01,000 INFO  next
"""
FORMAT = "InvalidConfigurationException: Unknown topic config name: message.format.version"


def refused(exception: str = FORMAT, work: str = "create topic") -> str:
    """The log of a worker whose target refused a topic at 07:20:00.1."""
    return UNKNOWN.format(source=SOURCE, work=work, exception=exception)


def test_a_setting_that_the_target_does_not_know_is_named_with_its_topic_until_the_next_look() -> None:
    remedy = (
        "remove message.format.version from the topic at the source, or add it to config.properties.exclude of the "
        "mirror's source connector, beside the names that are excluded by default"
    )
    begun, place = at("2026-11-27 07:20:00.100"), f"{WHERE}, topic LH.OLD.ORDERS"
    cause = (
        "west refuses to create topic LH.OLD.ORDERS: its source has the setting message.format.version, which west "
        "does not know; what the mirror reads after its first record waits for it"
    )
    assert silent(refused(), "2026-11-27 07:20:20") == [Problem(Rank.TOPIC, cause, place, begun, remedy)]
    (found,) = silent(refused(work="alter configuration of topic"), "2026-11-27 07:20:20")
    assert found == Problem(
        Rank.TOPIC,
        "west refuses to change the settings of topic LH.OLD.ORDERS: its source has the setting "
        "message.format.version, which west does not know",
        place,
        begun,
        remedy,
    )
    assert silent(refused(), "2026-11-27 07:25:00") == []
    assert len(silent(refused(), "2026-11-27 07:25:00", looks_s=600)) == 1


def test_a_topic_that_was_created_since_or_was_changed_is_no_problem() -> None:
    created = "2026-11-27 07:20:05,000 INFO  Created remote topic LH.OLD.ORDERS with 3 partitions. (Mirror)\n"
    assert silent(refused() + created, "2026-11-27 07:20:20") == []
    assert silent(refused(), "2026-11-27 07:20:20", created) == []
    assert len(silent(created.replace("07:20:05", "07:19:00") + refused(), "2026-11-27 07:20:20")) == 1
    # The same text where nothing went wrong (KAFKA-20017).
    plain = "".join(refused(work="alter configuration of topic").splitlines(keepends=True)[::4])
    assert "Could not alter" in plain
    assert silent(plain, "2026-11-27 07:20:20") == []
    for other in ("TopicExistsException: Topic 'LH.OLD.ORDERS' already exists.", "TimeoutException: Timed out"):
        assert silent(refused(other), "2026-11-27 07:20:20") == []


def test_any_other_refusal_of_a_topic_keeps_its_own_words_and_a_missing_right_is_one() -> None:
    (found,) = silent(
        refused("InvalidTopicException: Topic 'LH.OLD.ORDERS' collides with existing topics: LH.OLD_ORDERS"),
        "2026-11-27 07:20:20",
    )
    assert found.cause.startswith(
        "west refuses to create topic LH.OLD.ORDERS: Topic 'LH.OLD.ORDERS' collides with existing topics: "
        "LH.OLD_ORDERS; what"
    )
    (found,) = silent(refused("TopicAuthorizationException: Authorization failed."), "2026-11-27 07:20:20")
    assert (found.rank, found.where) == (Rank.RIGHTS, WHERE)
