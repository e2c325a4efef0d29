"""`make bench`: measures the kit itself, each ratio side by side in one run."""

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import growth, report, runner, verdicts
from model_profiling.runner.build import build_runner


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "model_profiling", "export", "--model", "toy_cnn", "--dtype", "fp16"]
        subprocess.run([*command, "--out", scratch], check=True, stdout=subprocess.DEVNULL)
        model = Path(scratch) / "toy_cnn_xnnpack_fp16.pte"
        print("the runner\n")
        runner.report(model)
        print("\nthe report\n")
        report.report(model)
        print("\nthe reader\n", flush=True)
        # In a process of its own: a child's peak memory counts from its parent's, and torch is loaded here by now.
        reader = [sys.executable, "-m", "benchmarks.etdump_vs_inspector", str(build_runner().path), str(model)]
        subprocess.run(reader, check=True)
    print("\nhow work grows\n", flush=True)
    growth.report()
    print("\nthe verdict, for about 40 minutes\n", flush=True)
    verdicts.report()


if __name__ == "__main__":
    main()
