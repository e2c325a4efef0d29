"""`make known-good`: a small run of the real pipeline, kept in tests/data/known_good_run, with no path of this machine.

What names this machine's folders is made relative, then everything that derives from the run is computed again.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.conftest import ROOT, kit

HOME = ROOT / "tests" / "data" / "known_good_run"
MODEL = "out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16.pte"
RUN = "out_toy_cnn/runs/known_good"
RUNS = 20
ATTEMPTS = 30
STEADY_PERCENT = 1.5


def regenerate(home: Path) -> None:
    """Export, run, make relative, analyse again, and put the result at `home`."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        _kit(work, "export", "--model", "toy_cnn", "--dtype", "fp16", "--outdir", Path(MODEL).parent)
        _run_quietly(work)
        _make_relative(work / RUN / "manifest.json")
        # Without the model beside it, no PyTorch line (a path of this machine) gets into the analysis.
        shutil.rmtree(work / "out_toy_cnn" / "artifacts")
        shutil.copytree(work / RUN, work / "known_good_run", ignore=shutil.ignore_patterns(".*", "*_timeline.csv"))
        _kit(work, "analyze", "known_good_run")
        _kit(work, "validate", "--results", "known_good_run")
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(
            work / "known_good_run", home, ignore=shutil.ignore_patterns(".*", "*_all_runs_timeline.csv", "report*")
        )


def _run_quietly(work: Path) -> None:
    """Run until both experiments are steady: a baseline taken on a busy machine would hide every regression."""
    for _ in range(ATTEMPTS):
        shutil.rmtree(work / RUN, ignore_errors=True)
        _kit(work, "run", MODEL, "--output-root", RUN, "--runs", RUNS, "--quiet")
        metrics = json.loads((work / RUN / "metrics.json").read_text())
        latencies = [experiment["latency"] for experiment in metrics["experiments"].values()]
        spread = max(latency["mad_ms"] / latency["median_ms"] * 100 for latency in latencies)
        contended = any(comparison["contended"] for comparison in metrics["comparisons"])
        if spread < STEADY_PERCENT and not contended:
            return
    raise SystemExit(f"the machine is too busy: executions still vary by {spread:.1f} % (MAD)")


def _make_relative(path: Path) -> None:
    manifest: dict[str, Any] = json.loads(path.read_text())
    manifest["model"]["path"] = MODEL
    manifest["config"] |= {"model": MODEL, "output_root": RUN, "command": f"sme2-kit run {MODEL} --runs {RUNS}"}
    manifest["environment"]["system"] = str(manifest["environment"]["system"]).split()[0]
    for record in manifest["experiments"].values():
        record["runner"]["path"] = Path(record["runner"]["path"]).name
    path.write_text(json.dumps(manifest, indent=2) + "\n")


def _kit(work: Path, *arguments: object) -> None:
    done = kit(*arguments, cwd=work)
    if done.returncode != 0:
        raise SystemExit(done.stderr)


if __name__ == "__main__":
    regenerate(Path(sys.argv[1]) if len(sys.argv) > 1 else HOME)
    size = sum(file.stat().st_size for file in HOME.rglob("*") if file.is_file())
    sys.stdout.write(f"{os.path.relpath(HOME)}: {size // 1024} KB\n")
