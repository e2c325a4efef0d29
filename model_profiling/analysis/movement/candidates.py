"""Another export of the same model, as far as it differs from the one that ran, and how long it would take.

An export lowers what it could be asked for as well, and records which operators that program has more and which fewer.
Operators that both have keep their measured time. A new one takes between a low and a high time: near each other where
the run has operators of its kind and about its size, far apart where it has none.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import TYPE_CHECKING

from model_profiling.analysis.movement.inverse_transposes import is_elementwise
from model_profiling.analysis.timing.work import BITS
from model_profiling.formats.graph_terms import CONSTANT
from model_profiling.store.artifacts import StepChange

if TYPE_CHECKING:
    from model_profiling.formats.pte.dataflow import DataFlow, FlowStep, FlowTensor

# ExecuTorch's own time around an operator and around a delegate, as traces name it.
CALLS = {False: "operator call", True: "delegate call"}
# Nodes of XNNPACK that take about the same time for as many bytes.
ALIKE = {
    **dict.fromkeys(("Add", "Subtract", "Multiply", "Maximum", "Minimum", "Clamp", "Abs", "Negate", "Square"), "Add"),
    **dict.fromkeys(("Concatenate2", "Concatenate3", "Concatenate4", "Concatenate5", "Copy"), "Copy"),
    **dict.fromkeys(("StaticSlice", "StaticConstantPad", "EvenSplit2", "EvenSplit3", "EvenSplit4"), "Copy"),
}
PRODUCTS = ("Conv2d", "FullyConnected", "BatchMatrixMultiply", "DepthwiseConv2d", "ConvTranspose2d")
# XNNPACK makes these views of the same memory.
FREE = ("StaticReshape",)
# An operator is priced by one of its kind if neither is so many times as large as the other, and takes as long by its
# size, give or take a quarter. What is smaller takes as long as small operators do.
_SIMILAR, _OFF = 8.0, 0.25
SMALL_BYTES = 8192
# How many times as long as most others, for its bytes, an operator may take that the run has none of: a sigmoid takes
# 12 times as long as an addition. Products with fewer columns than a tile has take as long as with a tile full.
_UNLIKE, TILE = 12.0, 8


def step_counts(flow: DataFlow) -> Counter[StepChange]:
    """Return the operators of a program by kind and shape, and ExecuTorch's calls of them."""
    found = Counter(kind_of(step) for step in flow.steps)
    inside = {step.instruction: step.node is not None for step in flow.steps}
    return found + Counter(StepChange(CALLS[delegated]) for delegated in inside.values())


def difference(before: DataFlow, after: DataFlow) -> list[StepChange]:
    """Return what the second program has more than the first, and, with a count below 0, fewer."""
    counts = step_counts(after)
    counts.subtract(step_counts(before))
    return [_counted(kind, count) for kind, count in counts.items() if count]


def _counted(kind: StepChange, count: int) -> StepChange:
    return StepChange(kind.op, kind.delegated, kind.inputs, kind.outputs, kind.permutation, count)


def kind_of(step: FlowStep) -> StepChange:
    sizes = {prod(tensor.shape) for tensor in (*step.inputs, *step.outputs)}
    # What treats every value alike takes as long in any shape.
    flat = len(sizes) == 1 and is_elementwise(step)
    inputs, outputs = (tuple(_tensor(tensor, flat) for tensor in side) for side in (step.inputs, step.outputs))
    return StepChange(step.op, step.node is not None, inputs, outputs, step.permutation)


def _tensor(tensor: FlowTensor, flat: bool) -> str:
    """Return `fp32 1x3x8x8`; a constant is marked, since it is read in packed form."""
    shape = (prod(tensor.shape),) if flat else tensor.shape
    return f"{'=' if tensor.source == CONSTANT else ''}{tensor.dtype} {'x'.join(map(str, shape))}"


def moved_at_once(shape: tuple[int, ...], permutation: tuple[int, ...]) -> tuple[int, int]:
    """Return the block that a transpose turns at once: its last dimension before by its last after, or 1 by a row that
    stays together. Dimensions that stay neighbours are one, and those of one value none."""
    order = [axis for axis in permutation if shape[axis] != 1]
    places = {axis: place for place, axis in enumerate(sorted(order))}
    groups: list[list[int]] = []
    for axis in order:
        if groups and places[groups[-1][-1]] == places[axis] - 1:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    sizes = {group[0]: prod(shape[axis] for axis in group) for group in groups}
    if not sizes:
        return 1, 1
    last_before, last_after = max(sizes), groups[-1][0]
    return (1, sizes[last_after]) if last_before == last_after else (sizes[last_after], sizes[last_before])


def mnk(kind: StepChange) -> tuple[int, int, int]:
    (_, source), (_, out) = (parsed(texts[0]) if texts else ("", (1,)) for texts in (kind.inputs, kind.outputs))
    inner = parsed(kind.inputs[1])[1] if len(kind.inputs) > 1 else (1,)
    k = source[-1] if kind.op in ("FullyConnected", "BatchMatrixMultiply") else prod(inner[1:])
    return prod(out[:-1]), out[-1] if out else 1, k


def bytes_of(kind: StepChange) -> int:
    return sum(_bytes(text) for text in (*kind.inputs, *kind.outputs))


def _bytes(text: str) -> int:
    dtype, shape = parsed(text)
    return prod(shape) * BITS.get(dtype, 32) // 8


def parsed(text: str) -> tuple[str, tuple[int, ...]]:
    dtype, _, shape = text.removeprefix("=").partition(" ")
    return dtype, tuple(int(size) for size in shape.split("x")) if shape else ()
