"""Why a program moves values without computing: each transpose and copy, and what asks for it.

XNNPACK computes on images in NHWC, everything else is as PyTorch has it. Whoever made a tensor and whoever needs it
next, with only what does not mind the order between, is the reason for a transpose there.
"""

from collections.abc import Mapping
from math import prod

import msgspec

from model_profiling.analysis.movement.inverse_transposes import (
    KINDS,
    contiguous_layout,
    is_in_order,
    is_layout_agnostic,
    transpose_layout,
)
from model_profiling.analysis.timing.breakdown import SourceLine
from model_profiling.analysis.timing.work import BITS
from model_profiling.base.records import by_key
from model_profiling.formats.graph_terms import INPUT, packet, unique
from model_profiling.formats.pte.borders import inputs_to_nhwc, outputs_to_nchw
from model_profiling.formats.pte.dataflow import DataFlow, FlowStep

_PRODUCT = "BatchMatrixMultiply"
_IO_LAYOUT = "a caller that can use it avoids this with --io-layout channels_last"
# Ranks: who has the last word where several operators read or make a tensor.
_PORTABLE, _MATRICES, _ANY, _CALLER, _NOBODY = range(5)
_SHUFFLES = ("aten.pixel_shuffle", "aten.pixel_unshuffle", "aten.channel_shuffle")
# Copies inside delegates, by the beginning of a node's name; outside, by the kind of the operator.
_NODE_COPIES = {
    "Concatenate": "concatenation",
    "StaticSlice": "slice",
    "EvenSplit": "slice",
    "StaticConstantPad": "padding",
    "Copy": "copy",
}
_PORTABLE_COPIES = {
    "concat": "concatenation",
    "slice": "slice",
    "pad": "padding",
    "copy": "copy",
    "reshape": "view between delegates",
    "expand": "expanded tensor",
}
# What ExecuTorch runs as a view of the same memory.
_VIEW = "executorch_prim::et_view"


class MoveGroup(msgspec.Struct, frozen=True):
    """Steps that move values for one reason. `bytes` is what they write, None if a size is not known before it runs.

    `lines` are those of the model, most bytes first; empty where no line is known.
    """

    reason: str
    count: int
    bytes: int | None
    lines: list[str]
    hint: str = ""


class LayoutReasons(msgspec.Struct, frozen=True):
    """`transposes` and `copies` that a program does. `note` says why they are not known, if so.

    `removable` is how many of the transposes `--rewrite layout` is predicted to remove, None if it was done already
    or cannot be predicted.
    """

    transposes: list[MoveGroup]
    copies: list[MoveGroup]
    removable: int | None = None
    removable_at: list[str] = []
    note: str = ""

    @property
    def count(self) -> int:
        return sum(group.count for group in self.transposes)


def transposes(flow: DataFlow) -> list[int]:
    """Return the transposes that move values: those that become a flag of the product that reads them do not."""
    changing = (p for p, step in enumerate(flow.steps) if step.permutation and not _keeps_order(step))
    return [position for position in changing if not _becomes_flag(flow, position)]


def _keeps_order(step: FlowStep) -> bool:
    """Return whether only dimensions of one value change places."""
    layout = transpose_layout(contiguous_layout(step.inputs[0].shape), step.permutation) if step.inputs else None
    return layout is not None and bool(step.inputs[0].shape) and is_in_order(layout)


def transpose_reasons(flow: DataFlow, lines: Mapping[int, SourceLine]) -> dict[int, str]:
    """Return why each transpose of a program is there, by its step."""
    why = _Why(flow, lines)
    return {position: why.reason(position)[0] for position in transposes(flow)}


def explain_layout(flow: DataFlow, lines: Mapping[int, SourceLine]) -> LayoutReasons:
    """Return all transposes and copies of a program, grouped by why they are there, most bytes first."""
    why = _Why(flow, lines)
    moved = by_key((why.reason(position), position) for position in transposes(flow))
    copied = by_key(((kind, ""), position) for position, step in enumerate(flow.steps) if (kind := copy_kind(step)))
    return LayoutReasons(_groups(why, moved), _groups(why, copied))


def moved_bytes(flow: DataFlow, position: int) -> int | None:
    """Return what a step writes if it only moves values, 0 if it computes; None if that is not known before it runs."""
    step = flow.steps[position]
    moves = bool(step.permutation) and not _becomes_flag(flow, position)
    return _written(step) if moves or copy_kind(step) else 0


def copy_kind(step: FlowStep) -> str:
    """Return what a step copies values for, '' if it computes with them or changes their order."""
    if step.permutation:
        return "transpose of a single pixel, channel or row, whose order stays" if _keeps_order(step) else ""
    if step.node is not None:
        return next((kind for start, kind in _NODE_COPIES.items() if step.op.startswith(start)), "")
    if step.op.startswith(_VIEW):
        return ""
    return _PORTABLE_COPIES.get(KINDS.classify(step.op, False).kind, "")


def _becomes_flag(flow: DataFlow, position: int) -> bool:
    """Return whether XNNPACK makes a transpose a flag of the product: of a second operand that nobody else reads."""
    step, readers = flow.steps[position], flow.readers(position)
    axes = len(step.permutation)
    swaps_last = axes >= 2 and step.permutation == (*range(axes - 2), axes - 1, axes - 2)
    if step.node is None or not swaps_last or len(readers) != 1 or position in flow.returned:
        return False
    reader = flow.steps[readers[0]]
    same = reader.op == _PRODUCT and reader.instruction == step.instruction
    return same and [tensor.source == position for tensor in reader.inputs] == [False, True]


