"""`python -m model_profiling.runtimes NAME …`: one runtime with one model, paced as the kit's runner is."""

import sys

from model_profiling.runtimes.runtime_process import enter

if __name__ == "__main__":
    enter(sys.argv[1:])
