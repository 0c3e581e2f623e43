"""Service names: every resource of a region keeps its own, and whoever asks gets the addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from platform_local import services
from platform_local.errors import PlatformError
from platform_local.region import Region

KAFKA, CONNECT = "north-america-kafka-bootstrap.north-america.svc", "mm2-na-mirrormaker2-api.north-america.svc"


@pytest.fixture
def region(tmp_path: Path) -> Region:
    """A region that offers a cluster and a mirror."""
    region = Region(tmp_path, tmp_path, "north-america", 19200)
    assert services.offer(region, KAFKA, {f"{KAFKA}:9098": ["127.0.0.1:19202"]})
    assert services.offer(region, CONNECT, {f"{CONNECT}:8083": ["127.0.0.1:19250", "127.0.0.1:19251"]})
    return region


def test_a_name_becomes_its_addresses(region: Region) -> None:
    assert services.resolve(region, f"{KAFKA}:9098") == "127.0.0.1:19202"
    assert services.resolve(region, f"https://{CONNECT}:8083") == "https://127.0.0.1:19250,127.0.0.1:19251"


def test_what_is_offered_again_changes_nothing(region: Region) -> None:
    assert not services.offer(region, KAFKA, {f"{KAFKA}:9098": ["127.0.0.1:19202"]})


def test_what_is_offered_anew_leaves_the_others_services(region: Region) -> None:
    assert services.offer(region, KAFKA, {f"{KAFKA}:9099": ["127.0.0.1:19203"]})
    assert set(services.offers(region.home)) == {f"{KAFKA}:9099", f"{CONNECT}:8083"}


def test_what_is_deleted_is_offered_no_longer(region: Region) -> None:
    assert services.offer(region, CONNECT, {})
    with pytest.raises(PlatformError, match=rf"nobody offers the service {CONNECT}:8083; offered are: {KAFKA}:9098"):
        services.resolve(region, f"{CONNECT}:8083")
