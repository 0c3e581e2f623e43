"""``python -m loosehanger.proof.executor``: an executor of Spark on Kubernetes, in the kit's own image.

Spark configures its executors by environment variables, and leaves it to the image to start Java. Spark's own image has
an entry point for that; ``conf/executor.yaml`` names this one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from loosehanger.errors import WrongUseError, run_command
from loosehanger.paths import lab_home

_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_OPTIONS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""The options of Spark's program, and the variables that their values come in."""
_JAVA_OPTION = "SPARK_JAVA_OPT_"
_ON_KUBERNETES = "-Dspark.master=k8s://"
"""Without it an executor takes no secret from a file (``SecurityManager.secretKeyFromFile``)."""


def command(environment: Mapping[str, str], home: Path) -> list[str]:
    """What starts the executor.

    Args:
        environment: as Spark makes it for the pod.
        home: the folder with the installed parts.

    Raises:
        WrongUseError: this is not a pod that Spark made.
    """
    if missing := [name for name in ("SPARK_EXECUTOR_MEMORY", *_OPTIONS.values()) if name not in environment]:
        raise WrongUseError(f"{missing[0]} is not set; executors are started by Spark's driver only")
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    numbered = sorted(
        (int(name.removeprefix(_JAVA_OPTION)), value)
        for name, value in environment.items()
        if name.startswith(_JAVA_OPTION)
    )
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    jars = [str(Path(spark.origin).parent / "jars" / "*"), *filter(None, [environment.get("SPARK_CLASSPATH")])]
    return [
        str(home / "java-spark" / "bin" / "java"),
        *(option for _, option in numbered),
        _ON_KUBERNETES,
        f"-Xms{memory}",
        f"-Xmx{memory}",
        *("-cp", ":".join(jars)),
        _BACKEND,
        *(word for option, name in _OPTIONS.items() for word in (option, environment[name])),
    ]


def main() -> int:
    """Becomes the executor."""
    become = command(os.environ, lab_home())
    os.execv(become[0], become)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    sys.exit(run_command(main))
