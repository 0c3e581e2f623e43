"""The folder of a job's temporary files: below the lab's home, readable by its owner alone, and deleted with the job.

Spark, Java and Python would each take the machine's own folder for that, which every user may read, and would
leave there what they were killed with.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # A job is started without it.
    from pyspark.sql import SparkSession

VARIABLE = "LAB_SCRATCH"
"""The environment variable with the path of a job's folder."""
FOLDER = "spark"
"""Where the folders of all jobs are, in the lab's home."""
_LOCK = "lock"


def make(home: Path) -> Path:
    """Makes a folder that belongs to this process for as long as it lives, whatever program it becomes.

    Deletes the folders of processes that are gone: a job that is killed together with its Java machine leaves one.

    Args:
        home: the lab's home.
    """
    folders = home / FOLDER
    folders.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The lock keeps other processes from creating or deleting folders meanwhile.
    with (folders / _LOCK).open("w") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        for folder in folders.iterdir():
            if folder.is_dir() and not _has_an_owner(folder):
                shutil.rmtree(folder, ignore_errors=True)
        made = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=folders))
        # Held without being closed, and across ``exec``: the lock ends with the process, however that ends.
        held = os.open(made / _LOCK, os.O_WRONLY | os.O_CREAT, 0o600)
        os.set_inheritable(held, True)
        fcntl.flock(held, fcntl.LOCK_EX)
    return made


def delete_with(spark: SparkSession) -> None:
    """Has the job's folder deleted when its Java machine ends: that ends with the job, and writes there to the last."""
    folder = os.environ.get(VARIABLE)
    java = spark.sparkContext._jvm
    if folder and java:
        java.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(java.java.io.File(folder))


def _has_an_owner(folder: Path) -> bool:
    try:
        with (folder / _LOCK).open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
