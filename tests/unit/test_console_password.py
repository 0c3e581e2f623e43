"""One user name for all consoles, and a password of one's own for all of them."""

from __future__ import annotations

import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from loosehanger.cli import cleaning, commands, credentials
from loosehanger.errors import WrongUseError
from loosehanger.lab.console_password import SIGNS_IN, check_password, console_password, keep_password
from loosehanger.lab.manifests.resources import KafkaUser
from loosehanger.lab.record import WebConsole
from loosehanger.paths import ROOT
from loosehanger.platforms.kubernetes.console_password import with_password
from loosehanger.platforms.kubernetes.resources import ManifestEntry
from loosehanger.platforms.local.kafka_entities import _password
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.local.secret_store import write_secret
from loosehanger.platforms.web_consoles import web_console

OWN = "correct-horse-battery"


def user(name: str, **labels: str) -> KafkaUser:
    """A user; with the label of those that sign in, or without."""
    metadata = {"name": name, "namespace": "europe", "labels": {"strimzi.io/cluster": "europe", **labels}}
    spec = {"authentication": {"type": "scram-sha-512"}, "authorization": {"type": "simple", "acls": []}}
    content = {"apiVersion": "kafka.strimzi.io/v1", "kind": "KafkaUser", "metadata": metadata, "spec": spec}
    return KafkaUser.model_validate(content)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "12 to 128 characters; this one has 0"),
        ("short-one11", "this one has 11"),
        ("abcdefghijkl" * 11, "this one has 132"),
        ("with a blank in it", "without blanks"),
        ('quote"in-the-middle', "without blanks, quotes"),
        ("back\\slash-in-it", "backslashes"),
        ("dollar$-in-the-text", "dollar signs"),
        ("lines\nin-the-text", "ASCII letters"),
        ("pässword-of-mine", "ASCII letters"),
        ("aaaaaaaaaaaaaaaa", "6 different characters"),
    ],
)
def test_a_password_is_checked_and_never_shown(text: str, reason: str) -> None:
    with pytest.raises(WrongUseError) as raised:
        check_password(text)
    assert reason in str(raised.value)
    assert not text or text not in str(raised.value)


def test_it_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    assert console_password(tmp_path) is None
    keep_password(tmp_path, OWN)
    assert console_password(tmp_path) == OWN
    (path,) = (tmp_path / "access").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(WrongUseError):
        keep_password(tmp_path, "short")
    assert console_password(tmp_path) == OWN


def test_only_users_who_sign_in_have_it(tmp_path: Path) -> None:
    region = LocalRegion(tmp_path, ROOT, "europe", 0)
    signs_in = user("operator", **{SIGNS_IN: "true"})
    assert len(_password(region, signs_in)) == 32, "a generated one"
    write_secret(region, "operator", {"password": b"generated before"})
    assert _password(region, signs_in) == "generated before"
    keep_password(tmp_path, OWN)
    assert _password(region, signs_in) == OWN
    assert _password(region, user("producer")) != OWN


def deployment(*, secret: str | None) -> dict[str, Any]:
    """A console's Deployment, as the role describes it."""
    env = {
        "CONSOLE_NAME": "room",
        "CONSOLE_USERNAME": "operator",
        "CONSOLE_ADDRESS": "127.0.0.1",
        "CONSOLE_PORT": "19171",
    }
    env["CONSOLE_PASSWORD_FILE"] = "/etc/console/sign-in/password"
    container: dict[str, Any] = {"env": [{"name": name, "value": value} for name, value in env.items()]}
    pod: dict[str, Any] = {"containers": [container]}
    if secret:
        container["volumeMounts"] = [{"name": "sign-in", "mountPath": "/etc/console/sign-in"}]
        pod["volumes"] = [{"name": "sign-in", "secret": {"secretName": secret}}]
    return {"kind": "Deployment", "spec": {"template": {"spec": pod}}}


@pytest.mark.parametrize(
    ("secret", "account"), [("control-room", "control-room"), ("operator", "operator"), (None, "")]
)
def test_the_record_knows_whose_password_it_is(secret: str | None, account: str) -> None:
    found = web_console(deployment(secret=secret))
    assert found == {
        "name": "room", "url": "http://127.0.0.1:19171", "username": "operator", "account": account, "scraper": "",
    }  # fmt: skip
    assert WebConsole(**found).password_of == (account or "operator")


