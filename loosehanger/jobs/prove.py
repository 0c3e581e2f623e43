"""Proves that every record was mirrored."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql import SparkSession

from loosehanger.errors import ExitCode, LabError, WrongUseError, discard_output, run_command
from loosehanger.lab import job_options
from loosehanger.lab.record import Lab, load_lab
from loosehanger.proof import early_java, inconclusive, scratch
from loosehanger.proof.compare.configurations import Handling
from loosehanger.proof.evidence.evidence import Evidence
from loosehanger.proof.proof import Proof
from loosehanger.proof.read.external import EXTERNAL, two_clusters
from loosehanger.proof.report import files, output
from loosehanger.proof.report.junit import junit
from loosehanger.proof.report.output import console
from loosehanger.proof.report.tables import show_proof
from loosehanger.proof.session import start_session
from loosehanger.proof.verdict import EXIT_CODES, judge

if TYPE_CHECKING:
    from minisign import SecretKey

_PRODUCTS = 10
_NOT_FINISHED = "not finished within {limit:g} s; raise --limit, or compare fewer topics at a time"
_REPORT = "loosehanger.proof.report.page"
"""Loaded only where it is wanted."""
Make = Callable[[dict[str, Any]], str | bytes]
"""Makes the content of a file."""


@dataclass(frozen=True)
class AlsoJudged:
    """What is judged beside records and settings."""

    order: Handling = "judge"
    """The effect of records in another order."""
    groups: Mapping[str, Collection[str]] = field(default_factory=dict)
    """By the name of a mirror, the consumer groups that must continue at its target."""
    group_handling: Handling = "judge"
    """The effect of records that such a group would skip."""


def main() -> int:
    """Runs the proof.

    Returns:
        The exit code.
    """
    options = job_options.parser("prove").parse_args()
    job_options.check_prove(options)
    groups = [name.strip() for name in (options.groups or "").split(",") if name.strip()]
    return prove(options, _two_clusters(options) or load_lab(), AlsoJudged(groups={EXTERNAL: groups}))


def prove(
    options: argparse.Namespace,
    lab: Lab,
    judged: AlsoJudged,
) -> int:
    """Proves a lab's claims, or those of flows between any clusters, and reports.

    Args:
        options: those of the command line.
        lab: what to prove.
        judged: what the command line does not say.

    Returns:
        The exit code.
    """
    started = time.monotonic()
    # What cannot be used is named before anything is read.
    key = _signing_key(options)
    if options.report:
        # Its charts take a while to load, and until they are wanted Python mostly waits for Java.
        threading.Thread(target=import_module, args=(_REPORT,), daemon=True).start()
    found: dict[str, Any] | None = {}
    try:
        proof = Proof(
            lab,
            partial(_start_spark, silent_s=options.timeout),
            options.timeout,
            options.examples,
            _report,
            options.since,
            while_moving=options.while_moving,
            configs=options.configs,
            allow_same_cluster=options.allow_same_cluster,
            order=judged.order,
            digests=key is not None,
            groups=judged.groups,
            group_handling=judged.group_handling,
        )
        found = _within(
            getattr(options, "limit", None),
            lambda: judge(proof.run(), lab.scenario, time.monotonic() - started),
        )
        document = found or inconclusive.document(
            _NOT_FINISHED.format(limit=options.limit), lab.scenario, time.monotonic() - started, lab.claims
        )
    except WrongUseError:
        raise
    except Exception as error:
        _report(traceback.format_exc().rstrip())
        document = inconclusive.document(_broken_off(error), lab.scenario, time.monotonic() - started, lab.claims)
    # After the limit nothing else may take long, and the evidence is not complete.
    evidence = proof.evidence if found else Evidence()
    written = _write_files(options, document, lab if found is not None else None, evidence, key)
    written &= _show(document, as_json=options.json)
    code = EXIT_CODES[document["verdict"]]
    if found is None:
        _leave(code)
    return int(code if written or code != ExitCode.DONE else ExitCode.INCONCLUSIVE)


def _show(document: dict[str, Any], *, as_json: bool) -> bool:
    """Prints the document; returns whether the caller has it, or does not want the rest."""
    try:
        if as_json:
            return output.print_proof(document)
        show_proof(document, console())
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
    except OSError as error:
        _report(f"error: standard output: cannot be written: {error.strerror}")
        discard_output()
        return False
    return True


def _within(limit_s: float | None, prove: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """Returns what a proof finds; None if it has not ended within the limit, and then it runs on until ``_leave``."""
    if limit_s is None:
        return prove()
    answer: Future[dict[str, Any]] = Future()

    def run() -> None:
        try:
            answer.set_result(prove())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True, name="proof").start()
    wait([answer], limit_s)
    return answer.result() if answer.done() else None


def _leave(code: int) -> NoReturn:
    """Ends this process although threads of it are busy, and with it Java, which has a pipe of it."""
    if folder := os.environ.get(scratch.VARIABLE):
        shutil.rmtree(folder, ignore_errors=True)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)


def _start_spark(records: int | None, silent_s: float | None = None) -> SparkSession:
    return start_session("prove", records=records, silent_s=silent_s)


def _write_evidence(
    options: argparse.Namespace, evidence: Evidence, document: dict[str, Any], key: SecretKey
) -> dict[str, Any] | None:
    """Writes signed evidence; returns what the page shows of it, or None if it cannot be written."""
    from loosehanger.proof.evidence.signed_file import write_evidence

    try:
        return write_evidence(options.evidence, evidence, document, key)
    except LabError as error:
        _report(f"error: {error}")
    except Exception as error:
        _report(f"{traceback.format_exc()}error: {options.evidence}: could not be made: {error!r}")
    return None


def _signing_key(options: argparse.Namespace) -> SecretKey | None:
    if not options.sign:
        return None
    from loosehanger.proof.evidence.signatures import secret_key  # only where something is signed

    return secret_key(options.sign)


def _write_files(
    options: argparse.Namespace,
    document: dict[str, Any],
    lab: Lab | None,
    evidence: Evidence,
    key: SecretKey | None,
) -> bool:
    """Writes the requested files; the verdict is printed even if a file cannot be written."""
    signed = _write_evidence(options, evidence, document, key) if key else None
    written = key is None or signed is not None
    files_wanted: tuple[tuple[Path | None, Make], ...] = (
        (options.report, partial(_page, lab=lab, signed=signed)),
        (options.pdf, partial(_pdf, signed=signed)),
        (options.junit, junit),
        (getattr(options, "json_file", None), _as_json),
    )
    for path, make in files_wanted:
        try:
            if path:
                files.write(path, make(document))
        except LabError as error:
            _report(f"error: {error}")
            written = False
        except Exception as error:
            _report(f"{traceback.format_exc()}error: {path}: could not be made: {error!r}")
            written = False
    return written


def _as_json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _page(document: dict[str, Any], lab: Lab | None, signed: Mapping[str, Any] | None) -> str:
    page: str = import_module(_REPORT).render(document, _aggregates(lab) if lab else {}, signed)
    return page


def _pdf(document: dict[str, Any], signed: dict[str, Any] | None) -> bytes:
    from loosehanger.proof.report.pdf import render_pdf  # only where it is wanted

    return render_pdf(document, signed)


def _broken_off(error: Exception) -> str:
    return f"the proof broke off: {error if isinstance(error, LabError) else f'{type(error).__name__}: {error}'}"


def _two_clusters(options: argparse.Namespace) -> Lab | None:
    if not job_options.are_two_clusters(options):
        return None
    return two_clusters(
        options.source_config, options.target_config, options.topics, options.policy or "identity",
        options.source_alias or "source", _report,
    )  # fmt: skip


def _aggregates(lab: Lab) -> dict[str, Any]:
    """The sales; empty if they are unknown, since the report of a proof does not depend on them."""
    if lab.platform == EXTERNAL:
        return {}
    try:
        from loosehanger.sales.sales import sum_up  # only for a lab

        return sum_up(_start_spark, lab, _PRODUCTS, _report)
    except Exception as error:
        _report(f"the report has no aggregates: {error}")
        return {}


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def run(main: Callable[[], int] = main) -> int:
    """Runs the job as a program of its own; returns its exit code.

    Args:
        main: reads the command line and runs the proof.
    """
    output.separate_streams(sys.argv)
    try:
        # What 1 says of a proof is that something was disproved.
        return run_command(main, failed=ExitCode.INCONCLUSIVE)
    finally:
        early_java.end()
