"""Evidence as ``prove --evidence`` writes it: read, and checked against its signature."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from loosehanger.errors import WrongUseError
from loosehanger.proof.compare.chunks import partition_digest
from loosehanger.proof.evidence import signatures
from loosehanger.proof.evidence.statement import FORMAT


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class StatementMade(_Part):
    """When and by what."""

    by: str
    at: str
    seconds: float


class StatementJudged(_Part):
    """What was judged."""

    since: str | None
    order: str
    settings: str


class NamedCluster(_Part):
    """A cluster, by the name that the proof gave it."""

    name: str
    id: str


class ProvedPartition(_Part):
    """The digests of a partition: see ``loosehanger.proof.compare.digests``."""

    cluster: str
    topic: str
    partition: int
    start: int
    end: int
    records: int
    sha256: str
    chunks: list[list[int | str]]

    @property
    def digests(self) -> dict[int, tuple[int, str]]:
        """By the number of the chunk, how many records it has, and their digest."""
        return {int(number): (int(records), str(digest)) for number, records, digest in self.chunks}

    @property
    def is_consistent(self) -> bool:
        """Whether its numbers follow from its chunks."""
        chunks = [(number, records, digest) for number, (records, digest) in self.digests.items()]
        return (self.records, self.sha256) == (sum(records for _, records, _ in chunks), partition_digest(chunks))


class StoredEvidence(_Part):
    """The whole document."""

    format: str
    made: StatementMade
    verdict: str
    judged: StatementJudged
    clusters: list[NamedCluster]
    chunk: int
    partitions: list[ProvedPartition]
    report: dict[str, Any] = Field(repr=False)


@dataclass(frozen=True)
class CheckedFile:
    """The result of checking a file."""

    problem: str
    """Why it is not as it was signed; empty if it is."""
    evidence: StoredEvidence | None = None
    key_id: str = ""
    """Of the signer."""
    comment: str = ""
    """What was signed beside it."""


def check(path: Path, public_key: str) -> CheckedFile:
    """Checks a file with evidence, without any cluster.

    Args:
        path: the file, with its signature beside it.
        public_key: a file with the signer's public key, or the key itself.

    Raises:
        WrongUseError: the file or the key cannot be read.
    """
    key = signatures.public_key(public_key)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WrongUseError(f"{path}: cannot be read ({error.strerror}); give a file of prove --evidence") from error
    try:
        signature = signatures.read_signature(path)
    except ValueError as error:
        return CheckedFile(str(error))
    signer, expected = signatures.signer_id(signature), signatures.key_id(key)
    if signer != expected:
        return CheckedFile(f"{path}: was signed by another key: its id is {signer}, and the one of --key {expected}")
    if not signatures.is_signed(content, signature, key):
        return CheckedFile(f"{path}: is not what key {signer} signed: {_damage(content)}")
    found, problem = _read(content)
    if found is None:
        return CheckedFile(f"{path}: is signed, but is not evidence of a proof: {problem}")
    for partition in found.partitions:
        if not partition.is_consistent:
            place = f"{partition.cluster}'s {partition.topic}-{partition.partition}"
            return CheckedFile(f"{path}: is signed, but the digest of {place} does not follow from its chunks")
    return CheckedFile("", found, signer, signature.trusted_comment)


def _damage(content: bytes) -> str:
    """Describes the damage, as far as it shows."""
    _, problem = _read(content)
    return problem or "it or its signature was changed since; ask the signer for the original"


def _read(content: bytes) -> tuple[StoredEvidence | None, str]:
    try:
        document = json.loads(content)
    except UnicodeDecodeError as error:
        return None, f"byte {error.start} is not UTF-8"
    except ValueError as error:
        return None, f"it is not complete JSON ({error}); it may have been cut off"
    except RecursionError:
        return None, "it is nested too deeply"
    if isinstance(document, dict) and document.get("format", FORMAT) != FORMAT:
        return None, f"its format is {document['format']!r}; this version reads {FORMAT!r}"
    try:
        return StoredEvidence.model_validate(document), ""
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the document"
        return None, f"{where}: {first['msg'].lower()}"
