"""Which run a command's argument means. A file means itself, and is known without loading what knows of runs."""

from pathlib import Path

from model_profiling.base import files


def resolve_argument(text: str | Path, writes: bool = False) -> Path:
    """Return the path that `DIR`, `DIR@LABEL` or a file means; a command that `writes` first finishes what was left."""
    if files.is_file(Path(text)):
        return Path(text)
    from model_profiling.store.runs import resolve

    path = resolve(text, writes)
    tell_interrupted(path)
    return path


def tell_interrupted(directory: Path) -> None:
    """Say if files of a run directory may be of two states."""
    from model_profiling.cli.notes import note
    from model_profiling.store.transaction import interrupted

    if sentence := interrupted(directory):
        note(sentence)
