"""``mirrorproof watch``: its options, what it judges, its folder, its pages, and its end."""

from __future__ import annotations

import argparse
import base64
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from loosehanger.arguments import Parser
from loosehanger.audit.metrics import AuditMetrics, MetricsServer
from loosehanger.audit.state import Folder
from loosehanger.audit.status_page import StatusPage, render
from loosehanger.errors import WrongUseError
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.record import Lab
from loosehanger.mirrorproof import watch
from loosehanger.mirrorproof.flow_watch import AnyFlows, summary
from tests.unit.test_audit_metrics import AT, LABELS, TOKEN, document, flow

RISK: dict[str, Any] = {
    "topic": LABELS["topic"], "behind": 5, "age_s": 90.0, "loss_in_s": 600.0, "by": "time", "partition": 0,
    "pace": 0.5, "endangered": True, "gone": 2, "made_again": False, "held": 0, "held_by": "", "held_s": 0.0,
}  # fmt: skip
MIRROR = Mirror("shop", "old", "new", "old", "new", "identity", ".", "orders,stock.*,ledger", "", "c")


def options(*words: str) -> argparse.Namespace:
    parser = Parser(allow_abbrev=False)
    watch.add_options(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("c.yaml --topics a", "--topics need SOURCE and TARGET"),
        ("a b --flow x", "--flow needs a configuration"),
        ("a b --policy default", "go together"),
        ("a b --canary", "--canary and --canary-topic go together"),
        ("a b --canary-topic beat", "--canary and --canary-topic go together"),
        ("a b --metrics 9095", "--metrics and --metrics-token-file go together"),
        ("a b --report-topic a:b:c", "is not .CLUSTER:.TOPIC"),
        ("a b --metrics 9095 --metrics-token-file /nowhere", "cannot be read"),
    ],
)
def test_options_that_do_not_fit_are_wrong_use(words: str, problem: str) -> None:
    with pytest.raises(WrongUseError, match=problem):
        watch.run(options(*words.split()))


def test_a_report_topic_may_name_its_cluster() -> None:
    assert [watch.report_topic(text) for text in ("audit", "new:a.b_c-d")] == [("", "audit"), ("new", "a.b_c-d")]


def test_a_copiers_group_is_for_one_flow_or_for_all_others() -> None:
    mirrors = tuple(replace(MIRROR, name=name) for name in ("shop", "stock"))
    flows = AnyFlows(Lab("flows", "external", "", {}), mirrors)
    shop, stock = (mirror.id for mirror in mirrors)
    assert flows.groups([]) == {}
    assert flows.groups(["copier"]) == {shop: "copier", stock: "copier"}
    assert flows.groups(["stock:other", "copier"]) == {shop: "copier", stock: "other"}
    assert flows.groups(["connect-x:1"]) == {shop: "connect-x:1", stock: "connect-x:1"}, (
        "a group's name may have a colon"
    )


def test_a_topic_that_is_named_and_missing_is_not_judged() -> None:
    flows = AnyFlows(Lab("flows", "external", "", {}), (MIRROR,))
    there = {"orders": ("1", 1), "stock-a": ("2", 2), "other": ("3", 1)}
    scope = flows.scope({"old": "1", "new": "2"}, {"old": there, "new": {}}, {})
    assert [one.topic for one in scope.flows] == ["orders", "stock-a"]
    assert [(one.topic, why) for one, why in scope.excused.values()] == [("ledger", "old has no topic ledger")]
    assert set(scope.topics["old"]) == {"orders", "stock-a"}


def test_a_folder_with_something_else_in_it_is_not_used(tmp_path: Path) -> None:
    Folder(tmp_path / "new" / "one").check()
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(WrongUseError, match="is not empty and has no state of a watch; name another folder"):
        Folder(tmp_path).check()
    with pytest.raises(WrongUseError, match="cannot be used"):
        Folder(tmp_path / "file").check()
    folder = Folder(tmp_path / "state")
    folder.check()
    (folder.path / "mine").mkdir()
    folder.store({"clusters": {"old": "1"}})
    folder.check()
    assert (folder.path / "state.json").stat().st_mode & 0o777 == 0o600
    assert folder.open({"old": "2"}) == (None, "the cluster of old has changed or is missing")
    assert (folder.path / "mine").exists(), "nothing is deleted that is not the watch's"


def test_the_end_says_what_was_watched() -> None:
    assert summary(None, 3) == "watched for 3 s: no round was completed"
    found = document(flow(records=9, copies=8, missing=1), findings=[{}])
    found["totals"]["records"] = 9
    assert summary(found, 61) == (
        "watched for 1.0 min: 9 records at the sources, 8 copies; disproved: 1 copies of topics, 1 missing"
    )
    nothing = document(flow(copies=0, missing=0))
    nothing["totals"]["records"] = 0
    assert summary(nothing, 61).endswith("0 records at the sources, 0 copies; there was nothing to compare")


def watched(**changes: Any) -> dict[str, Any]:
    """A document of a watch of other clusters."""
    found = document(flow(loss=RISK, late=3, missing=1), scenario="old → new", regions={}, unread=7, **changes)
    found["totals"] |= {"records": 7, "in_flight": 0, **{kind: 0 for kind in found["flows"][0] if kind not in LABELS}}
    found["totals"] |= {"records": 7, "late": 3, "missing": 1}
    return found


def test_lag_and_time_to_loss_have_the_names_that_the_control_room_serves() -> None:
    made = AuditMetrics(5, None, lambda: AT, with_risks=True)
    list(made.following([watched()]))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(made)
    found = {
        sample.name.removeprefix("loosehanger_"): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
        if sample.name.startswith("loosehanger_mirror_") or "unread" in sample.name
    }
    assert found == {
        "mirror_lag_records": 5,
        "mirror_lag_seconds": 90,
        "mirror_time_to_loss_seconds": 600,
        "mirror_loss_near": 1,
        "mirror_deleted_offsets": 2,
        "mirror_held_offsets": 0,
        "mirror_held_seconds": 0,
        "audit_unread_offsets": 7,
    }


@pytest.fixture
def address() -> Iterator[str]:
    made = AuditMetrics(5)
    list(made.following([watched()]))
    with MetricsServer(made, ("127.0.0.1", 0), TOKEN, {"/": StatusPage(made).answer}) as server:
        yield f"http://127.0.0.1:{server.port}"


def basic(password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"any:{password}".encode()).decode()}


def test_the_page_wants_the_token_and_a_browser_is_asked_for_it(address: str) -> None:
    for wrong in ({}, basic("wrong"), {"Authorization": "Basic =="}, {"Authorization": f"Token {TOKEN}"}):
        answer = requests.get(f"{address}/", headers=wrong, timeout=10)
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, 'Basic realm="the audit"')
        assert "LH.ORDERS" not in answer.text
    for right in (basic(TOKEN), {"Authorization": f"Bearer {TOKEN}"}):
        answer = requests.get(f"{address}/", headers=right, timeout=10)
        assert (answer.status_code, "LH.ORDERS" in answer.text) == (200, True)
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    # A scraper sends its token as before, and nothing else will do.
    assert requests.get(f"{address}/metrics", headers=basic(TOKEN), timeout=10).status_code == 401
    assert requests.get(f"{address}/other", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=10).status_code == 404
    assert requests.post(f"{address}/", headers=basic(TOKEN), timeout=10).status_code == 405


def test_the_page_shows_names_as_text() -> None:
    found = watched(notes=[], problems=["<script>alert(1)</script>"])
    page = render(found)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert page.count("<script>") == 1
    assert "10.0 min" in page
    assert "The first round is not complete yet" in render(None)
