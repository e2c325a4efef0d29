"""Which run a command's argument means. A file means itself, and is known without loading what knows of runs."""

from pathlib import Path

from model_profiling.base import files


def resolve_argument(text: str | Path) -> Path:
    """Return the path that `DIR`, `DIR@LABEL` or a file means."""
    if files.is_file(Path(text)):
        return Path(text)
    from model_profiling.store.runs import resolve

    return resolve(text)