class _Why:
    """Looks both ways from every step: who made what it reads, and who needs what it makes."""

    def __init__(self, flow: DataFlow, lines: Mapping[int, SourceLine]) -> None:
        self.flow, self.lines = flow, lines
        self.inputs = {p: place for place, steps in inputs_to_nhwc(flow).items() for p in steps}
        self.outputs = set(outputs_to_nchw(flow).values())
        count = len(flow.steps)
        self.before: list[tuple[int, int]] = []
        for position in range(count):
            sources = [t.source for t in flow.steps[position].inputs if t.source >= 0 or t.source == INPUT]
            self.before.append(min((self._seen(s, self.before) for s in sources), default=(_NOBODY, -1)))
        after: list[tuple[int, int]] = [(_NOBODY, -1)] * count
        for position in reversed(range(count)):
            after[position] = min((self._seen(r, after) for r in flow.readers(position)), default=(_NOBODY, -1))
        self.after = after

    def _seen(self, position: int, beyond: list[tuple[int, int]]) -> tuple[int, int]:
        """Return what is met at a step: itself, or what is met beyond it if it takes any order."""
        if position == INPUT:
            return (_CALLER, position)
        step = self.flow.steps[position]
        if step.node is None:
            through = step.op.startswith(_VIEW)
        else:
            through = is_layout_agnostic(step) or _becomes_flag(self.flow, position)
        if through and beyond[position][0] < _NOBODY:
            return beyond[position]
        if step.permutation:
            return (_ANY, position)
        return (_PORTABLE if step.node is None else _MATRICES if step.op == _PRODUCT else _ANY, position)

    def reason(self, position: int) -> tuple[str, str]:
        """Return why a transpose is there, and what avoids it, if anything is known to."""
        step, line = self.flow.steps[position], self.lines.get(position)
        made, needed = self.before[position], self.after[position]
        if position in self.inputs:
            return "an input comes as NCHW, and XNNPACK computes in NHWC", _IO_LAYOUT
        if position in self.outputs:
            return "an output leaves as NCHW, and XNNPACK computes in NHWC", _IO_LAYOUT
        if line is not None and packet(line.origin) in _SHUFFLES:
            return f"{packet(line.origin)} moves values between pixels and channels", ""
        if needed[0] == _PORTABLE:
            return f"{self._name(needed[1])} is not delegated and reads the usual order", ""
        if made[0] == _PORTABLE:
            return f"{self._name(made[1])} is not delegated and writes the usual order", ""
        if _MATRICES in (made[0], needed[0]):
            side = "before" if needed[0] == _MATRICES else "after"
            return f"rows and columns {side} a matrix multiplication (attention heads)", ""
        if len(step.permutation) > 4:
            return "blocks of pixels change places (windows, patches, depth to space)", ""
        ends = position in self.flow.returned or needed[0] == _NOBODY
        if line is not None:
            reader = "the model returns this order" if ends else f"{self._name(needed[1])} needs this order"
            return f"the model's own permute: {reader}", ""
        if ends:
            return "an output leaves in the usual order", ""
        if made[0] == _CALLER:
            return "an input comes as NCHW, and another operator reads it so", ""
        if made[0] == _NOBODY:
            return "not known: nothing tells where the values come from", ""
        ways = f"from {self._name(made[1])} to {self._name(needed[1])}"
        return f"{ways}: one of them computes in NHWC, the other does not", ""

    def _name(self, position: int) -> str:
        step = self.flow.steps[position]
        if step.permutation:
            return "a permute of the model" if position in self.lines else "another layout change of XNNPACK"
        return packet(step.op) if step.node is None else step.op

    def line(self, position: int) -> str:
        """Return the line of a step, or of the nearest one that has any: what XNNPACK put in has none of its own."""
        around = (position, *self.flow.readers(position), self.after[position][1], self.before[position][1])
        found = (self.lines[p] for p in around if p in self.lines and self.lines[p].file)
        line = next(found, None)
        return place(line) if line is not None else ""


def place(line: SourceLine) -> str:
    return f"{line.file}:{line.line}"


def _groups(why: _Why, moved: Mapping[tuple[str, str], list[int]]) -> list[MoveGroup]:
    groups = []
    for (reason, hint), positions in moved.items():
        sizes = {position: _written(why.flow.steps[position]) for position in positions}
        ordered = sorted(positions, key=lambda position: -(sizes[position] or 0))
        known = [size for size in sizes.values() if size is not None]
        whole = sum(known) if len(known) == len(positions) else None
        lines = unique(line for line in map(why.line, ordered) if line)
        groups.append(MoveGroup(reason, len(positions), whole, lines, hint))
    return sorted(groups, key=lambda group: -(group.bytes or 0))


def _written(step: FlowStep) -> int | None:
    """Return the bytes of a step's results; None if one's size is not known."""
    total = 0
    for tensor in step.outputs:
        if tensor.dtype not in BITS or not tensor.shape:
            return None
        total += prod(tensor.shape) * BITS[tensor.dtype] // 8
    return total
