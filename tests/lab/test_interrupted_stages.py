"""Whatever stage is interrupted, and whenever: run again, it ends right, and what it is for is proved."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import cycle

import pytest

from loosehanger.lab.scenario import read_scenario
from loosehanger.waiting import wait_for
from scripts.sandbox import Kit

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(2400)]

RATE = ("-e", "producer_rate=50")
MOMENTS_S = (0.5, 4, 9)
"""Whatever a stage has come to by then; one that was interrupted has less to do when it is run again."""
BEGUN_S = 60
"""How long a busy machine may take to begin one."""
PATHS = {
    "disaster and return": ("05-active-passive", "failover rebuild failback"),
    "disaster, rescue, and a naive return": ("05-active-passive", "failover rescue swap"),
    "backup and restore": ("06-backup-restore", "lose-region restore resume backup-again"),
    "migration": ("07-migration", "mirror move-consumers fence drain move-producers finish"),
    "migration, and back": ("07-migration", "mirror move-consumers fence drain move-producers reverse return"),
    "migration, and rolled back": ("07-migration", "mirror move-consumers rollback"),
    "migration, and rolled back at once": ("07-migration", "mirror rollback"),
    "always on": ("08-active-active", "failover resume return"),
    "always on, and made again": ("08-active-active", "failover rebuild return"),
}
STRANDED = {"lose-region"}
DISPROVED = {"disaster, rescue, and a naive return"}
"""What ends with a lab that is wrong on purpose."""


def interrupt(kit: Kit, name: str, after_s: float, number: signal.Signals) -> bool:
    """Interrupts a stage some time after it has begun; returns whether it had not ended by then."""
    # Where tests are started in the background, Ctrl-C is ignored, and that is inherited.
    command = ["env", "--default-signal=INT", sys.executable, "-P", "-m", "loosehanger.cli", "stage", name, *RATE]
    with subprocess.Popen(
        command, cwd=kit.root, env=kit.variables(), stdout=subprocess.DEVNULL, start_new_session=True
    ) as process:
        wait_for(
            lambda: None if process.poll() is not None or kit.lab.unfinished == name else "not begun", BEGUN_S, name
        )
        try:
            assert process.wait(after_s) == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, number)
    return process.returncode != 0


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C first", "kill -9 first"])
@pytest.mark.parametrize("path", PATHS)
def test_stages_that_are_interrupted_again_and_again_end_right(bare_kit: Kit, path: str, first: signal.Signals) -> None:
    scenario, names = PATHS[path]
    done = bare_kit.run("setup", scenario, *RATE, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    numbers = cycle((first, signal.SIGKILL if first is signal.SIGINT else signal.SIGINT))
    for name in names.split():
        begun = 0
        for after_s, number in zip(MOMENTS_S, numbers, strict=False):
            if interrupt(bare_kit, name, after_s, number) and bare_kit.lab.unfinished == name:
                begun += 1
                other = next(stage for stage in read_scenario(scenario).stages if stage not in ("setup", name))
                refused = bare_kit.run("stage", other)
                assert refused.returncode == 2, refused.stdout
                assert f"'{name}' was begun and not finished" in refused.stderr
        assert begun, f"{name} was never interrupted in its midst"
        done = bare_kit.run("stage", name, *RATE, timeout=300)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
        # Where no region takes over from a dead one, its applications have nothing to connect to.
        assert bare_kit.run("status").returncode == int(name in STRANDED), name
    assert bare_kit.run("prove", "--timeout", "180", timeout=600).returncode == int(path in DISPROVED)
