"""Finds or builds the programs of the API server.

``KUBEBUILDER_ASSETS`` names a folder that has them. Without it they are built from the Go modules that ``go.mod`` pins
and ``go.sum`` locks: once, into ``.lab/kubernetes/<version>/``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loosehanger.errors import LabError, WrongUseError, run_command
from loosehanger.paths import lab_home

HERE = Path(__file__).parent
CONTROLLER_MANAGER = "kube-controller-manager"
"""Kubebuilder's assets do not include it."""
PROGRAMS = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    CONTROLLER_MANAGER: "k8s.io/kubernetes/cmd/kube-controller-manager",
}
NEEDED = ("etcd", "kube-apiserver")
OLDEST_GO = (1, 25)
"""The oldest Go that builds the modules of ``go.mod``."""


class NotAvailableError(LabError):
    """The machine has neither the programs nor the tools to build them."""


def programs() -> Path:
    """Returns the folder with the programs. Builds them if they are missing, which takes minutes.

    Raises:
        NotAvailableError: this machine has neither the programs nor Go.
        WrongUseError: KUBEBUILDER_ASSETS names a folder without them.
        LabError: the build failed.
    """
    if given := os.environ.get("KUBEBUILDER_ASSETS"):
        missing = [name for name in NEEDED if not os.access(Path(given, name), os.X_OK)]
        if missing:
            raise WrongUseError(f"KUBEBUILDER_ASSETS: {given} has no {' and no '.join(missing)}; correct it")
        return Path(given)
    home = lab_home() / "kubernetes"
    built = home / kubernetes_version()
    if not _is_current(built):
        go = _find_go()
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _only_one(home):
            if not _is_current(built):
                _build(go, built)
    return built


def port_forwarder(folder: Path) -> Path:
    """Builds the stand-in for a kubelet that serves ``kubectl port-forward``, and returns the program.

    Args:
        folder: where to put it.

    Raises:
        NotAvailableError: this machine has no Go.
        LabError: the build failed.
    """
    _compile(_find_go(), "./port_forward", folder / "port_forward")
    return folder / "port_forward"


def kubernetes_version() -> str:
    """Returns the version of Kubernetes that ``go.mod`` pins, such as ``v1.35.4``."""
    found = re.search(r"k8s\.io/kubernetes (v[\d.]+)", (HERE / "go.mod").read_text(encoding="utf-8"))
    assert found, "go.mod requires k8s.io/kubernetes"
    return found[1]


def _is_current(built: Path) -> bool:
    stamp = built / "built-from"
    return stamp.exists() and stamp.read_text(encoding="ascii") == _inputs()


def _inputs() -> str:
    """Returns a digest of all inputs of the build."""
    modules = b"".join((HERE / name).read_bytes() for name in ("go.mod", "go.sum"))
    return hashlib.sha256(modules + " ".join(_flags()).encode()).hexdigest()


def _flags() -> list[str]:
    """Returns the flags of ``go build``, which set the version that clients query as Kubernetes' own build does."""
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".")
    variables = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    linker = [f"-X k8s.io/component-base/version.{name}={value}" for name, value in variables.items()]
    return ["-trimpath", "-mod=readonly", "-buildvcs=false", f"-ldflags=-s -w {' '.join(linker)}"]


def _find_go() -> str:
    wanted = ".".join(map(str, OLDEST_GO))
    without = f"set KUBEBUILDER_ASSETS to a folder with {' and '.join(NEEDED)}, or install Go {wanted} to build them"
    go = shutil.which("go")
    if go is None:
        raise NotAvailableError(f"there is no Kubernetes API server and no Go: {without}")
    said = subprocess.run([go, "env", "GOVERSION"], cwd="/", capture_output=True, text=True, check=False).stdout.strip()
    version = re.match(r"go(\d+)\.(\d+)", said)
    if not version or (int(version[1]), int(version[2])) < OLDEST_GO:
        raise NotAvailableError(f"there is no Kubernetes API server, and {go} is {said or 'not Go'}: {without}")
    return go


@contextmanager
def _only_one(home: Path) -> Iterator[None]:
    with (home / "build.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(go: str, built: Path) -> None:
    """Builds into a temporary folder, which replaces the old one when it is complete."""
    say = f"Building Kubernetes {kubernetes_version()} from Go modules, once: some 10 minutes on 2 cores"
    print(say, file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=built.parent, prefix="building-") as folder:
        whole = Path(folder, "whole")
        whole.mkdir()
        for name, package in PROGRAMS.items():
            _compile(go, package, whole / name)
        (whole / "built-from").write_text(_inputs(), encoding="ascii")
        if built.exists():
            shutil.rmtree(built)
        whole.rename(built)


def _compile(go: str, package: str, program: Path) -> None:
    done = subprocess.run(
        [go, "build", *_flags(), "-o", program, package],
        cwd=HERE,
        env={**os.environ, "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise LabError(f"{program.name} could not be built: {done.stderr.strip()[-2000:]}")


def main() -> int:
    """Prints the folder with the programs."""
    print(programs())
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
