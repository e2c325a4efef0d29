"""`python model_profiling/scripts/validate_setup.py …`: the door to `sme2-kit skills validate 01_setup_workspace …`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from model_profiling.cli.process import enter

    enter("skills", "validate", "01_setup_workspace")
