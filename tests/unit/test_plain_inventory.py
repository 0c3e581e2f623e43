"""The status asks regions without Ansible where the inventory is the kit's own; Ansible reads any other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from loosehanger.cli.plain_inventory import port_bases
from loosehanger.errors import LabError, WrongUseError
from loosehanger.lab.progress import Progress
from loosehanger.paths import ROOT
from loosehanger.platforms import registry
from loosehanger.platforms.local import status as local_status
from loosehanger.platforms.local.region import LocalRegion

LOCAL = ROOT / "inventories/local"


def bases(folder: Path, port_base: int = 0, environment: dict[str, str] | None = None) -> dict[str, int] | None:
    """What is read of a folder with which a lab was set up."""
    return port_bases(Progress("03-broadcast", "local", str(folder), port_base=port_base), folder, environment or {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the kit's inventory of this machine."""
    return Path(shutil.copytree(LOCAL, tmp_path / "local"))


@pytest.mark.parametrize(
    ("recorded", "environment", "first"),
    [(0, {}, 19000), (0, {"LAB_PORT_BASE": "29000"}, 29000), (27000, {"LAB_PORT_BASE": "29000"}, 27000)],
)
def test_each_region_has_a_hundred_ports_as_in_the_inventory(
    folder: Path, recorded: int, environment: dict[str, str], first: int
) -> None:
    names = list(yaml.safe_load((LOCAL / "regions.yaml").read_text(encoding="utf-8"))["regions"]["hosts"])
    expected = {name: first + 100 * number for number, name in enumerate(names, start=1)}
    found = bases(folder, recorded, environment)
    assert found == expected
    assert list(found) == names


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("group_vars/all.yaml", "platform_role: platform_local", "platform_role: my_platform"),
        ("group_vars/all.yaml", "100 * (groups", "200 * (groups"),
        ("group_vars/all.yaml", "'19000'", "'39000'"),
        ("group_vars/all.yaml", "---\n", "---\nplatform_local_home: /elsewhere\n"),
        ("group_vars/all.yaml", "---\n", "--- [\n"),
        ("regions.yaml", "    europe:\n", "    europe:\n      platform_local_port_base: 23000\n"),
        ("regions.yaml", "    europe:\n", "    europe:\n      ansible_host: elsewhere\n"),
        ("regions.yaml", "    europe:\n", "    europe[1:3]:\n"),
        ("regions.yaml", "  vars:\n", "  children: {more: {}}\n  vars:\n"),
        ("regions.yaml", "regions:\n", "more: {}\nregions:\n"),
        ("regions.yaml", "regions:\n", "europe\n---\nregions:\n"),
        ("host_vars/europe.yaml", "", "platform_local_port_base: 23000\n"),
        ("more.ini", "", "[regions]\nantarctica\n"),
    ],
)
def test_ansible_reads_an_inventory_that_was_changed(folder: Path, file: str, old: str, new: str) -> None:
    path = folder / file
    path.parent.mkdir(exist_ok=True)
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    assert old in before
    path.unlink(missing_ok=True)  # regions.yaml is a link to that of the checkout
    path.write_text(before.replace(old, new, 1) if old else new, encoding="utf-8")
    assert bases(folder) is None


@pytest.mark.parametrize("inventory", ["inventories/strimzi", "/elsewhere/local", "europe,asia"])
def test_ansible_reads_another_inventory(folder: Path, inventory: str) -> None:
    assert port_bases(Progress("03-broadcast", "local", inventory), folder, {}) is None


def test_ansible_reads_the_inventory_of_another_platform(folder: Path) -> None:
    assert port_bases(Progress("03-broadcast", "kubernetes", str(folder)), folder, {}) is None


def test_regions_are_asked_with_their_own_ports_and_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[LocalRegion] = []

    def ask(region: LocalRegion) -> list[dict[str, str]]:
        asked.append(region)
        return [{"name": region.name}]

    monkeypatch.setattr(local_status, "status", ask)
    found = registry.local_status(tmp_path, ROOT, {"west": 20100, "east": 20200})
    assert found == {"west": [{"name": "west"}], "east": [{"name": "east"}]}
    assert list(found) == ["west", "east"]
    assert {(region.home, region.checkout, region.name, region.port_base) for region in asked} == {
        (tmp_path, ROOT, "west", 20100),
        (tmp_path, ROOT, "east", 20200),
    }


@pytest.mark.parametrize(
    ("errors", "kind", "text"),
    [
        ({"west": LabError("lost")}, LabError, "lost"),
        ({"west": LabError("same"), "east": LabError("same")}, LabError, "same"),
        ({"west": WrongUseError("odd"), "east": LabError("lost")}, LabError, "odd; lost"),
        ({"west": WrongUseError("odd"), "east": WrongUseError("even")}, WrongUseError, "odd; even"),
        ({"east": PermissionError(13, "Permission denied", "/x")}, LabError, "east: /x: Permission denied"),
    ],
)
def test_what_fails_is_named_as_by_the_playbook(
    errors: dict[str, Exception], kind: type[LabError], text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def ask(region: LocalRegion) -> list[dict[str, str]]:
        if region.name in errors:
            raise errors[region.name]
        return []

    monkeypatch.setattr(local_status, "status", ask)
    with pytest.raises(LabError) as raised:
        registry.local_status(tmp_path, ROOT, {"west": 20100, "east": 20200})
    assert type(raised.value) is kind
    assert str(raised.value) == text
