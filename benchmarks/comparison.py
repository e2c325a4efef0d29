"""How far a verdict can be trusted: equal things must rarely be called different, and 5 % must be found."""

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.slowdown import compared, export_slower
from model_profiling.analysis.latency import compare, latency_turns
from model_profiling.pipeline.config import parse_config
from model_profiling.pipeline.pipeline import Pipeline
from model_profiling.platforms.local import LocalPlatform
from model_profiling.run_directory import RunDirectory, Turn

REAL = 20
SIMULATED = 1000


def simulated(scale: float, seed: int) -> str:
    """The verdict on two simulated experiments under shared drift, noise and now and then a neighbour's hiccup."""
    generator = np.random.default_rng(seed)
    drift = np.exp(np.cumsum(generator.normal(0, 0.02, 20)))
    sides = []
    for factor in (scale, 1.0):
        noise = generator.normal(1, 0.01, (20, 3)) + (generator.random((20, 3)) < 0.05) * generator.exponential(
            0.5, (20, 3)
        )
        rows = (1e6 * factor * drift[:, None] * noise).astype(int)
        sides.append([Turn(number, 0.0, row.tolist()) for number, row in enumerate(rows)])
    return compare(("a", sides[0]), ("b", sides[1]), paired=True).verdict


def real(model: Path, home: Path, number: int) -> str:
    """The verdict on one real experiment against itself."""
    experiments = [{"name": name, "num_runs": 60, "traced_runs": 5} for name in ("left", "right")]
    raw = {"model": str(model), "output_root": str(home / str(number)), "experiments": experiments, "seed": number}
    Pipeline(parse_config(raw, "benchmark"), LocalPlatform(), lambda *_: None).run()
    directory = RunDirectory(home / str(number))
    manifest = directory.manifest()
    sides = [(n, latency_turns(r, directory.samples(manifest, n))) for n, r in manifest.experiments.items()]
    return compare(sides[0], sides[1], paired=True).verdict


def report(model: Path) -> None:
    equal = sum(simulated(1.0, seed) != "no difference seen" for seed in range(SIMULATED))
    print(
        f"A/A simulated           {equal} of {SIMULATED} claim a difference ({equal / SIMULATED:.1%}, aim: at most 5 %)"
    )
    found = sum(simulated(1.05, seed) == "faster" for seed in range(SIMULATED))
    print(f"5 % simulated           {found} of {SIMULATED} find it")
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        claimed = sum(real(model, home, number) != "no difference seen" for number in range(REAL))
        print(f"A/A real                {claimed} of {REAL} claim a difference")
        slower_model = export_slower(home, "fp16")
        results = [compared(model, slower_model, home / "compared") for _ in range(REAL)]
    found = sum(result.verdict == "slower" for result in results)
    slower = np.median([1 / result.ratio - 1 for result in results])
    print(f"real slowdown           {found} of {REAL} find it (median {slower:.1%})")
