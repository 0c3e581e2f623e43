"""Changes through the consoles of a real lab that was set up for them: settings and mirrors."""

from __future__ import annotations

import pytest

from scripts.sandbox import Kit

from .conftest import wait_until
from .test_console import signed_in

pytestmark = [pytest.mark.lab, pytest.mark.slow]

MIRROR = "/api/regions/{}/mirrors/{}/connectors/europe-%3E{}.MirrorSourceConnector/{}"


def test_a_configuration_changed_in_europe_arrives_in_the_comparison(operator_kit: Kit) -> None:
    control_room = signed_in(operator_kit, "control-room")

    def values() -> list[str]:
        (comparison,) = control_room.get("/api/topics/LH.STOCK/comparison").json()
        rows = comparison["rows"]
        return [cell["value"] for row in rows if row["name"] == "retention.ms" for cell in row["cells"]]

    path = "/api/regions/europe/topics/LH.STOCK/settings"
    answer = control_room.change("PATCH", path, json={"settings": {"retention.ms": "7654321"}})
    assert answer.status_code == 200, answer.text
    wait_until(lambda: values() == ["7654321"] * 3, 30, "the change in both Americas")
    control_room.change("PATCH", path, json={"settings": {"retention.ms": None}})
    refused = control_room.change("PATCH", path, json={"settings": {"retention.ms": "long"}})
    assert refused.status_code == 400
    assert "Kafka refuses the change" in refused.json()["detail"]


def test_a_mirror_is_paused_and_resumed(operator_kit: Kit) -> None:
    control_room = signed_in(operator_kit, "control-room")
    browser = signed_in(operator_kit, "south-america")

    def health() -> str:
        return str(browser.get("/api/mirrors").json()["mirrors"][0]["health"])

    path = MIRROR.format("south-america", "mm2-sa", "southamerica", "{}")
    assert browser.change("POST", path.format("pause")).status_code == 200
    try:
        wait_until(lambda: health() == "warning", 20, "the paused mirror")
        assert "is paused" in browser.get("/api/mirrors").json()["mirrors"][0]["explanation"]
        wait_until(
            lambda: {flow["health"] for flow in control_room.get("/api/flows").json()["flows"]} == {"good", "warning"},
            20,
            "the paused mirror in the control room",
        )
        wait_until(
            lambda: max(flow["lag"] or 0 for flow in control_room.get("/api/flows").json()["flows"]) > 20, 30, "a lag"
        )
    finally:
        assert browser.change("POST", path.format("resume")).status_code == 200
    wait_until(lambda: health() == "good", 20, "the mirror")
    assert browser.change("POST", path.format("restart")).status_code == 200
    wait_until(lambda: health() == "good", 20, "the mirror after its restart")
