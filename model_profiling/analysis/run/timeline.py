"""A profile from a timeline CSV: for those who kept the table and not the dump."""

import csv
import io
from pathlib import Path

import numpy as np

from model_profiling.analysis.timing.categories import CategoryTable, OperatorClass
from model_profiling.analysis.timing.profile import Instance, Profile, Where
from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.store.run_directory import Turn

# As many executions as the kit traces in one turn.
_TURN = 5
_HINT = "Give a *_all_runs_timeline.csv that the kit wrote."


def read_timeline(path: Path, table: CategoryTable) -> Profile:
    """Read a timeline back; operators are classified anew, so that a changed table counts."""
    try:
        rows = list(csv.DictReader(io.StringIO(files.content(path).decode(), newline="")))
    except OSError as error:
        raise InputError(f"timeline {path} cannot be read: {error.strerror}", _HINT) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"timeline {path} is not a CSV file: {error}", _HINT) from None
    try:
        return _profile(rows, table)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"timeline {path} is not one the kit wrote: {error}", _HINT) from None


def read_turns(path: Path, table: CategoryTable) -> list[Turn]:
    """Return the executions of a timeline as one launch, in turns as they were traced."""
    profile = read_timeline(path, table)
    nanoseconds = profile.execute.round().astype(int).tolist()
    starts = range(0, len(nanoseconds), _TURN)
    return [Turn(number, 0.0, nanoseconds[start : start + _TURN]) for number, start in enumerate(starts)]


def _profile(rows: list[dict[str, str]], table: CategoryTable) -> Profile:
    runs = np.array([int(row["run"]) for row in rows])
    executions = len(np.unique(runs))
    if executions == 0 or len(rows) % executions or len({row["index"] for row in rows}) * executions != len(rows):
        raise ValueError("its runs do not have the same operators")
    shape = (executions, len(rows) // executions)
    times = np.array([float(row["duration_ms"]) for row in rows]).reshape(shape) * 1e6
    starts = np.array([float(row["start_ms"]) for row in rows]).reshape(shape) * 1e6
    instances = tuple(_instance(row, table) for row in rows[: shape[1]])
    return Profile(instances, times.T.copy(), starts.T.copy(), times.sum(axis=1), np.arange(executions) // _TURN)


def _instance(row: dict[str, str], table: CategoryTable) -> Instance:
    where: Where = (
        "delegated" if row["where"] == "delegated" else "portable" if row["where"] == "portable" else "runtime"
    )
    kind = (
        OperatorClass("Other", "overhead") if where == "runtime" else table.classify(row["name"], where == "delegated")
    )
    return Instance(row["name"], row["operator"], where, int(row["chain"]), int(row["instruction"]), kind)
