"""`python -m model_profiling` is `sme2-kit`."""

import sys

from model_profiling.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
