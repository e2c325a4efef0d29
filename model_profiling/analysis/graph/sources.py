"""From an operator of a trace to the PyTorch line it came from, through the .pte and the ETRecord beside it."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from model_profiling.analysis.graph.graph import aligned_nodes
from model_profiling.analysis.timing.breakdown import SourceLine
from model_profiling.analysis.timing.profile import Instance
from model_profiling.base import files
from model_profiling.base.errors import KitError
from model_profiling.base.file_memo import FileMemo
from model_profiling.formats import etrecord, pte
from model_profiling.formats.pte.dataflow import DataFlow
from model_profiling.store.artifacts import ExportPaths
from model_profiling.upstream.names_in_files import ETRECORD
from model_profiling.upstream.reliance import why_not

UNLINKED = "operators are not linked to PyTorch lines"
_QUANTIZING = "quantized_decomposed."
# Large, and both sides of a comparison have the same one, as have all experiments of a run.
_read_etrecord = FileMemo(etrecord.read)


@dataclass(frozen=True)
class Sources:
    """What an ETRecord tells of one model; without a usable one, nothing, and `note` says why."""

    model: Path
    record: etrecord.Etrecord | None
    # The operator of each instruction, by method.
    names: dict[str, dict[int, str]]
    note: str

    def lines(self, instances: tuple[Instance, ...], method: str = "forward") -> dict[int, SourceLine]:
        """Return the line of each operator, by its row: portable ones and delegate calls by their instruction,
        delegated ones by the debug handle of their node in XNNPACK's graph, which Inspector does not follow."""
        if self.record is None:
            return {}
        found: dict[int, SourceLine] = {}
        nodes = aligned_nodes(instances, self.model, method)
        for row, instance in enumerate(instances):
            line = None
            if instance.where == "portable" or instance.name == "delegate call":
                operator = self.names.get(method, {}).get(instance.instruction)
                line = _instruction_line(self.record.source(instance.instruction, method, operator))
            elif row in nodes and nodes[row].debug_handle:
                line = _node_line(self.record.nodes(nodes[row].debug_handle, method))
            if line is not None:
                found[row] = line
        return _in_modules(found)

    def of_steps(self, flow: DataFlow, method: str = "forward") -> dict[int, SourceLine]:
        """Return the line of each step of the program itself; those that passes put in have none."""
        if self.record is None:
            return {}
        found = {}
        for position, step in enumerate(flow.steps):
            if step.node is None:
                line = _instruction_line(self.record.source(step.instruction, method, step.op))
            else:
                line = _node_line(self.record.nodes(step.node.debug_handle, method)) if step.node.debug_handle else None
            if line is not None:
                found[position] = line
        return _in_modules(found)


def _in_modules(lines: dict[int, SourceLine]) -> dict[int, SourceLine]:
    """Return the same with the conversions that quantization inserted in the module of what they were inserted for, the
    next operator of their line: PyTorch gives them the line and no module."""
    found, following = dict(lines), dict[tuple[str, int], str]()
    for order in (reversed(lines), lines):
        following.clear()
        for place in order:
            line = found[place]
            if line.module:
                following[line.file, line.line] = line.module
            elif line.op.startswith(_QUANTIZING) and (module := following.get((line.file, line.line))):
                found[place] = msgspec.structs.replace(line, module=module)
    return found


def read_sources(model: Path) -> Sources:
    """Read the ETRecord beside a .pte; a missing, broken or foreign one is said and not used."""
    paths = ExportPaths(model)
    if not files.is_file(paths.etrecord):
        return Sources(model, None, {}, f"no ETRecord next to {model.name}: {UNLINKED}")
    if unknown := why_not(ETRECORD):
        return Sources(model, None, {}, unknown)
    try:
        record = _read_etrecord(paths.etrecord)
        mismatch = etrecord.matches(record, model)
        program = pte.read(model)
    except KitError as error:
        return Sources(model, None, {}, f"the ETRecord was not used ({error.message}): {UNLINKED}")
    if mismatch is not None:
        return Sources(model, None, {}, f"the ETRecord belongs to another export ({mismatch}): {UNLINKED}")
    names = {method.name: {step.index: step.name for step in method.instructions} for method in program.methods}
    return Sources(model, record, names, "")


def _instruction_line(source: etrecord.InstructionSource | None) -> SourceLine | None:
    """Return the operator's own line; of a delegate call the first it took over, and how many there are."""
    if source is None or not source.nodes:
        return None
    first = next((node for node in source.nodes if node.file), source.nodes[0])
    ops = list(dict.fromkeys(node.op for node in source.nodes))
    taken = f"{source.delegate}: {len(source.nodes)} operators ({', '.join(ops[:4])})"
    return _line(first, first.op if source.delegate is None else taken)


def _node_line(nodes: tuple[etrecord.SourceNode, ...]) -> SourceLine | None:
    node = next((node for node in nodes if node.file), None)
    return _line(node, node.op) if node is not None else None


def _line(node: etrecord.SourceNode, op: str) -> SourceLine:
    return SourceLine(node.module_path, node.file, node.line, node.code, op, node.origin, node.debug_handle)
