"""`python model_profiling/tools/analyze_etdump_csv.py …`: a tool of the learning path; see --help."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from model_profiling.cli.process import enter

    enter(tool="analyze_etdump_csv")
