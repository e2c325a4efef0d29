"""What the best program does in another time than the baseline, line by line: both are traced in turns, at the end."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from model_profiling.analysis.compare.largest_changes import largest
from model_profiling.analysis.compare.program_changes import ProgramChanges
from model_profiling.analysis.run.measured_side import measured_side
from model_profiling.analysis.run.selection import changes_between
from model_profiling.base import files
from model_profiling.base.errors import KitError
from model_profiling.base.on_progress import OnProgress, say_note
from model_profiling.pipeline.schedule import Counts
from model_profiling.pipeline.side_by_side import measure, programs_of
from model_profiling.platforms.base import Platform

_FILE = "changes.json"


class _KeptChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was traced before; `key` is a hash of everything that decides it."""

    key: str
    changes: ProgramChanges


def winner_changes(
    platform: Platform,
    models: Mapping[str, Path],
    home: Path,
    key: str,
    how: tuple[int, Counts, OnProgress],
    force: bool,
) -> ProgramChanges | None:
    """Return the largest changes from the first of two programs to the second, of language models in the last phase; as
    they were found before, if `key` is that of then. None where they cannot be traced: the result stands without."""
    path = home / _FILE
    with contextlib.suppress(KitError):
        if not force and (known := files.read_json(path, _KeptChanges, "changes")).key == key:
            return known.changes
    threads, counts, report = how
    try:
        programs, phases = programs_of(models)
        phase = phases[-1] if phases else None
        traced = measure(platform, programs, home / "traced", threads, report, counts=counts, phase=phase, timed=False)
        sides = [measured_side(outcome, name, phase) for name, outcome in traced.items()]
        found = largest(changes_between(sides[0], sides[1]))
    except KitError as error:
        say_note(f"what changed is not known: {error.message}")
        return None
    files.write_json(path, _KeptChanges(key, found))
    return found
