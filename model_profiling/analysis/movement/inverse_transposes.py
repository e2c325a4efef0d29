"""Transposes that undo each other, true of the graph: the second reads what the first made, and both are the identity.

Between the two may lie only what does not mind the layout: elementwise operators, and reshapes, which are followed
exactly. Order in time says nothing here.
"""

import heapq
from dataclasses import dataclass
from math import prod

from model_profiling.analysis.timing.categories import CategoryTable
from model_profiling.formats.graph_terms import CONSTANT
from model_profiling.formats.pte.dataflow import DataFlow, FlowStep

Run = tuple[int, int]
Layout = tuple[tuple[Run, ...], ...]


def contiguous_layout(shape: tuple[int, ...]) -> Layout:
    """Return the layout of a tensor as it is."""
    return tuple(((size, prod(shape[axis + 1 :])),) for axis, size in enumerate(shape))


def transpose_layout(layout: Layout, permutation: tuple[int, ...]) -> Layout | None:
    if sorted(permutation) != list(range(len(layout))):
        return None
    return tuple(layout[axis] for axis in permutation)


def reshape_layout(layout: Layout, shape: tuple[int, ...]) -> Layout | None:
    """Return the same values under other sizes; None where a size would cut across the layout's runs."""
    runs = list(reversed(_joined(layout)))
    found = []
    for size in shape:
        dimension: list[Run] = []
        left = size
        while left > 1:
            if not runs:
                return None
            count, step = runs.pop()
            if count == 0:
                return None  # nothing is in it, in any order
            if left % count == 0:
                dimension.append((count, step))
                left //= count
            elif count % left == 0:
                dimension.append((left, step * (count // left)))
                runs.append((count // left, step))
                left = 1
            else:
                return None
        found.append(tuple(dimension))
    return tuple(found) if not runs else None


def is_in_order(layout: Layout) -> bool:
    """Return whether the values lie as they did at first, whatever the sizes are called now."""
    runs = _joined(layout)
    return not runs or (len(runs) == 1 and runs[0][1] == 1)


def _joined(layout: Layout) -> list[Run]:
    """Return all runs, outermost first, without those of one step, and neighbours that continue each other as one."""
    joined: list[Run] = []
    for count, step in (run for dimension in layout for run in dimension if run[0] != 1):
        if joined and joined[-1][1] == count * step:
            joined[-1] = (joined[-1][0] * count, step)
        else:
            joined.append((count, step))
    return joined


# Nodes of XNNPACK's graph that treat every value alike. PReLU is not among them: its slopes belong to channels.
_ELEMENTWISE_NODES = (
    *("Abs", "Add", "Ceiling", "Clamp", "Convert", "Copy", "Cos", "Div", "ELU", "Exp", "Floor", "Gelu", "Hardswish"),
    *("LeakyReLU", "Log", "Maximum", "Minimum", "Multiply", "Negate", "ReciprocalSquareRoot", "Sigmoid", "Sin"),
    *("Square", "SquareRoot", "Subtract", "Tanh"),
)
_ELEMENTWISE_KINDS = ("unary", "binary", "activation", "clamp", "convert", "copy")
KINDS = CategoryTable()


@dataclass(frozen=True)
class CancellingPair:
    """`second` restores what `first` changed. `first` can go too if `all_undone`: nobody needs its layout."""

    first: int
    second: int
    between: tuple[int, ...]
    all_undone: bool


def cancelling_transposes(flow: DataFlow) -> list[CancellingPair]:
    """Return every transpose that restores an earlier one's input, each in one pair at most."""
    found: list[CancellingPair] = []
    taken: set[int] = set()
    for position, step in enumerate(flow.steps):
        if step.permutation and position not in taken:
            pairs = [pair for pair in _undoing(flow, position) if pair.second not in taken]
            taken |= {position, *(pair.second for pair in pairs)} if pairs else set()
            found += pairs
    return found


def _undoing(flow: DataFlow, first: int) -> list[CancellingPair]:
    """Carry a transpose's layout along until it meets operators that mind it, or a transpose that undoes it."""
    start = flow.steps[first]
    layout = transpose_layout(contiguous_layout(start.inputs[0].shape), start.permutation) if start.inputs else None
    if layout is None or is_in_order(layout):
        return []
    carried: dict[int, Layout] = {first: layout}
    came_from: dict[int, int] = {}
    seconds: list[int] = []
    waiting = list(flow.readers(first))
    heapq.heapify(waiting)
    seen: set[int] = set()
    while waiting:
        position = heapq.heappop(waiting)
        if position in seen:
            continue
        seen.add(position)
        step = flow.steps[position]
        source = next(tensor.source for tensor in step.inputs if tensor.source in carried)
        after = _after(step, carried, flow.fixed)
        if after is None:
            continue
        came_from[position] = source
        if step.permutation:
            seconds += [position] if is_in_order(after) else []
            continue
        carried[position] = after
        for reader in flow.readers(position):
            heapq.heappush(waiting, reader)
    undone = set(seconds)
    needed = any(
        position in flow.returned or not set(flow.readers(position)) <= undone | carried.keys() for position in carried
    )
    found = []
    for second in seconds:
        path = [came_from[second]]
        while path[-1] != first:
            path.append(came_from[path[-1]])
        found.append(CancellingPair(first, second, tuple(path[-2::-1]), not needed))
    return found


def _after(step: FlowStep, carried: dict[int, Layout], fixed: bool) -> Layout | None:
    """Return the layout of a step's result, if it is one that can be carried through it."""
    if len(step.outputs) != 1:
        return None
    layouts = []
    for tensor in step.inputs:
        if tensor.source in carried:
            layout = reshape_layout(carried[tensor.source], tensor.shape)
            if layout is None:
                return None
            layouts.append((layout, tensor.shape))
        elif tensor.source != CONSTANT and not (prod(tensor.shape) == 1 and (fixed or bool(tensor.shape))):
            return None
    if step.permutation:
        return transpose_layout(layouts[0][0], step.permutation)
    shape = step.outputs[0].shape
    if is_reshape(step):
        return reshape_layout(layouts[0][0], shape)
    alike = all(entry == layouts[0] for entry in layouts) and layouts[0][1] == shape
    return layouts[0][0] if alike and is_elementwise(step) else None


def is_layout_agnostic(step: FlowStep) -> bool:
    """Return whether a step gives its values in whatever order it is given them."""
    return len(step.outputs) == 1 and not step.permutation and (is_reshape(step) or is_elementwise(step))


def is_reshape(step: FlowStep) -> bool:
    if step.node is not None:
        return step.op == "StaticReshape"
    return KINDS.classify(step.op, False).kind == "reshape"


def is_elementwise(step: FlowStep) -> bool:
    if step.node is not None:
        return step.op in _ELEMENTWISE_NODES
    return KINDS.classify(step.op, False).kind in _ELEMENTWISE_KINDS
