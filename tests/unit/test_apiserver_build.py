"""Finding and building the API server's programs. Go is a stand-in here: the real build takes ten minutes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loosehanger.errors import LabError, WrongUseError
from scripts.apiserver import build

GO = """\
#!/bin/sh
if [ "$1" = env ]; then echo go{version}; exit; fi
echo "$@" >>"{folder}/builds"
while [ "$1" != -o ]; do shift; done
case "$2" in *{broken}) echo "it does not compile" >&2; exit 1 ;; esac
echo built >"$2"
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without anything."""
    monkeypatch.setenv("LAB_HOME", str(tmp_path / "lab"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    (tmp_path / "bin").mkdir()
    for tool in ("sh", "echo"):
        path = next(Path(folder, tool) for folder in ("/bin", "/usr/bin") if Path(folder, tool).exists())
        (tmp_path / "bin" / tool).symlink_to(path)
    return tmp_path


def install_go(home: Path, version: str = "1.25.3", broken: str = "nothing") -> None:
    """Puts a Go there that writes a file for each program, and notes that it was called."""
    go = home / "bin/go"
    go.write_text(GO.format(version=version, folder=home, broken=broken), encoding="utf-8")
    go.chmod(0o755)


def builds(home: Path) -> int:
    """How many programs were built."""
    path = home / "builds"
    return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0


def test_kubebuilders_programs_win(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_go(home)
    for name in build.NEEDED:
        (home / name).touch(mode=0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(home))
    assert build.programs() == home
    assert builds(home) == 0
    (home / "etcd").unlink()
    with pytest.raises(WrongUseError, match=r"KUBEBUILDER_ASSETS: .* has no etcd"):
        build.programs()


def test_builds_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_go(home)
    built = build.programs()
    assert built == home / "lab/kubernetes" / build.kubernetes_version()
    assert {path.name for path in built.iterdir()} == {*build.PROGRAMS, "built-from"}
    assert build.programs() == built
    assert builds(home) == len(build.PROGRAMS)
    assert {path.name for path in built.parent.iterdir()} == {built.name, "build.lock"}
    monkeypatch.setattr(build, "_flags", lambda: ["-other"])
    assert build.programs() == built
    assert builds(home) == 2 * len(build.PROGRAMS), "what decides about the result has changed"


def test_a_broken_build_is_never_used(home: Path) -> None:
    install_go(home, broken="kube-apiserver")
    for _ in range(2):
        with pytest.raises(LabError, match="kube-apiserver could not be built: it does not compile"):
            build.programs()
    assert {path.name for path in (home / "lab/kubernetes").iterdir()} == {"build.lock"}


@pytest.mark.parametrize(
    ("version", "message"),
    [(None, "no Kubernetes API server and no Go"), ("1.19.8", r"is go1\.19\.8: .* install Go 1\.25")],
)
def test_says_what_a_machine_lacks(home: Path, version: str | None, message: str) -> None:
    if version:
        install_go(home, version)
    with pytest.raises(build.NotAvailableError, match=message):
        build.programs()
    assert builds(home) == 0


def test_go_is_as_new_as_the_module_asks() -> None:
    wanted = ".".join(map(str, build.OLDEST_GO))
    assert f"\ngo {wanted}" in (build.HERE / "go.mod").read_text(encoding="utf-8")
    assert os.access(build.HERE / "go.sum", os.R_OK)
