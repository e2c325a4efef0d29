"""`make bench`: measures the kit itself, each ratio side by side in one run."""

import subprocess
import sys
import tempfile
from pathlib import Path

import runner


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        export = [
            sys.executable,
            "-m",
            "model_profiling",
            "export",
            "--model",
            "toy_cnn",
            "--dtype",
            "fp16",
            "--outdir",
            scratch,
        ]
        subprocess.run(export, check=True, stdout=subprocess.DEVNULL)
        runner.report(Path(scratch) / "toy_cnn_xnnpack_fp16.pte")


if __name__ == "__main__":
    main()
