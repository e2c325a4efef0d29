"""`python model_profiling/tools/robust_latency_analysis.py …`: a tool of the learning path; see --help."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Run as a script, Python puts this folder first; the package is found from the repository's root.
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from model_profiling.cli.process import enter
    from model_profiling.cli.tools import main

    enter(command=lambda: main("robust_latency_analysis"))
