"""The file with signed evidence."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from minisign import SecretKey

from loosehanger.proof.evidence.evidence import Evidence
from loosehanger.proof.evidence.signatures import key_id, key_text, sign, signature_path
from loosehanger.proof.evidence.statement import serialized, statement
from loosehanger.proof.report import files
from loosehanger.version import PROGRAM, version


def write_evidence(path: Path, evidence: Evidence, report: Mapping[str, Any], key: SecretKey) -> dict[str, Any]:
    """Writes evidence and, beside it, its signature.

    Args:
        path: where to.
        evidence: the results of the proof's steps, with digests.
        report: the proof, as from ``loosehanger.proof.verdict.judge``.
        key: signs it.

    Returns:
        What the page for people shows: the statement, and of the file ``name``, ``sha256``, ``key``, ``key_id`` and
        ``signature``.

    Raises:
        LabError: it cannot be written.
    """
    at = datetime.now(UTC)
    made = statement(evidence, report, f"{PROGRAM} {version()}", at)
    content = serialized(made)
    comment = f"timestamp:{int(at.timestamp())}\tfile:{quote(path.name)}\tverdict:{report['verdict']}"
    signature = sign(content, key, comment).decode()
    files.write(path, content.decode())
    files.write(signature_path(path), signature)
    public = key.get_public_key()
    return {
        "statement": made,
        "name": path.name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "key": key_text(public),
        "key_id": key_id(public),
        "signature": signature,
    }
