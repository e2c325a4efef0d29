"""Another export of the same model, as far as it differs from the one that ran, and how long it would take.

An export lowers what it could be asked for as well, and records which operators that program has more and which fewer.
Operators that both have keep their measured time. A new one takes between a low and a high time: near each other where
the run has operators of its kind and about its size, far apart where it has none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, log, prod
from statistics import mean, median
from typing import TYPE_CHECKING

from model_profiling.analysis.movement.inverse_transposes import is_elementwise
from model_profiling.analysis.timing.work import BITS
from model_profiling.base.dtypes import FLOATS
from model_profiling.formats.graph_terms import CONSTANT
from model_profiling.store.artifacts import StepChange

if TYPE_CHECKING:
    from model_profiling.analysis.graph.graph import ModelGraph
    from model_profiling.analysis.timing.breakdown import Breakdown
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


@dataclass(frozen=True)
class Estimate:
    """What the whole would take. `gone` are rows that the candidate does not have, `new_ms` is the time of operators
    that only it has, and `unknown` are those of them that nothing in the run is like."""

    low_ms: float
    high_ms: float
    gone: list[int]
    new_ms: float
    unknown: list[str]

    @property
    def ms(self) -> float:
        return (self.low_ms + self.high_ms) / 2

    @property
    def spread(self) -> float:
        """How far apart the two are, as a share."""
        return (self.high_ms - self.low_ms) / self.ms if 0 < self.ms < inf else inf


class Prices:
    """What operators take, from a run."""

    def __init__(self, breakdown: Breakdown, graph: ModelGraph) -> None:
        self.whole = breakdown.execute_ms
        self.rows: dict[StepChange, list[int]] = {}
        self.known: dict[StepChange, float] = {}
        instances = breakdown.instances
        steps: dict[StepChange, list[int | None]] = {}
        for position, step in enumerate(graph.flow.steps):
            steps.setdefault(kind_of(step), []).append(graph.rows.get(position))
        for kind, rows in steps.items():
            self.rows[kind] = [row for row in rows if row is not None]
            # What has no row of its own was fused into another.
            self.known[kind] = mean(instances[row].ms if row is not None else 0.0 for row in rows)
        for call in CALLS.values():
            times = [entry.ms for entry in instances if entry.operator == call]
            self.known[StepChange(call)] = median(times) if times else 0.0
        self.like: dict[tuple[object, ...], list[StepChange]] = {}
        for kind in steps:
            if self.known[kind]:
                self.like.setdefault(_family(kind), []).append(kind)
        timed = [kind for each in self.like.values() for kind in each]
        small = [kind for kind in timed if bytes_of(kind) <= SMALL_BYTES]
        self.small = {side: [self.known[kind] for kind in small if kind.delegated == side] for side in (True, False)}
        inside = [kind for kind in timed if kind.delegated]
        self.rates = [self.known[k] / size_of(k) for k in inside if k.op not in PRODUCTS and size_of(k) > SMALL_BYTES]
        self.product_rates = [self.known[k] / size_of(k) for k in inside if k.op in PRODUCTS and size_of(k)]

    def estimate(self, changes: Iterable[StepChange]) -> Estimate:
        """Return the time of the whole with these changes."""
        gone: list[int] = []
        low = high = self.whole
        new, unknown = 0.0, []
        for change in changes:
            kind, count = _counted(change, 0), abs(change.count)
            if change.count < 0:
                low, high = (ms - count * self.known.get(kind, 0.0) for ms in (low, high))
                gone += self.rows.get(kind, [])[:count]
                continue
            least, most, alike = self._price(kind)
            low, high, new = low + count * least, high + count * most, new + count * (least + most) / 2
            unknown += [] if alike else [f"{count} x {kind.op} of {' '.join(kind.outputs)}"]
        return Estimate(max(low, 0.0), high, gone, new, unknown)

    def _price(self, kind: StepChange) -> tuple[float, float, bool]:
        """Return the least and the most it may take, and whether the run has something like it."""
        if kind in self.known or kind.op in FREE:
            ms = self.known.get(kind, 0.0)
            return ms, ms, True
        # Where it is the bytes that count, fp16 takes half as long as fp32.
        others = [] if kind.op in PRODUCTS else self.like.get(_family(kind, other_float=True), [])
        for found in (self.like.get(_family(kind), []), others):
            near = min(found, key=lambda each: _distance(kind, each), default=None)
            if near is not None and _distance(kind, near) <= log(_SIMILAR):
                ms = self.known[near] * size_of(kind) / max(size_of(near), 1)
                return (1 - _OFF) * ms, (1 + _OFF) * ms, True
        if bytes_of(kind) <= SMALL_BYTES and self.small[kind.delegated]:
            return 0.0, 2 * median(self.small[kind.delegated]), True
        if not kind.delegated:
            return 0.0, inf, False
        rates, size = self.rates, size_of(kind)
        if kind.op in PRODUCTS:
            columns = mnk(kind)[1]
            rates, size = self.product_rates, size * max(columns, TILE) // max(columns, 1)
        return 0.0, _UNLIKE * median(rates) * size if rates else inf, False


def _family(kind: StepChange, other_float: bool = False) -> tuple[object, ...]:
    dtype = _dtype(kind)
    if other_float:
        dtype = next((name for name in FLOATS if name != dtype), "") if dtype in FLOATS else ""
    return (kind.delegated, ALIKE.get(kind.op, kind.op), dtype, _grain(kind))


def _grain(kind: StepChange) -> str:
    """Return how finely a transpose moves values: what moves single rows or small blocks takes longer for its bytes."""
    shape = parsed(kind.inputs[0])[1] if kind.permutation and kind.inputs else ()
    if not kind.permutation or len(shape) != len(kind.permutation):
        return "permuted" if kind.permutation else ""
    rows, columns = moved_at_once(shape, kind.permutation)
    return "rows" if rows == 1 else "tiles" if min(rows, columns) >= TILE else "parts"


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


def _dtype(kind: StepChange) -> str:
    return next((text.split(" ")[0] for text in (*kind.inputs, *kind.outputs) if not text.startswith("=")), "")


def _distance(kind: StepChange, other: StepChange) -> float:
    if kind.op in PRODUCTS:
        return sum(abs(log((a or 1) / (b or 1))) for a, b in zip(mnk(kind), mnk(other), strict=True))
    return abs(log(max(size_of(kind), 1) / max(size_of(other), 1)))


def mnk(kind: StepChange) -> tuple[int, int, int]:
    (_, source), (_, out) = (parsed(texts[0]) if texts else ("", (1,)) for texts in (kind.inputs, kind.outputs))
    inner = parsed(kind.inputs[1])[1] if len(kind.inputs) > 1 else (1,)
    k = source[-1] if kind.op in ("FullyConnected", "BatchMatrixMultiply") else prod(inner[1:])
    return prod(out[:-1]), out[-1] if out else 1, k


def size_of(kind: StepChange) -> int:
    """Return bytes that are read and written, multiply-accumulates of a product."""
    if kind.op in PRODUCTS:
        return prod(mnk(kind))
    return bytes_of(kind)


def bytes_of(kind: StepChange) -> int:
    return sum(_bytes(text) for text in (*kind.inputs, *kind.outputs))


def _bytes(text: str) -> int:
    dtype, shape = parsed(text)
    return prod(shape) * BITS.get(dtype, 32) // 8


def parsed(text: str) -> tuple[str, tuple[int, ...]]:
    dtype, _, shape = text.removeprefix("=").partition(" ")
    return dtype, tuple(int(size) for size in shape.split("x")) if shape else ()
