"""The status page of a watch: what its last round has found, for people. It needs nothing but itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from loosehanger.audit.balance import KINDS
from loosehanger.audit.display import alarms_of
from loosehanger.audit.metrics import AuditMetrics
from loosehanger.audit.verdicts import verdict_of
from loosehanger.proof.report.rendering import template
from loosehanger.times import span

_HEADLINES = {
    "proved": "All that was judged has arrived",
    "disproved": "Copies differ",
    "inconclusive": "Not everything could be decided",
    "": "The first round is not complete yet",
}
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
    "frame-ancestors 'none'"
)
_MOST_FLOWS = 500


class StatusPage:
    """The page.

    Args:
        metrics: knows the last round.
    """

    def __init__(self, metrics: AuditMetrics) -> None:
        self._metrics = metrics

    def answer(self, _: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Answers a request, as a WSGI application does."""
        page = render(self._metrics.last()).encode()
        start(
            "200 OK",
            [
                ("Content-Type", "text/html; charset=utf-8"),
                ("Cache-Control", "no-store"),
                ("Content-Security-Policy", _POLICY),
                ("X-Content-Type-Options", "nosniff"),
                ("Referrer-Policy", "no-referrer"),
            ],
        )
        return [page]


def render(document: Mapping[str, Any] | None) -> str:
    """Makes the page.

    Args:
        document: as from ``Watch.document``; None before the first round.
    """
    verdict = verdict_of(document) if document else ""
    flows = document["flows"] if document else []
    return template("status.html.j2", span=span, time=_time).render(
        document=document,
        verdict=verdict,
        headline=_HEADLINES[verdict],
        alarms=alarms_of(document) if document else [],
        flows=flows[:_MOST_FLOWS],
        left_out=max(len(flows) - _MOST_FLOWS, 0),
        differences=sum(document["totals"][kind] for kind in KINDS) if document else 0,
        kinds=[(kind, kind.replace("_", " ")) for kind in KINDS],
    )


def _time(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
