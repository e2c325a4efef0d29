"""`python model_profiling/scripts/generate_report.py …`: the learning path's door to `sme2-kit report …`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from model_profiling.cli.process import enter

    enter("report")
