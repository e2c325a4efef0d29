"""The runner: how long it takes to build, what it adds to an inference, what the tracer adds."""

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

from model_profiling.analysis.compare.metrics import compute_metrics
from model_profiling.pipeline.config import parse_config
from model_profiling.pipeline.pipeline import Pipeline
from model_profiling.platforms.process_platform import LocalPlatform
from model_profiling.runner.build import build_runner, compile_command, generate_tables, host_compiler

HERE = Path(__file__).parent


def build_seconds() -> tuple[float, float]:
    """Return the seconds to build into an empty cache, and to find the build there."""
    with tempfile.TemporaryDirectory() as cache:
        before = os.environ.get("SME2_KIT_CACHE")
        os.environ["SME2_KIT_CACHE"] = cache
        try:
            times = []
            for _ in range(2):
                start = time.perf_counter()
                build_runner()
                times.append(time.perf_counter() - start)
        finally:
            os.environ.pop("SME2_KIT_CACHE")
            if before is not None:
                os.environ["SME2_KIT_CACHE"] = before
    return times[0], times[1]


def loop_overhead_percent(model: Path) -> tuple[float, float]:
    """Return how much slower the runner's loop is than a bare Module::forward loop, and the latency that is of, in
    ms."""
    build = build_runner()
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "kit_tables.h").write_text(generate_tables(build.target))
        binary, source = Path(scratch) / "overhead", HERE / "runner_overhead.cpp"
        subprocess.run(
            compile_command(build.target, build.sdk, host_compiler(), Path(scratch), source, binary), check=True
        )
        done = subprocess.run([binary, model, "60", "10"], capture_output=True, text=True, check=True)
    medians = json.loads(done.stdout)
    return (medians["runner_ns"] / medians["bare_ns"] - 1) * 100, medians["bare_ns"] / 1e6


def tracer_overhead_percent(model: Path) -> float:
    """Return how much slower executions are with the tracer attached, measured in turns."""
    with tempfile.TemporaryDirectory() as scratch:
        raw = {
            "model": str(model),
            "output_root": scratch,
            "experiments": [{"name": "bench", "num_runs": 200, "traced_runs": 200}],
        }
        result = Pipeline(parse_config(raw, "benchmark"), LocalPlatform(), lambda *_: None).run()
        overhead = compute_metrics(result.directory, result.manifest).experiments["bench"].tracer_overhead_percent
    assert overhead is not None
    return overhead


def report(model: Path) -> None:
    cold, warm = build_seconds()
    print(f"runner build            {cold:.2f} s, from the cache {warm:.3f} s")
    added, latency = loop_overhead_percent(model)
    print(f"runner's own overhead   {added:+.2f} % of {latency:.2f} ms, beside bare Module::forward (aim: < 1 %)")
    print(f"tracer overhead         {tracer_overhead_percent(model):+.2f} %, never part of latency")
