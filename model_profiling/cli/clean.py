"""List the kit's caches and, with --outputs, the results here; --yes deletes what is listed."""

import argparse
import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from model_profiling.api.definition import takes
from model_profiling.base.cache import KINDS
from model_profiling.base.directories import cache_directory, state_directory, working_directory
from model_profiling.base.installation import relative_to_here
from model_profiling.base.printing import tell
from model_profiling.base.units import counted, shown_mib

TAKES = takes(more="outputs yes")
EXAMPLE = "sme2-kit clean --outputs"

# A user may have chosen a cache directory that holds other things: only these are the kit's.
_CACHES = (*KINDS, "android", "hashes", "history", "kernel_tables", "roofs")
# One of these is in every folder of results, and no other program's files are called so.
_RECORDS = {"derived.json", "export_meta.json", "forecast_validation.json"}


def run(args: argparse.Namespace) -> None:
    listed = [("cache", path) for path in _caches()]
    listed += [("results", path) for path in _results()] if args.outputs else []
    sizes = [_size(path) for _, path in listed]
    for (what, path), size in zip(listed, sizes, strict=True):
        tell(f"{what:<9}{shown_mib(size):>12}  {relative_to_here(path)}\n")
    if args.yes:
        for _, path in listed:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    more = " --outputs" if args.outputs else ""
    found = f"{counted(len(listed), 'entry', 'entries')}, {shown_mib(sum(sizes))}"
    tell(f"deleted: {found}\n" if args.yes else f"{found}; `sme2-kit clean{more} --yes` deletes them\n")
    if sys.prefix != sys.base_prefix:
        venv = Path(sys.prefix)
        tell(f"not touched: {relative_to_here(venv)}, {shown_mib(_size(venv))}, the Python environment of the kit\n")


def _caches() -> Iterator[Path]:
    """Yield what the kit can make again, by its own names; a phone's settings that wait to be restored stay."""
    for path in (state_directory(), *(cache_directory() / name for name in _CACHES)):
        waits = path.name == "android" and any(path.rglob("settings.json"))
        if os.path.lexists(path) and not _is_linked(path) and not waits:
            yield path


def _results() -> Iterator[Path]:
    """Yield the folders out_* of the working directory, and of a clone's package, that hold a record of the kit."""
    here = Path(working_directory())
    for path in sorted([*here.glob("out_*"), *here.glob("model_profiling/out_*")]):
        if path.is_dir() and not _is_linked(path) and any(_RECORDS & {*names} for _, _, names in os.walk(path)):
            yield path


def _is_linked(path: Path) -> bool:
    return path.is_symlink() or path.parent.is_symlink()


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder; links are not followed."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    total = 0
    with contextlib.suppress(PermissionError), os.scandir(path) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # it has gone by now
                below = entry.is_dir(follow_symlinks=False)
                total += _size(Path(entry.path)) if below else entry.stat(follow_symlinks=False).st_size
    return total
