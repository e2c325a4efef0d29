"""From an instruction of the program to the PyTorch line it came from, through the ETRecord beside the .pte."""

from pathlib import Path

from model_profiling import etrecord, pte
from model_profiling.analysis.breakdown import SourceLine
from model_profiling.artifacts import ExportPaths
from model_profiling.errors import KitError


def source_lines(model: Path, method: str = "forward") -> tuple[dict[int, SourceLine], str]:
    """The source of each portable operator and delegate call; or none, and the reason as a note."""
    paths = ExportPaths(model)
    unlinked = "operators are not linked to PyTorch lines"
    if not paths.etrecord.is_file():
        return {}, f"no ETRecord beside {model.name}: {unlinked}"
    try:
        record = etrecord.read(paths.etrecord)
        mismatch = etrecord.matches(record, model)
        program = pte.read(model)
    except KitError as error:
        return {}, f"the ETRecord was not used ({error.message}): {unlinked}"
    if mismatch is not None:
        return {}, f"the ETRecord belongs to another export ({mismatch}): {unlinked}"
    names = {i.index: i.name for m in program.methods if m.name == method for i in m.instructions}
    found = {}
    for instruction in record.sources.get(method, {}):
        source = record.source(instruction, method, names.get(instruction))
        if source is not None and source.nodes:
            found[instruction] = _line(source)
    return found, ""


def _line(source: etrecord.InstructionSource) -> SourceLine:
    """The operator's own line; a delegate call is named by the first line it took over and by how many there are."""
    first = next((node for node in source.nodes if node.file), source.nodes[0])
    ops = list(dict.fromkeys(node.op for node in source.nodes))
    op = (
        first.op
        if source.delegate is None
        else f"{source.delegate}: {len(source.nodes)} operators ({', '.join(ops[:4])})"
    )
    return SourceLine(first.module_path, first.file, first.line, first.code, op)
