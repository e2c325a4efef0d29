"""Programs that runs measured, kept in the run directory: each content once, with what it takes to run it again.

<run directory>/programs/<start of its hash>/<name>.pte, its sample inputs and export_meta.json
<run directory>/programs/compared_….json    two of them measured side by side (fleet/history/)
"""

import os
import shutil
from pathlib import Path

from model_profiling.base import files
from model_profiling.base.errors import InputError, KitError
from model_profiling.base.file_memo import program_sha256, same_content
from model_profiling.store.artifacts import PROGRAMS, ExportMeta, ExportPaths, ExportRecord

# Set to "off", runs keep no programs.
VARIABLE = "SME2_KIT_HISTORY"
_DIGITS = 16


def is_keeping_off() -> bool:
    return os.environ.get(VARIABLE, "").lower() in ("off", "0", "no", "false")


def home_of(root: Path, sha256: str) -> Path:
    """Return where a program of this hash lies, if it is kept."""
    return root / PROGRAMS / sha256[:_DIGITS]


def find_program(root: Path, sha256: str) -> Path | None:
    """Return the kept program of this hash; None if there is none, or another file has taken its place."""
    home = home_of(root, sha256)
    found = sorted(home.glob("*.pte")) if home.is_dir() and not home.is_symlink() else []
    return next((path for path in found if _is(path, sha256)), None)


def _is(path: Path, sha256: str) -> bool:
    try:
        return files.is_file(path) and not path.is_symlink() and program_sha256(path) == sha256
    except (OSError, InputError):
        return False


def keep_program(root: Path, paths: ExportPaths, sha256: str, export: ExportRecord | None) -> None:
    """Keep a program, unless it is kept already or the file is not that program any more.

    What is damaged of it is replaced. What the kit exported is replaced and never written again, so that a second name
    for it costs nothing. What others wrote they may change in place: it is copied.
    """
    home = files.inside(root, home_of(root, sha256))
    there = find_program(root, sha256)
    if (there is not None and _can_run(there, export)) or program_sha256(paths.pte) != sha256:
        return
    staged = home.with_name(f".{home.name}.staged")
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    copy = ExportPaths(staged / paths.pte.name)
    with same_content(paths.pte):
        files.copy_file(paths.pte, copy.pte, link=export is not None)
    if export is not None:
        for name in _needed(export):
            target = files.inside(staged, staged / name)
            source = paths.directory / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                files.copy_file(source, target, link=True)
        files.write_json(copy.meta, ExportMeta(exports={paths.stem: export}))
    files.replace_directory(staged, home)


def _can_run(there: Path, export: ExportRecord | None) -> bool:
    if export is None:
        return True
    meta = ExportPaths(there).meta
    try:
        if not files.is_file(meta):
            return False
        files.read_json(meta, ExportMeta, "export record")
    except KitError:
        return False
    return all(_is(there.parent / name, export.files[name]) for name in _needed(export) if name in export.files)


def _needed(export: ExportRecord) -> list[str]:
    tokens = [export.sequence.tokens] if export.sequence is not None else []
    return [tensor.file for tensor in export.inputs] + tokens
