"""What starts an executor of Spark in the kit's image."""

from __future__ import annotations

from pathlib import Path

import pytest

from loosehanger.errors import WrongUseError
from loosehanger.proof.executor import command

POD = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "prove-exec-1",
}


def test_the_java_machine_gets_what_the_driver_says() -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in (10, 2, 0)}
    words = command(POD | options, Path("/opt/lab"))
    assert words[:7] == [
        "/opt/lab/java-spark/bin/java",
        "-Dn=0",
        "-Dn=2",
        "-Dn=10",
        "-Dspark.master=k8s://",
        "-Xms1024m",
        "-Xmx1024m",
    ]
    own = words[words.index("--driver-url") :]
    assert dict(zip(own[::2], own[1::2], strict=True)) == {
        "--driver-url": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
        "--executor-id": "1",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.2",
        "--resourceProfileId": "0",
        "--podName": "prove-exec-1",
    }


def test_it_finds_spark_and_what_else_the_driver_names() -> None:
    class_path = command(POD | {"SPARK_CLASSPATH": "/extra/*"}, Path("/opt/lab"))
    pyspark, extra = class_path[class_path.index("-cp") + 1].split(":")
    assert list(Path(pyspark).parent.glob("spark-kubernetes_*.jar"))
    assert extra == "/extra/*"


@pytest.mark.parametrize("missing", ["SPARK_DRIVER_URL", "SPARK_EXECUTOR_MEMORY"])
def test_outside_of_such_a_pod_it_says_so(missing: str) -> None:
    with pytest.raises(WrongUseError, match=f"{missing} is not set; executors are started by Spark's driver only"):
        command({name: value for name, value in POD.items() if name != missing}, Path("/opt/lab"))
