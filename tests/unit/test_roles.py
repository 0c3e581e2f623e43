"""The roles' documents: what a README, an argument spec and the defaults say is the same, and is what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from loosehanger.lab.manifests.loader import ignored_fields
from loosehanger.paths import ROOT

ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())
PLATFORM_INTERFACE = {"platform_bundle"}

NEED_A_CLUSTER = {"platform_kubernetes", "strimzi_operator", "event_streams_operator"}

role_by_role = pytest.mark.parametrize("role", ROLES)


def read(role: str, path: str) -> str:
    return (ROOT / "roles" / role / path).read_text(encoding="utf-8")


def defaults(role: str) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(read(role, "defaults/main.yml")) or {}
    return values


def variables(role: str) -> set[str]:
    """Those of the defaults, and the ones without a default, which stand there as comments."""
    return set(defaults(role)) | set(
        re.findall(r"^# ([a-z]\w+):(?: |$)", read(role, "defaults/main.yml"), re.MULTILINE)
    )


def specs(role: str) -> dict[str, dict[str, Any]]:
    entry_points: dict[str, dict[str, Any]] = yaml.safe_load(read(role, "meta/argument_specs.yml"))["argument_specs"]
    return entry_points


def options(role: str) -> dict[str, dict[str, Any]]:
    return {name: option for entry in specs(role).values() for name, option in entry["options"].items()}


def rows(role: str, heading: str) -> list[list[str]]:
    """The cells of the table with that first cell in the role's README."""
    table = re.search(rf"^\| {heading} \|.*\n\|[-| ]+\n((?:\|.*\n)+)", read(role, "README.md"), re.MULTILINE)
    lines = table[1].splitlines() if table else []
    return [[cell.replace("\\|", "|") for cell in re.split(r" (?<!\\)\| ", line.strip("| "))] for line in lines]


def shown_as(value: Any) -> str:
    """A default as YAML has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def code(cell: str) -> str:
    return cell.strip().removeprefix("`").removesuffix("`")


@role_by_role
def test_every_variable_stands_in_defaults_argument_specs_and_readme(role: str) -> None:
    documented = {code(row[0]) for row in rows(role, "variable")}
    assert variables(role) == set(options(role)) == documented
    prefixed = {name for name in documented if name.startswith(f"{role}_")}
    assert documented - prefixed <= (PLATFORM_INTERFACE if role.startswith("platform_") else set())


@role_by_role
def test_every_variable_has_one_default(role: str) -> None:
    shown = {code(row[0]): row[1] for row in rows(role, "variable")}
    for name, option in options(role).items():
        assert option.get("required", False) == (name not in defaults(role)) == (shown[name] == "required"), name
        if "`" in shown[name] and not name.endswith(("_home", "_release")):
            assert code(shown[name]).strip('"') == shown_as(defaults(role)[name]), name
        if "default" in option and not name.startswith(("platform_local_", "platform_kubernetes_")):
            assert option["default"] == defaults(role)[name], name


@role_by_role
def test_every_entry_point_has_an_argument_spec_and_is_explained(role: str) -> None:
    entry_points = {path.stem for path in (ROOT / "roles" / role / "tasks").glob("*.yml")}
    assert set(specs(role)) == entry_points
    if len(entry_points) > 1:
        assert {code(row[0]) for row in rows(role, "entry point")} == entry_points


@role_by_role
def test_an_entry_point_takes_what_its_tasks_use(role: str) -> None:
    for entry_point, spec in specs(role).items():
        used = set(re.findall(r"\b(\w+)\b", read(role, f"tasks/{entry_point}.yml"))) & variables(role)
        assert used <= set(spec["options"]), entry_point


@role_by_role
def test_the_example_of_a_readme_sets_what_there_is(role: str) -> None:
    example = re.search(r"^## Example\n\n```yaml\n(.*?)```", read(role, "README.md"), re.MULTILINE | re.DOTALL)
    assert example
    assert {play["hosts"] for play in yaml.safe_load(example[1])}
    set_here = set(
        re.findall(r"^ +((?:platform|[a-z]+_[a-z]+|producer|consumer|console)_\w+):", example[1], re.MULTILINE)
    )
    assert {name for name in set_here if name.startswith((f"{role}_", "platform_"))} <= variables(role)


@role_by_role
def test_every_role_has_a_molecule_scenario(role: str) -> None:
    if role in NEED_A_CLUSTER:
        pytest.skip("tests/kubernetes runs it through Ansible, against a real API server")
    scenario = ROOT / "molecule" / role
    settings = yaml.safe_load((scenario / "molecule.yml").read_text(encoding="utf-8"))
    playbooks = {
        **{step: f"{step}.yml" for step in ("converge", "verify", "cleanup")},
        "side_effect": "change.yml",
        **settings.get("ansible", {}).get("playbooks", {}),
    }
    assert [name for name in [*playbooks.values(), "verify_changed.yml"] if not (scenario / name).is_file()] == []


def test_no_molecule_scenario_reads_a_playbooks_folder() -> None:
    for path in (ROOT / "molecule").rglob("*.y*ml"):
        named = set(re.findall(r"playbooks/[\w./-]+", path.read_text(encoding="utf-8")))
        # The clean-up is of every scenario.
        assert named <= {"playbooks/cleanup.yaml"}, path


def test_readme_and_code_agree_on_the_ignored_fields() -> None:
    documented = {
        (row[0], code(field), row[2]) for row in rows("platform_local", "kind .*why.*") for field in row[1].split(", ")
    }
    assert documented == set(ignored_fields())


@pytest.mark.parametrize("path", sorted((ROOT / "roles").glob("*/meta/main.yml")), ids=lambda path: path.parts[-3])
def test_no_role_depends_on_another(path: Path) -> None:
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["dependencies"] == []
