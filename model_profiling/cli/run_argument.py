"""What a command does first that reads a run: finds it, says what an interruption left in it, and starts numpy."""

import os
import sys
from pathlib import Path

from model_profiling.base import files
from model_profiling.cli.answer import note
from model_profiling.store.runs import resolve
from model_profiling.store.transaction import interrupted

_THREADS = "OPENBLAS_NUM_THREADS"


def resolve_argument(text: str | Path, writes: bool = False) -> Path:
    """Return the path that `DIR`, `DIR@LABEL` or a file means; a command that `writes` first finishes what was left."""
    if files.is_file(Path(text)):
        return Path(text)
    path = resolve(text, writes)
    tell_interrupted(path)
    return path


def tell_interrupted(directory: Path) -> None:
    """Say if files of a run directory may be of two states."""
    if sentence := interrupted(directory):
        note(sentence)


def start_numpy() -> None:
    """Start numpy without the threads of its linear algebra, for commands that multiply no matrices.

    Starting them takes a sixth of numpy's own start on two cores, and more on many. The variable that says so is set
    for that moment only: a child may well multiply matrices.
    """
    if "numpy" in sys.modules or _THREADS in os.environ:
        return
    os.environ[_THREADS] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[_THREADS]
