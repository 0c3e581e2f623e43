"""Service names: every resource of a region keeps its own, and every region gets the addresses."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from loosehanger.errors import LabError
from loosehanger.platforms.local import services
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.local.services import ServiceAddresses

KAFKA, CONNECT = "north-america-kafka-bootstrap.north-america.svc", "mm2-na-mirrormaker2-api.north-america.svc"
OFFERED = ServiceAddresses(["127.0.0.1:19202"], {"europe": ["127.0.0.1:19272"]})


@pytest.fixture
def region(tmp_path: Path) -> LocalRegion:
    """A region that offers a cluster and a mirror."""
    region = LocalRegion(tmp_path, tmp_path, "north-america", 19200)
    assert services.offer(region, KAFKA, {f"{KAFKA}:9098": OFFERED})
    assert services.offer(
        region, CONNECT, {f"{CONNECT}:8083": ServiceAddresses(["127.0.0.1:19250", "127.0.0.1:19251"])}
    )
    return region


def test_a_name_becomes_its_addresses(region: LocalRegion) -> None:
    assert services.resolve(region, f"{KAFKA}:9098") == "127.0.0.1:19202"
    assert services.resolve(region, f"https://{CONNECT}:8083") == "https://127.0.0.1:19250,127.0.0.1:19251"


def test_another_region_gets_the_addresses_of_its_link(region: LocalRegion) -> None:
    for name, expected in (("europe", "127.0.0.1:19272"), ("south-america", "127.0.0.1:19202")):
        assert services.resolve(dataclasses.replace(region, name=name), f"{KAFKA}:9098") == expected


def test_what_is_offered_again_changes_nothing(region: LocalRegion) -> None:
    assert not services.offer(region, KAFKA, {f"{KAFKA}:9098": OFFERED})


def test_what_is_offered_anew_leaves_the_others_services(region: LocalRegion) -> None:
    assert services.offer(region, KAFKA, {f"{KAFKA}:9099": ServiceAddresses(["127.0.0.1:19203"])})
    assert set(services.offers(region.home)) == {f"{KAFKA}:9099", f"{CONNECT}:8083"}


def test_what_is_deleted_is_offered_no_longer(region: LocalRegion) -> None:
    assert services.offer(region, CONNECT, {})
    with pytest.raises(LabError, match=rf"no region has the service {CONNECT}:8083; the services are: {KAFKA}:9098"):
        services.resolve(region, f"{CONNECT}:8083")
