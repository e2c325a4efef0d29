"""`python model_profiling/scripts/run_quick_test.py …`: the learning path's door to `sme2-kit profile --demo …`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from model_profiling.cli.process import enter

    enter("profile", "--demo")
