"""Programs that run directories keep, and what is known of two of them measured side by side."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from model_profiling.base import files
from model_profiling.base.errors import InputError, KitError
from model_profiling.fleet.history.trends import ProgramComparison, Series
from model_profiling.store import kept_programs
from model_profiling.store.artifacts import COMPARED, PROGRAMS

# No program is so many times slower than another.
_SLOWEST = 1e-9


class KeptPrograms:
    """What the run directories of a history keep."""

    def __init__(self, homes: Sequence[str]) -> None:
        self._homes = [Path(home) for home in homes]
        self._records: list[ProgramComparison] | None = None

    def program(self, sha256: str) -> Path | None:
        """Return the .pte of this hash; None if nobody kept it."""
        return next(
            (path for home in self._homes if (path := kept_programs.find_program(home, sha256)) is not None), None
        )

    def is_kept(self, sha256: str) -> bool:
        """Return whether there is a folder for it; whether it is unchanged, `program` finds out."""
        return any(kept_programs.home_of(home, sha256).is_dir() for home in self._homes)

    def comparison(self, series: Series, before: str, after: str) -> ProgramComparison | None:
        """Return the newest comparison of two programs, run as those of the series were and on the same device."""
        if self._records is None:
            self._records = [record for home in self._homes for record in _records(home)]
        wanted = (before, after, series.platform, series.device, series.threads, sorted(series.off), series.phase)
        fitting = [
            each
            for each in self._records
            if (each.before, each.after, each.platform, each.device, each.threads) == wanted[:5]
            and (sorted(each.disable_features), each.phase) == wanted[5:]
        ]
        return max(fitting, key=lambda each: each.created, default=None)

    def add(self, home: Path, record: ProgramComparison) -> Path:
        """Write a comparison down, where the later program is kept."""
        stamp = "".join(c for c in record.created if c.isdigit())[:14]
        name = f"{COMPARED}{record.before[:16]}_{record.after[:16]}_{stamp}.json"
        path = files.inside(home, home / PROGRAMS / name)
        files.write_json(path, record)
        self._records = None
        return path


def _records(home: Path) -> list[ProgramComparison]:
    found = []
    for path in sorted((home / PROGRAMS).glob(f"{COMPARED}*.json")):
        with contextlib.suppress(KitError):
            if not path.is_symlink():
                found.append(read_comparison(path))
    return found


def read_comparison(path: Path) -> ProgramComparison:
    record = files.read_json(path, ProgramComparison, "comparison of two programs")
    latency = record.latency
    bounds = () if latency.high is None else (latency.low, latency.high)
    if not all(_SLOWEST < value < 1 / _SLOWEST for value in (latency.ratio, *bounds)):
        raise InputError(f"{path} has a ratio that no comparison can have", "Remove it, and compare again.")
    return record