def test_the_role_gives_every_console_one_user_name() -> None:
    text = (ROOT / "roles/console/templates/console.yaml.j2").read_text(encoding="utf-8")
    assert "- name: CONSOLE_USERNAME\n              value: {{ console_sign_in_user }}\n" in text
    assert text.count(f'{SIGNS_IN}: "true"') == 2
    defaults = yaml.safe_load((ROOT / "roles/console/defaults/main.yml").read_text(encoding="utf-8"))
    assert defaults["console_sign_in_user"] == "operator"


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ([], OWN),
        (["-i", "inventories/strimzi"], OWN),
        (["--check"], None),
    ],
)
def test_the_set_up_keeps_it(
    arguments: list[str], kept: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_HOME", str(tmp_path))
    commands._keep_password(OWN, arguments)
    assert console_password(tmp_path) == kept
    commands._keep_password("", [])
    assert console_password(tmp_path) == kept, "without one, the one before stays"


def entry(document: dict[str, Any]) -> ManifestEntry:
    """A resource as the platform gets it."""
    return ManifestEntry("console.yaml", document)


def kafka_user(name: str, **labels: str) -> dict[str, Any]:
    """A user's manifest."""
    return user(name, **labels).model_dump(by_alias=True, exclude_none=True, mode="json")


def test_on_kubernetes_users_who_sign_in_refer_to_a_secret_with_it(tmp_path: Path) -> None:
    console = deployment(secret="operator")
    console["metadata"] = {"name": "console-europe", "namespace": "europe"}
    console["spec"]["template"]["spec"]["containers"][0]["command"] = ["python", "-P", "-m", "loosehanger.console"]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "europe"}}
    users = [kafka_user("operator", **{SIGNS_IN: "true"}), kafka_user("producer")]
    given = [entry(namespace), *map(entry, users), entry(console)]
    assert with_password("europe", tmp_path, given) == given, "the operator generates passwords"
    keep_password(tmp_path, OWN)
    first, secret, operator, producer, changed = (one.document for one in with_password("europe", tmp_path, given))
    assert first == namespace, "the Secret is created in it"
    assert secret["metadata"]["namespace"] == "europe"
    reference = operator["spec"]["authentication"]["password"]["valueFrom"]["secretKeyRef"]
    assert reference["name"] == secret["metadata"]["name"]
    assert base64.b64decode(secret["data"][reference["key"]]).decode() == OWN
    assert producer == users[1]
    env = changed["spec"]["template"]["spec"]["containers"][0]["env"]
    assert env[-1] == {"name": "CONSOLE_SHARED_PASSWORD", "value": "true"}
    assert "password" not in users[0]["spec"]["authentication"], "what is recorded has no reference"
    only_console = with_password("europe", tmp_path, given[2:])
    assert [one.document["kind"] for one in only_console] == ["KafkaUser", "Deployment"]


def test_another_password_changes_the_users_and_the_same_one_does_not(tmp_path: Path) -> None:
    given = [entry(kafka_user("operator", **{SIGNS_IN: "true"}))]

    def reference() -> str:
        _, operator = with_password("europe", tmp_path, given)
        key: str = operator.document["spec"]["authentication"]["password"]["valueFrom"]["secretKeyRef"]["key"]
        return key

    keep_password(tmp_path, OWN)
    first = reference()
    keep_password(tmp_path, OWN)
    assert reference() == first
    keep_password(tmp_path, f"{OWN}-2")
    assert reference() != first, "else its operator would not know of it"


def test_the_credentials_do_not_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAB_HOME", str(tmp_path))
    monkeypatch.setattr(credentials, "connection_of", lambda *_: SimpleNamespace(password=OWN))
    region = SimpleNamespace(consoles=[WebConsole("europe", "http://127.0.0.1:1", "operator")])
    lab: Any = SimpleNamespace(regions={"europe": region}, pod=None)
    credentials.show_credentials(lab)
    assert OWN in capsys.readouterr().out
    keep_password(tmp_path, OWN)
    credentials.show_credentials(lab)
    shown = capsys.readouterr().out
    assert OWN not in shown
    assert "as in LAB_PASSWORD" in shown


@pytest.mark.parametrize("keep", [True, False])
def test_a_clean_up_keeps_it_on_request(keep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "lab_home", lambda: tmp_path)
    monkeypatch.setattr(cleaning, "run_playbook", lambda *_: None)
    monkeypatch.setattr(cleaning, "_progress", lambda _: None)
    keep_password(tmp_path, OWN)
    for path in ("access/europe/password", "access/europe.json", "regions/europe/log"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x", encoding="utf-8")
    assert cleaning.cleanup(["--keep-password"] if keep else []) == 0
    left = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert left == (["access/console.password"] if keep else [])
    assert console_password(tmp_path) == (OWN if keep else None)


def test_there_must_be_one_to_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "lab_home", lambda: tmp_path)
    monkeypatch.setattr(cleaning, "run_playbook", lambda *_: pytest.fail("something was deleted"))
    with pytest.raises(WrongUseError, match="no password was chosen"):
        cleaning.cleanup(["--keep-password"])
    keep_password(tmp_path, OWN)
    with pytest.raises(WrongUseError, match="--keep-password excludes --all"):
        cleaning.cleanup(["--keep-password", "--all"])
    assert console_password(tmp_path) == OWN
