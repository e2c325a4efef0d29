"""How long a report takes, and how large it is: a model of 500 operators, two experiments, 200 executions each."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.helpers.run_forge import forge_run

OPERATORS, EXECUTIONS, REPEATS = 500, 200, 3
AIM_S, AIM_BYTES = 3.0, 2_000_000


def report(model: Path) -> None:
    """Forge such a run from a real one of `model` and print what its report takes, from start to end of the command."""
    kit = [sys.executable, "-m", "model_profiling"]
    with tempfile.TemporaryDirectory() as scratch:
        real = Path(scratch) / "real"
        command = [*kit, "run", str(model), "--out", str(real), "--runs", "20", "--quiet"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        made = forge_run(real, Path(scratch) / "large", operators=OPERATORS, executions=EXECUTIONS)
        seconds, processor = [], []
        for _ in range(REPEATS):
            start, before = time.perf_counter(), os.times()
            subprocess.run([*kit, "report", str(made), "--html"], check=True, stdout=subprocess.DEVNULL)
            after = os.times()
            seconds.append(time.perf_counter() - start)
            processor.append(
                after.children_user + after.children_system - before.children_user - before.children_system
            )
        page = (made / "report.html").stat().st_size
    size = f"{OPERATORS} operators, 2 x {EXECUTIONS} executions"
    print(f"report of {size}  {min(seconds):.2f} s, {min(processor):.2f} s of processor (aim: under {AIM_S:g} s)")
    print(f"the page                {page / 1e6:.2f} MB (aim: under {AIM_BYTES / 1e6:g} MB)")
