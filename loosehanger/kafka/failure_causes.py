"""The cause of a failed connector or task in words, from the last exception of its trace, and its remedy.

Connect's interface has only the trace. Kafka's exceptions name neither the setting to change nor the cluster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_REASON = re.compile(
    r"(?:[\w.$]*[.$])?(?P<name>[A-Z]\w*)(?:: (?P<message>.*?))??(?: \(topic (?P<topic>[\w.-]+)\))?$", re.DOTALL
)
"""An exception as the first line of a trace shows it, with the topic that ``failed_topics`` adds."""
_SIZE = re.compile(r"The message is (\d+) bytes")
_LIMIT = re.compile(r"larger than (\d+)")
_TIME = re.compile(r"Timestamp (-?\d+) of message .* within \[(-?\d+),")
_TOPICS = re.compile(r"access topics: \[([^\]]*)\]")
_NAMED = re.compile(r"access (?:group|transactionalId): (\S+)")
_ENDED = re.compile(r"NotAfter: (.+)")
_OTHER_NAME = re.compile(r"No name matching|No subject alternative")
_ALERT = re.compile(r"fatal alert: ((?:bad_|unsupported_)?certificate\w*|unknown_ca)")
_SET = "./lab topic set {target} {topic} {setting}"


class FailureCause(NamedTuple):
    """Why a connector or task failed, and what to do."""

    cause: str
    remedy: str
    """A command or an imperative; empty to apply the stage's manifests again."""
    rights: bool = False
    """Whether a right is missing."""


def explain(reason: str, target: str) -> FailureCause | None:
    """Returns the cause of a failure; None for an exception that has no better words than its own.

    Args:
        reason: the innermost cause of a trace, with the topic if that is known.
        target: the region that the mirror writes to.
    """
    found = _REASON.search(reason.strip())
    if found is None:
        return None
    name, message, topic = found["name"], found["message"] or "", found["topic"] or ""
    about = topic or "TOPIC"
    if name == "RecordTooLargeException":
        return _too_large(message, topic, target)
    if name in _RIGHTS:
        return FailureCause(f"a user of the mirror lacks a right on {_lacking(name, message, topic)}", "", rights=True)
    if name == "InvalidTimestampException":
        return _out_of_range(message, topic, target)
    if refused := refused_sign_in(reason):
        return FailureCause(refused, "")
    if name == "IOException" and "No space left on device" in message:
        return FailureCause("the disk is full", "df -h")
    if name in _PLAIN:
        words = {"records": _records_of(topic), "topic": about, "target": target}
        cause, remedy = _PLAIN[name]
        return FailureCause(cause.format(**words), remedy.format(**words))
    return None


def refused_sign_in(reason: str) -> str:
    """Returns why a cluster refuses a client, or a client a cluster, before any request; empty for other failures.

    Args:
        reason: the innermost cause of a trace.
    """
    found = _REASON.search(reason.strip())
    name, message = (found["name"], found["message"] or "") if found else ("", "")
    if name == "CertificateExpiredException":
        ended = _ENDED.search(message)
        return f"a certificate has expired{f' on {ended[1]}' if ended else ''}"
    if name in ("SunCertPathBuilderException", "ValidatorException") and "valid certification path" in message:
        return "a certificate was issued by an authority that the other side does not trust"
    if name == "SignatureException":
        return f"a certificate is not of the authority that the other side trusts: {message}"
    if name == "CertificateException" and _OTHER_NAME.search(message):
        return f"a broker's certificate is not for the name that it was reached by: {message}"
    if name == "SSLHandshakeException" and (alert := _ALERT.search(message)):
        return f"a broker asks for a client certificate, or refuses the mirror's: {alert[1]}"
    if name == "UnsupportedSaslMechanismException":
        return f"a mechanism of the mirror is not offered: {message}"
    if name == "SaslAuthenticationException":
        what = "a token" if "invalid_token" in message else "a user name or a password"
        return f"{what} of the mirror is refused: {message}"
    return ""


def _records_of(topic: str) -> str:
    return f"records of topic {topic}" if topic else "records"


def _too_large(message: str, topic: str, target: str) -> FailureCause:
    size, limit = _SIZE.search(message), _LIMIT.search(message)
    record = f"a record of topic {topic}" if topic else "a record"
    if size and limit:
        return FailureCause(
            f"{record} has {int(size[1]):,} bytes, more than the mirror's producer may send "
            f"(max.request.size is {int(limit[1]):,})",
            f"set producer.override.max.request.size above {size[1]} in the mirror's manifest, "
            f"and max.message.bytes of the topic in {target}",
        )
    return FailureCause(
        f"{record} is larger than {target} accepts (max.message.bytes of the topic)",
        _SET.format(target=target, topic=topic or "TOPIC", setting="max.message.bytes=BYTES"),
    )


def _out_of_range(message: str, topic: str, target: str) -> FailureCause:
    before, after = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
    limit, excess = before, f"older or newer than {before} and {after} allow"
    if found := _TIME.search(message):
        is_old = int(found[1]) < int(found[2])
        limit = before if is_old else after
        excess = f"{'older' if is_old else 'newer'} than {limit} allows"
    return FailureCause(
        f"{target} refuses the timestamps of {_records_of(topic)}: they are {excess}",
        _SET.format(target=target, topic=topic or "TOPIC", setting=f"{limit}=9223372036854775807"),
    )


def _lacking(name: str, message: str, topic: str) -> str:
    """What the mirror's user may not use."""
    if name == "TopicAuthorizationException":
        listed = _TOPICS.search(message)
        return f"topic {found}" if (found := topic or (listed[1] if listed else "")) else "a topic"
    named = _NAMED.search(message)
    return f"{_RIGHTS[name]} {named[1]}" if named else f"a {_RIGHTS[name]}"


_RIGHTS = {
    "TopicAuthorizationException": "topic",
    "GroupAuthorizationException": "group",
    "TransactionalIdAuthorizationException": "transactional id",
    "ClusterAuthorizationException": "cluster",
}
"""By exception: the kind of resource that a right is missing for."""
_PLAIN: Mapping[str, tuple[str, str]] = {
    "UnknownTopicOrPartitionException": (
        "a topic or partition that the mirror needs does not exist in {target}: {topic}",
        "./lab kafka {target} topics --describe --topic {topic}",
    ),
    "NotEnoughReplicasException": (
        "{target} has fewer in-sync replicas than min.insync.replicas, so it accepts no {records}",
        "./lab kafka {target} topics --describe --under-min-isr-partitions",
    ),
    "UnsupportedCompressionTypeException": (
        "{records} are compressed in a way that one of the clusters does not support",
        "./lab kafka {target} topics --describe --topic {topic}",
    ),
    "ProducerFencedException": (
        "another producer uses the mirror's transactional id: a second copy of the mirror runs",
        "./lab kafka {target} transactions list",
    ),
    "UnsupportedVersionException": (
        "a cluster is too old for a request of the mirror",
        "./lab kafka {target} broker-api-versions",
    ),
}
"""By exception: the cause, and the command."""
