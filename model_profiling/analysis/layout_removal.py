"""Which layout changes of a program `--rewrite layout` would remove: foretold from where the export saw it find some.

The export tried the rewrite on a draft of its graph and recorded the lines of what would go or no longer cost a layout
change. In the program these are the model's own transposes at such lines, those that XNNPACK put in around what stands
there, and those that undo one of them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from model_profiling.analysis.breakdown import SourceLine
from model_profiling.analysis.movement import LAYOUT_KINDS
from model_profiling.analysis.undone import KINDS, indifferent, is_reshape, undone_transposes
from model_profiling.graph_terms import CONSTANT, TO_NCHW, TO_NHWC
from model_profiling.pte.borders import inserted
from model_profiling.pte.dataflow import DataFlow, Step, Tensor

# What takes values from one place to another, in any order of dimensions.
_CARRYING = ("Concatenate", "StaticSlice", "StaticConstantPad", "EvenSplit")


def removable(flow: DataFlow, lines: Mapping[int, SourceLine], places: Sequence[str]) -> set[int]:
    """The steps that would be gone. `lines` are those of steps, as far as known; `places` what the export recorded."""
    recorded = Places(places)
    at_places = {position for position, line in lines.items() if recorded.count(line)}
    if not at_places:
        return set()
    gone = _recorded_changes(flow, lines, recorded, at_places)
    stays = {position for position in at_places - gone if not _changes_layout(flow, position)}
    beside = {other for position in gone for other in _around(flow, position) if _carries(flow.steps[other])}
    passed: set[int] = set()
    for region in _regions(flow, stays | beside):
        edges = _edges(flow, region, gone)
        gone |= edges
        passed |= region if edges else set()
    for position in range(len(flow.steps)):
        if _goes_with(flow, position, gone, passed):
            gone.add(position)
    gone |= _joined(flow)
    for pair in undone_transposes(flow):
        if {pair.first, pair.second} & gone or _both_inserted(flow, pair.first, pair.second):
            gone |= {pair.first, pair.second} if pair.all_undone else {pair.second}
    return gone


class Places:
    """Lines of the model as an export recorded them, once for each operator; '' stands for any line."""

    def __init__(self, places: Sequence[str]) -> None:
        self._count = Counter(places)

    def count(self, line: SourceLine) -> int:
        """How many operators of a line were recorded."""
        return self._count[""] + self._count[self.key(line)]

    def key(self, line: SourceLine) -> str:
        """The line as it was recorded, which may be with a shorter path than the trace has."""
        parts = line.file.split("/")
        shorter = (f"{'/'.join(parts[start:])}:{line.line}" for start in range(len(parts)))
        return next((name for name in shorter if name in self._count), "")


def _recorded_changes(
    flow: DataFlow, lines: Mapping[int, SourceLine], recorded: Places, at_places: set[int]
) -> set[int]:
    """The model's own layout changes: of a line no more than were recorded, first those beside one of XNNPACK's."""
    by_line: dict[str, list[int]] = {}
    for position in sorted(at_places):
        if _changes_layout(flow, position):
            by_line.setdefault(recorded.key(lines[position]), []).append(position)
    chosen: set[int] = set()
    for found in by_line.values():
        beside = [position for position in found if any(_is_inserted(flow, p) for p in _around(flow, position))]
        chosen.update(list(dict.fromkeys([*beside, *found]))[: recorded.count(lines[found[0]])])
    return chosen


def _changes_layout(flow: DataFlow, position: int) -> bool:
    step = flow.steps[position]
    if step.permutation:
        return True
    # Inside a delegate, a reshape is a view wherever XNNPACK can make it one.
    return step.node is None and KINDS.classify(step.op, False).kind in LAYOUT_KINDS


def _regions(flow: DataFlow, seeds: Iterable[int]) -> list[set[int]]:
    """These steps, each with all around it that does not mind the order of what it reads."""
    seen: set[int] = set()
    regions = []
    for seed in sorted(seeds):
        if seed in seen:
            continue
        region, waiting = {seed}, [seed]
        while waiting:
            around = {p for p in _around(flow, waiting.pop()) if p not in region and _carries(flow.steps[p])}
            region |= around
            waiting += around
        seen |= region
        regions.append(region)
    return regions


@dataclass(frozen=True)
class _Border:
    """How a region is bound to the rest: by XNNPACK's changes of layout, and by what wants the order it has now."""

    entering: set[int]
    leaving: set[int]
    others: int


