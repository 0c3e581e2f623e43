"""The last exception of a trace in words, and its remedy: with the messages that Kafka 4.3 and Java 21 write."""

from __future__ import annotations

import pytest

from loosehanger.kafka.failure_causes import explain, refused_sign_in

ERRORS = "org.apache.kafka.common.errors."


@pytest.mark.parametrize(
    ("reason", "cause", "remedy", "rights"),
    [
        (
            f"{ERRORS}RecordTooLargeException: The message is 1500088 bytes when serialized which is larger than "
            "1048576, which is the value of the max.request.size configuration. (topic LH.BIG)",
            "a record of topic LH.BIG has 1,500,088 bytes, more than the mirror's producer may send "
            "(max.request.size is 1,048,576)",
            "set producer.override.max.request.size above 1500088 in the mirror's manifest, and max.message.bytes "
            "of the topic in west",
            False,
        ),
        (
            f"{ERRORS}RecordTooLargeException: The request included a message larger than the max message size the "
            "server will accept. (topic LH.BIG)",
            "a record of topic LH.BIG is larger than west accepts (max.message.bytes of the topic)",
            "./lab topic set west LH.BIG max.message.bytes=BYTES",
            False,
        ),
        (
            f"{ERRORS}TopicAuthorizationException: Not authorized to access topics: [LH.ORDERS]",
            "a user of the mirror lacks a right on topic LH.ORDERS",
            "",
            True,
        ),
        (
            f"{ERRORS}TopicAuthorizationException: Topic authorization failed. (topic LH.STOCK)",
            "a user of the mirror lacks a right on topic LH.STOCK",
            "",
            True,
        ),
        (
            f"{ERRORS}GroupAuthorizationException: Not authorized to access group: mm2-na",
            "a user of the mirror lacks a right on group mm2-na",
            "",
            True,
        ),
        (
            f"{ERRORS}TransactionalIdAuthorizationException: Transactional Id authorization failed.",
            "a user of the mirror lacks a right on a transactional id",
            "",
            True,
        ),
        (
            f"{ERRORS}ClusterAuthorizationException: Cluster authorization failed.",
            "a user of the mirror lacks a right on a cluster",
            "",
            True,
        ),
        (
            f"{ERRORS}InvalidTimestampException: Timestamp 1262304000000 of message with offset 0 is out of range. "
            "The timestamp should be within [1795000000000, 1795600000000] (topic LH.OLD)",
            "west refuses the timestamps of records of topic LH.OLD: they are older than "
            "message.timestamp.before.max.ms allows",
            "./lab topic set west LH.OLD message.timestamp.before.max.ms=9223372036854775807",
            False,
        ),
        (
            f"{ERRORS}InvalidTimestampException: Timestamp 1795900000000 of message with offset 0 is out of range. "
            "The timestamp should be within [-9223370241854775807, 1795600000000] (topic LH.AHEAD)",
            "west refuses the timestamps of records of topic LH.AHEAD: they are newer than "
            "message.timestamp.after.max.ms allows",
            "./lab topic set west LH.AHEAD message.timestamp.after.max.ms=9223372036854775807",
            False,
        ),
        (
            f"{ERRORS}InvalidTimestampException: Timestamp of a message is out of acceptable range.",
            "west refuses the timestamps of records: they are older or newer than message.timestamp.before.max.ms and "
            "message.timestamp.after.max.ms allow",
            "./lab topic set west TOPIC message.timestamp.before.max.ms=9223372036854775807",
            False,
        ),
        (
            f"{ERRORS}SaslAuthenticationException: Authentication failed during authentication due to invalid "
            "credentials with SASL mechanism SCRAM-SHA-512",
            "a user name or a password of the mirror is refused: Authentication failed during authentication due to "
            "invalid credentials with SASL mechanism SCRAM-SHA-512",
            "",
            False,
        ),
        (
            "java.security.cert.CertificateExpiredException: NotAfter: Fri Nov 27 07:00:00 UTC 2026",
            "a certificate has expired on Fri Nov 27 07:00:00 UTC 2026",
            "",
            False,
        ),
        (
            "sun.security.provider.certpath.SunCertPathBuilderException: unable to find valid certification path to "
            "requested target",
            "a certificate was issued by an authority that the other side does not trust",
            "",
            False,
        ),
        (
            f"{ERRORS}UnknownTopicOrPartitionException: This server does not host this topic-partition. (topic LH.A)",
            "a topic or partition that the mirror needs does not exist in west: LH.A",
            "./lab kafka west topics --describe --topic LH.A",
            False,
        ),
        ("java.io.IOException: No space left on device", "the disk is full", "df -h", False),
    ],
)  # fmt: skip
def test_a_failure_has_a_cause_and_a_remedy(reason: str, cause: str, remedy: str, rights: bool) -> None:
    assert explain(reason, "west") == (cause, remedy, rights)


@pytest.mark.parametrize(
    "reason", ["", "java.lang.NullPointerException", "it left no trace", "java.io.IOException: reset"]
)
def test_any_other_failure_keeps_its_own_words(reason: str) -> None:
    assert explain(reason, "west") is None


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (
            f"{ERRORS}SaslAuthenticationException: Authentication failed: Invalid username or password",
            "a user name or a password of the mirror is refused: Authentication failed: Invalid username or password",
        ),
        (
            f'{ERRORS}SaslAuthenticationException: {{"status":"invalid_token"}}',
            'a token of the mirror is refused: {"status":"invalid_token"}',
        ),
        (
            f"{ERRORS}UnsupportedSaslMechanismException: Client SASL mechanism 'PLAIN' not enabled in the server",
            "a mechanism of the mirror is not offered: Client SASL mechanism 'PLAIN' not enabled in the server",
        ),
        (
            "javax.net.ssl.SSLHandshakeException: Received fatal alert: bad_certificate",
            "a broker asks for a client certificate, or refuses the mirror's: bad_certificate",
        ),
        (
            "java.security.cert.CertificateException: No name matching west found",
            "a broker's certificate is not for the name that it was reached by: No name matching west found",
        ),
        ("javax.net.ssl.SSLHandshakeException: Remote host terminated the handshake", ""),
        (f"{ERRORS}TopicAuthorizationException: Not authorized to access topics: [LH.ORDERS]", ""),
    ],
)
def test_a_refused_sign_in_is_told_from_other_failures(reason: str, cause: str) -> None:
    assert refused_sign_in(reason) == cause
    if cause:
        found = explain(reason, "west")
        assert found
        assert found.cause == cause
