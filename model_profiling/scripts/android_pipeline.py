"""`python model_profiling/scripts/android_pipeline.py …`: the door to `sme2-kit run --platform android …`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from model_profiling.cli.process import enter

    enter("run", "--platform", "android")
