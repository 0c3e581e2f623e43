"""``mirrorproof verify FILE --key PUBLIC``: checks evidence, offline or against the clusters."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from loosehanger.arguments import Parser
from loosehanger.errors import ExitCode
from loosehanger.lab import job_options
from loosehanger.mirrorproof.prove import start
from loosehanger.paths import caller_path

if TYPE_CHECKING:
    from loosehanger.mirrorproof.evidence import CheckedFile, StoredEvidence

_JOB = "verify_job"


def add_options(parser: Parser) -> None:
    """Adds the evidence, the key, and the clusters."""
    add_evidence(parser)
    job_options.spark(parser, "~/.cache/mirrorproof")


def add_evidence(parser: Parser) -> None:
    """Adds what the command and its job both take."""
    parser.add_argument("file", type=caller_path, metavar="FILE", help="the evidence, with FILE.minisig beside it")
    parser.add_argument(
        "--key",
        type=_key,
        required=True,
        metavar="PUBLIC",
        help="the signer's public key: a file, or the key (RW…) itself",
    )
    held = parser.add_argument_group("whether the clusters still hold what was compared")
    either = held.add_mutually_exclusive_group()
    either.add_argument(
        "--clusters",
        type=caller_path,
        nargs=2,
        metavar=("SOURCE", "TARGET"),
        help="the two files with client properties that prove took",
    )
    either.add_argument("--config", type=caller_path, metavar="CONFIG", help="the configuration file that prove took")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")


def _key(text: str) -> str:
    """A key as it is; a file's path for any working directory, since the job has one of its own."""
    path = caller_path(text)
    return text if text.startswith("RW") and not path.exists() else str(path)


def run(options: argparse.Namespace) -> int:
    """Checks the file; with access to the clusters, becomes the job that reads them.

    Raises:
        LabError: the file or the key cannot be read, or the job cannot start.
    """
    from loosehanger.mirrorproof.evidence import check  # slow to import

    checked = check(options.file, options.key)
    if not checked.problem and (options.clusters or options.config):
        clusters = [f"--config={options.config}"] if options.config else ["--clusters", *map(str, options.clusters)]
        more = ["--json"] if options.json else []
        start(_JOB, [str(options.file), f"--key={options.key}", *clusters, *more], options)
    show(checked, as_json=options.json)
    return ExitCode.FAILED if checked.problem else ExitCode.DONE


def show(checked: CheckedFile, *, as_json: bool, held: dict[str, Any] | None = None) -> None:
    """Prints what was found.

    Args:
        checked: the file.
        as_json: whether to print one JSON document.
        held: what the clusters still hold, as from ``verify_job``; None without access to them.
    """
    if as_json:
        document: dict[str, Any] = {"intact": not checked.problem, "problem": checked.problem or None}
        if checked.evidence:
            document |= {"key_id": checked.key_id, "signed_comment": checked.comment}
            document |= _summary(checked.evidence)
        print(json.dumps(document | (held or {}), ensure_ascii=False, indent=1))
        return
    if checked.evidence is None:
        print(f"NOT INTACT  {checked.problem}")
        return
    for line in _lines(checked, checked.evidence):
        print(line)


def _lines(checked: CheckedFile, evidence: StoredEvidence) -> list[str]:
    found = _summary(evidence)
    clusters = ", ".join(f"{one['name']} (id {one['id']})" for one in found["clusters"])
    comment = checked.comment.replace("\t", " ")
    return [
        "INTACT      it is what was signed",
        f"signed      by key {checked.key_id}; {comment}",
        f"made        {found['made']} by {evidence.made.by}",
        f"clusters    {clusters or 'none answered'}",
        f"compared    {found['partitions']:,} partitions with {found['records']:,} records, on both sides",
        f"verdict     {evidence.verdict}",
    ]


def _summary(evidence: StoredEvidence) -> dict[str, Any]:
    return {
        "made": evidence.made.at,
        "verdict": evidence.verdict,
        "clusters": [one.model_dump() for one in evidence.clusters],
        "partitions": len(evidence.partitions),
        "records": sum(one.records for one in evidence.partitions),
    }
