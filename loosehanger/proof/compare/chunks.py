"""The definition of a partition's digest, in plain Python: see ``digests``, which does the same with Spark."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

Chunk = tuple[int, int, str]
"""Its number, how many records it has, and its digest."""


def partition_digest(chunks: Iterable[Chunk]) -> str:
    """The digest of a partition."""
    lines = "".join(f"{number} {records} {digest}\n" for number, records, digest in chunks)
    return hashlib.sha256(lines.encode()).hexdigest()


def record_bytes(
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> bytes:
    """What the digest of a record is the SHA-256 of."""
    parts: list[bytes | None] = [b"%d" % offset, b"%d" % timestamp, key, value]
    for name, content in headers:
        parts += [name.encode(), content]
    return b"".join(b"-" if part is None else b"%d:%s" % (len(part), part) for part in parts)
