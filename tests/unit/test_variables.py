"""Variables given with ``-e``: which names the kit knows, and which values its roles and programs can use."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loosehanger.ansible.action import remember
from loosehanger.cli import remembered
from loosehanger.cli.variables import checked_variables
from loosehanger.errors import WrongUseError
from loosehanger.lab.progress import Progress, read_progress
from loosehanger.lab.scenario import read_scenario

PLAYBOOK = "playbooks/03-broadcast/setup.yaml"
LOCAL, STRIMZI, EVENT_STREAMS = (f"inventories/{name}" for name in ("local", "strimzi", "eventstreams"))


def check(*given: str, playbook: str = PLAYBOOK, inventory: str = LOCAL, progress: Progress | None = None) -> list[str]:
    """Checks variables as the set-up does."""
    arguments = [word for text in given for word in ("-e", text)]
    return checked_variables(arguments, playbook, [inventory], progress)


def refusal(*given: str, **how: Any) -> str:
    """Why variables are refused."""
    with pytest.raises(WrongUseError) as refused:
        check(*given, **how)
    return str(refused.value)


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("kafka_replica=3", "kafka_replicas"),
        ("producer_rte=50", "producer_rate"),
        ('{"consumer_replica": 0}', "consumer_replicas"),
        ("platform_local_memory=900", "platform_local_memory_mb"),
        ("producer_rate=5 producer_sed=7", "producer_seed"),
        ("platform_operator_rol=x", "platform_operator_role"),
    ],
)
def test_a_name_with_a_typing_error_is_refused_with_the_nearest(given: str, near: str) -> None:
    assert refusal(given).endswith(
        f"the kit has no variable of this name; did you mean '{near}'? (yours begin with my_)"
    )


def test_a_name_like_no_other_is_refused_with_where_the_names_are() -> None:
    assert "roles/*/README.md" in refusal("colour=red")


@pytest.mark.parametrize("option", ["-e", "--extra-vars", "--extra-var"])
def test_every_form_of_the_option_is_checked(option: str) -> None:
    with pytest.raises(WrongUseError, match="did you mean 'kafka_replicas'"):
        checked_variables(["-v", option, "kafka_replica=3"], PLAYBOOK, [LOCAL], None)
    with pytest.raises(WrongUseError, match="did you mean 'kafka_replicas'"):
        checked_variables(["-v", f"{option}{'=' * (option != '-e')}kafka_replica=3"], PLAYBOOK, [LOCAL], None)


@pytest.mark.parametrize(
    "given",
    [
        "kafka_replicas=3",
        "kafka_cluster_replicas=3 producer_rate=max producer_seed=-7",
        "producer_rate=shop",
        "producer_rate=0.5",
        "producer_flush=2.5",
        "producer_warehouses=A,B",
        '{"producer_warehouses": ["A", "B"], "kafka_cluster_authorities": {"validityDays": 30}}',
        "consumer_pattern='^(.+\\.)?LH\\..*'",
        "consumer_ledger=yes",
        "carry_out_force=true",
        "console_port=8443",
        "platform_local_port_base='{{ lab_port_base | int + 100 }}'",
        "producer_rate={{ 5 * 10 }} my_note=x",
        "region_code=XX",
        "ansible_verbosity=2",
        "my_note=anything",
        "lab_port_base=30000",
    ],
)
def test_what_the_kit_reads_passes_as_it_was_given(given: str) -> None:
    assert check(given) == ["-e", given]


@pytest.mark.parametrize(
    ("given", "inventory"),
    [
        ("platform_operator_role=strimzi_operator strimzi_operator_release=/a strimzi_operator_sha256=0", STRIMZI),
        ("lab_image=registry/lab:1", STRIMZI),
        ("event_streams_accept_license=true event_streams_version=12.3.1", EVENT_STREAMS),
    ],
)
def test_variables_of_the_inventory_pass(given: str, inventory: str) -> None:
    assert check(given, inventory=inventory)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("producer_rate=-5", "'-5' is not a number above 0, 'max' or 'shop'"),
        ("producer_rate=fast", "'fast' is not a number above 0"),
        ('{"producer_rate": -5}', "'-5' is not a number above 0"),
        ("producer_seed=x", "'x' is not a whole number"),
        ("producer_flush=-1", "'-1' is not a number of seconds"),
        ("consumer_pattern=(", "'(' is not a regular expression"),
        ("producer_replicas=-1", "'-1' is not a whole number of at least 0"),
        ("kafka_replicas=three", "'three' is not a whole number"),
        ("platform_local_ready_timeout=2m", "'2m' is not a whole number"),
        ("carry_out_force=maybe", "'maybe' is neither true nor false"),
        ("clearing_replicas=2", "'2' is not one of 0, 1"),
        ("console_session_minutes=0", "'0' is not a number from 1 to 10080"),
        ("console_port=70000", "'70000' is not a number from 1 to 65535"),
        ("kafka_cluster_heap=lots", "'lots' is not a size of a Java heap"),
        ("console_audit_memory=400m", "'400m' is too small a Java heap for Spark, which needs 480m"),
        ("clearing_memory=9000k", "too small a Java heap for Spark"),
        ("kafka_cluster_authorities=none", "not a mapping"),
        ("lab_port_base=80", "not a number from 1024 to 65000"),
        ("producer_rate", "not NAME=VALUE"),
        ("@none.yml", "there is no such file"),
        ("{kafka_replicas", "not YAML"),
        ("[1, 2]", "neither NAME=VALUE nor a mapping"),
        ("producer_rate='5", "No closing quotation"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused(given: str, problem: str) -> None:
    assert problem in refusal(given)


def test_files_of_variables_are_checked_where_they_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "variables.yml"
    file.write_text("my_secret: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  00\nproducer_rate: 50\n", encoding="utf-8")
    assert check(f"@{file}") == ["-e", f"@{file}"]
    file.write_text("kafka_replica: 3\n", encoding="utf-8")
    assert "did you mean 'kafka_replicas'?" in refusal(f"@{file}")
    file.write_text("- a list\n", encoding="utf-8")
    assert "not a file of variables" in refusal(f"@{file}")
    file.write_text("$ANSIBLE_VAULT;1.1;AES256\n00\n", encoding="utf-8")
    assert check(f"@{file}")


def test_variables_of_ones_own_inventory_and_playbook_are_known(tmp_path: Path) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yml").write_text("shop_size: 5\nshop_of: '{{ shop_owner }}'\n", encoding="utf-8")
    (tmp_path / "hosts").write_text("[regions]\neurope shop_code=EU\n", encoding="utf-8")
    playbook = tmp_path / "setup.yaml"
    playbook.write_text(
        "- hosts: '{{ shop_hosts }}'\n  vars: {shop_colour: red}\n  tasks:\n    - when: shop_open | bool\n",
        encoding="utf-8",
    )
    how: Any = {"inventory": str(tmp_path / "hosts"), "playbook": str(playbook)}
    names = ("size", "of", "owner", "code", "hosts", "colour", "open")
    assert check(*(f"shop_{name}=1" for name in names), **how)
    assert "did you mean 'shop_size'?" in refusal("shop_siz=1", **how)
    # What a program says, only Ansible asks; a value is checked all the same.
    (tmp_path / "hosts").write_text("#!/bin/sh\n", encoding="utf-8")
    assert check("shop_siz=1", **how)
    assert refusal("kafka_replicas=x", **how)


def test_a_variable_cannot_move_the_ports_of_a_lab() -> None:
    progress = Progress("03-broadcast", "local", LOCAL, "setup", port_base=19000)
    assert "the lab is set up with 19000" in refusal("lab_port_base=29000", progress=progress)
    assert check("lab_port_base=19000", progress=progress)


def test_the_ports_of_a_lab_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remember, "scenario_of", lambda _: (read_scenario("03-broadcast"), "setup"))
    action: Any = object.__new__(remember.ActionModule)
    action._task = SimpleNamespace(check_mode=False)
    parameters = {"home": str(tmp_path), "platform": "local", "reached": True, "port_base": 29000}
    action.act(parameters, {"ansible_inventory_sources": [LOCAL]})
    progress = read_progress(tmp_path)
    assert progress
    assert progress.port_base == 29000


def later(*given: str, before: tuple[str, ...] = ()) -> tuple[str, ...]:
    """What the record has after a stage that was given these variables."""
    progress = Progress("03-broadcast", "local", LOCAL, "setup", variables=before)
    return remembered.remembered_after(progress, [word for text in given for word in ("-e", text)])


@pytest.mark.parametrize(
    ("before", "given", "after"),
    [
        ((), ("producer_rate=50 my_note='two words'",), ("producer_rate=50", '{"my_note": "two words"}')),
        (("producer_rate=50", "kafka_replicas=3"), (), ("producer_rate=50", "kafka_replicas=3")),
        (("producer_rate=50", "kafka_replicas=3"), ("producer_rate=9",), ("kafka_replicas=3", "producer_rate=9")),
        (("producer_rate=50",), ('{"producer_rate": 9, "my_list": [1]}',),
         ('{"producer_rate": 9}', '{"my_list": [1]}')),
        (("my_a={{ 1 + 2 }}",), ("my_a={{ 3 }}",), ("my_a={{ 3 }}",)),
        # For one stage, or recorded as the base of the lab's ports.
        ((), ("carry_out_force=true", "carry_out_write_rescued=true", "lab_port_base=29000"), ()),
    ],
)  # fmt: skip
def test_a_variable_is_remembered_until_it_is_given_again(
    before: tuple[str, ...], given: tuple[str, ...], after: tuple[str, ...]
) -> None:
    assert later(*given, before=before) == after


@pytest.mark.parametrize("switch", ["console_operator=true", '{"console_operator": true}'])
def test_the_switch_of_the_consoles_outlives_a_lab_that_an_exercise_makes_anew(
    switch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_CARRIED_VARIABLES", "[]")
    recorded = Progress("03-broadcast", "local", LOCAL, "setup", variables=(switch, "producer_rate=50"))
    monkeypatch.setattr(remembered, "read_progress", lambda: recorded)
    remembered.carry_over()
    assert remembered.with_remembered(["-v"], None) == ["-e", switch, "-v"]
    assert remembered.remembered_after(None, []) == (switch,)
    # What is set up has its own record, and what is given comes after it.
    assert later("producer_rate=9") == ("producer_rate=9",)
    assert remembered.remembered_after(None, ["-e", "console_operator=false"]) == ("console_operator=false",)


@pytest.mark.parametrize(
    "given",
    [
        "my_password=hunter2",
        '{"my_registry": {"user": "a", "token": "hunter2"}}',
        "event_streams_operator_entitlement_key=hunter2",
        "my_api_key={{ 'hunter2' }}",
    ],
)
def test_a_secret_is_not_remembered(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert later(given, "producer_rate=50") == ("producer_rate=50",)
    said = capsys.readouterr().err
    assert "not remembered (it may be a secret); give it with each stage" in said
    assert "hunter2" not in said


def test_a_file_of_variables_is_remembered_by_its_path_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, vault = tmp_path / "mine.yml", tmp_path / "vault.yml"
    file.write_text("my_password: hunter2\n", encoding="utf-8")
    vault.write_text("$ANSIBLE_VAULT;1.1;AES256\n", encoding="utf-8")
    kept = later(f"@{file}", f"@{vault}")
    assert kept == (f"@{file}",)
    assert "the file is encrypted" in capsys.readouterr().err
    progress = Progress("03-broadcast", "local", LOCAL, "setup", variables=kept)
    assert remembered.with_remembered(["-v"], progress) == ["-e", f"@{file}", "-v"]
    file.unlink()
    with pytest.raises(WrongUseError, match="set up with this file, which is missing"):
        remembered.with_remembered([], progress)


def test_variables_are_shown_as_they_were_given() -> None:
    kept = later("producer_rate=50", '{"my_note": "two words", "my_list": [1]}')
    assert remembered.shown(kept) == "producer_rate=50, my_note=two words, my_list=[1]"


def test_the_record_keeps_its_variables_where_none_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remember, "scenario_of", lambda _: (read_scenario("03-broadcast"), "setup"))
    action: Any = object.__new__(remember.ActionModule)
    action._task = SimpleNamespace(check_mode=False)
    parameters = {"home": str(tmp_path), "platform": "local", "reached": True, "port_base": 29000}
    for given in ('["producer_rate=50"]', None):
        monkeypatch.delenv("LAB_VARIABLES", raising=False)
        if given:
            monkeypatch.setenv("LAB_VARIABLES", given)
        action.act(parameters, {"ansible_inventory_sources": [LOCAL]})
        progress = read_progress(tmp_path)
        assert progress
        assert progress.variables == ("producer_rate=50",)
