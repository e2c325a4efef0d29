"""Starts numpy without the threads of its linear algebra, for commands that multiply no matrices.

Starting them takes a sixth of numpy's own start on two cores, and more on many. The variable that says so is set for
that moment only: a child may well multiply matrices.
"""

import os
import sys

_THREADS = "OPENBLAS_NUM_THREADS"


def start_numpy() -> None:
    if "numpy" in sys.modules or _THREADS in os.environ:
        return
    os.environ[_THREADS] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[_THREADS]