def _edges(flow: DataFlow, region: set[int], gone: set[int]) -> set[int]:
    """The changes of layout around a region that would go: each that is then needed elsewhere keeps one."""
    border = _border(flow, region, gone)
    edges = [*border.entering, *border.leaving]
    return set(sorted(edges, key=lambda p: -_size(flow.steps[p].outputs[0]))[: max(0, len(edges) - border.others)])


def _border(flow: DataFlow, region: set[int], gone: set[int]) -> _Border:
    entering: set[int] = set()
    leaving: set[int] = set()
    others = 0

    def within(position: int) -> bool:
        return position in region or position in gone or position == CONSTANT

    for position in region:
        step = flow.steps[position]
        for tensor in step.inputs:
            if tensor.source >= 0 and inserted(flow, tensor.source, TO_NCHW):
                entering.add(tensor.source)
            elif not within(tensor.source) and 2 * _size(tensor) > _size(step.outputs[0]):
                others += 1
        readers = {reader for reader in flow.readers(position) if not within(reader)}
        out = {reader for reader in readers if inserted(flow, reader, TO_NHWC)}
        leaving |= out
        others += bool(readers - out) + (position in flow.returned)
    # Whoever else reads what enters needs it as it is.
    shared = {p for p in entering if p in flow.returned or not all(map(within, flow.readers(p)))}
    return _Border(entering - shared, leaving, others)


def _goes_with(flow: DataFlow, position: int, gone: set[int], passed: set[int]) -> bool:
    """Whether XNNPACK put in a change of layout only for steps that go, or that will do without."""
    readers = flow.readers(position)
    if inserted(flow, position, TO_NCHW) and position not in flow.returned:
        known = all(reader in gone or reader in passed for reader in readers)
        return known and any(reader in gone for reader in readers)
    return inserted(flow, position, TO_NHWC) and flow.steps[position].inputs[0].source in gone


def _joined(flow: DataFlow) -> set[int]:
    """XNNPACK's changes of layout right before and after a transpose of the model: the rewrite does them in one."""
    found: set[int] = set()
    for position, step in enumerate(flow.steps):
        if step.node is None or not step.permutation or _is_inserted(flow, position):
            continue
        before = step.inputs[0].source
        alone = position
        while before >= 0 and flow.readers(before) == (alone,) and before not in flow.returned:
            if inserted(flow, before, TO_NCHW):
                found.add(before)
            if not is_reshape(flow.steps[before]):
                break
            before, alone = flow.steps[before].inputs[0].source, before
        after = position
        while len(readers := flow.readers(after)) == 1 and after not in flow.returned:
            after = readers[0]
            if inserted(flow, after, TO_NHWC):
                found.add(after)
            if not is_reshape(flow.steps[after]):
                break
    return found


def _around(flow: DataFlow, position: int) -> set[int]:
    sources = {tensor.source for tensor in flow.steps[position].inputs if tensor.source >= 0}
    return sources | set(flow.readers(position))


def _carries(step: Step) -> bool:
    return indifferent(step) or (step.node is not None and step.op.startswith(_CARRYING))


def _size(tensor: Tensor) -> int:
    return prod(tensor.shape)


def _is_inserted(flow: DataFlow, position: int) -> bool:
    return inserted(flow, position, TO_NCHW) or inserted(flow, position, TO_NHWC)


def _both_inserted(flow: DataFlow, first: int, second: int) -> bool:
    return _is_inserted(flow, first) and _is_inserted(flow, second)


def needless_lines(flow: DataFlow, lines: Mapping[int, SourceLine]) -> list[str]:
    """Where XNNPACK turns an image around only to turn it back, for what computes on it in any order.

    Which delegates there are, and what stands between them, is not known before lowering: this reads the program.
    """
    found = []
    for pair in undone_transposes(flow):
        if _both_inserted(flow, pair.first, pair.second):
            beside = (*pair.between, *flow.readers(pair.second))
            line = next((lines[p] for p in beside if p in lines and lines[p].file), None)
            found.append(f"{line.file}:{line.line}" if line is not None else "")
    return found
