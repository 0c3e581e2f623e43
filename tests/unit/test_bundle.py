"""What a maintainer gets to see: nothing with a secret in it, and only the owner can read it."""

from __future__ import annotations

import base64
import tarfile
from pathlib import Path

import pytest

from loosehanger.lab.record import Progress
from scripts.sandbox import Kit, copy_kit

PASSWORDS = {"europe": "europes-password", "north-america": "americas-password"}
EVERYTHING = " ".join([*PASSWORDS.values(), base64.b64encode(PASSWORDS["europe"].encode()).decode()])


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    """A lab of which only files are left, each of which has every region's password in it."""
    kit = copy_kit(tmp_path, port_base=26000)
    Progress("03-broadcast", "local", str(kit.root / "inventories/local"), stage="setup").write(kit.home)
    for path, text in {
        "logs/spark.log": f"spark says {EVERYTHING}",
        **{f"regions/{name}/logs/producer.log": f"{name} says {EVERYTHING}" for name in PASSWORDS},
        **{f"regions/{name}/secrets/user/password": password for name, password in PASSWORDS.items()},
    }.items():
        (kit.home / path).parent.mkdir(parents=True, exist_ok=True)
        (kit.home / path).write_text(text, encoding="utf-8")
    (kit.home / "regions/south-america/secrets").mkdir(parents=True)
    return kit


def texts(file: Path) -> dict[str, str]:
    """The files of an archive."""
    with tarfile.open(file) as archive:
        return {m.name: stream.read().decode() for m in archive.getmembers() if (stream := archive.extractfile(m))}


def test_secrets_are_taken_out_of_all_that_is_in_it(kit: Kit, tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    file.write_text("an old one", encoding="utf-8")
    file.chmod(0o666)
    with file.open(encoding="utf-8") as opened_by_somebody_else:
        done = kit.run("status", "--bundle", str(file))
        assert done.returncode == 0, done.stdout + done.stderr
        assert opened_by_somebody_else.read() == "an old one"
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.glob(".bundle*")) == []
    found = texts(file)
    assert found["bundle/spark.log"] == "spark says *** *** ***"
    for region in PASSWORDS:
        assert found[f"bundle/regions/{region}/logs/producer.log"] == f"{region} says *** *** ***"


def test_where_secrets_cannot_be_read_logs_are_left_out_and_it_says_so(kit: Kit, tmp_path: Path) -> None:
    (kit.home / "regions/north-america/secrets/user/password").unlink()
    (kit.home / "regions/north-america/secrets/user/password").symlink_to("nowhere")
    file = tmp_path / "bundle.tar.gz"
    done = kit.run("status", "--bundle", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    found = texts(file)
    assert "bundle/about.txt" in found
    assert not any(password in text for password in PASSWORDS.values() for text in found.values())
    assert not [name for name in found if name.endswith((".log", "processes.txt", "status.json"))]
    for reported in (found["bundle/left-out.txt"], done.stderr):
        assert "logs and files that quote them are left out" in reported
        assert "north-america: " in reported
        assert "No such file or directory" in reported
