"""`--io-layout channels_last`: inputs and outputs in XNNPACK's own order, wherever that saves a layout change.

The model is captured as ever. Then the program's border is moved: an input comes as channels-last and is converted at
once, an output is converted last, and lowering cancels each conversion against the one that XNNPACK puts there. Which
inputs and outputs these are is seen in the program exported without; that they cancelled, in the program exported with.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.export.graph_signature import InputKind, OutputKind

from model_profiling.base import files
from model_profiling.base.errors import shortly
from model_profiling.export.lower.lowering import LoweredProgram, emit, lower
from model_profiling.export.rewrites.graph import base, copy_program, recompute
from model_profiling.formats import pte
from model_profiling.formats.pte import Method, TensorSpec, borders
from model_profiling.formats.pte.dataflow import DataFlow, data_flow
from model_profiling.store.artifacts import CHANNELS_LAST

_QUANTIZE = "quantize_per_tensor"
_DEQUANTIZE = "dequantize_per_tensor"


@dataclass(frozen=True)
class Border:
    """Places of inputs and outputs."""

    inputs: frozenset[int]
    outputs: frozenset[int]

    def __bool__(self) -> bool:
        return bool(self.inputs or self.outputs)

    def without(self, inputs: set[int], outputs: set[int]) -> "Border":
        return Border(self.inputs - inputs, self.outputs - outputs)


def with_channels_last_border(
    captured: torch.export.ExportedProgram, plain: LoweredProgram, how: dict[str, Any]
) -> LoweredProgram | str:
    """Lower a program again with channels-last inputs and outputs; where that saves no layout change, say why.

    `plain` is what lowering gave without; `how` it is told to lower.
    """
    method, flow = read_emitted(plain.program)
    signature = captured.graph_signature
    inputs = sum(spec.kind == InputKind.USER_INPUT for spec in signature.input_specs)
    outputs = sum(spec.kind == OutputKind.USER_OUTPUT for spec in signature.output_specs)
    if flow is None or method is None or (inputs, outputs) != (len(method.inputs), len(method.outputs)):
        return "it is not known which operators read its inputs and make its outputs"
    border = Border(frozenset(borders.inputs_to_nhwc(flow)), frozenset(borders.outputs_to_nchw(flow)))
    why = "no 4-D input or output is transposed at the border of the program"
    while border:
        try:
            built = emit(lower(_moved(captured, border), **how))
        except Exception as error:  # noqa: BLE001 - lowering raises whatever it likes, and there is a program that works
            return f"lowering failed ({shortly(error)})"
        method, after = read_emitted(built.program)
        assert method is not None  # it was known before
        left = border.without(
            _kept(method.inputs, after, borders.changed_inputs), _kept(method.outputs, after, borders.changed_outputs)
        )
        if left == border and after is not None and _layout_changes(after) < _layout_changes(flow):
            return built
        border = left if left != border else Border(frozenset(), frozenset())
        why = "lowering does not remove the transposes of its inputs and outputs"
    return why


def _kept(
    tensors: tuple[TensorSpec | None, ...], flow: DataFlow | None, changed: Callable[[DataFlow], set[int]]
) -> set[int]:
    """Return the places whose tensors did not become channels-last, or only by one more layout change."""
    still = {place for place, tensor in enumerate(tensors) if tensor is None or tensor.dim_order != CHANNELS_LAST}
    return still | changed(flow) if flow is not None else set(range(len(tensors)))


def read_emitted(emitted: Any) -> tuple[Method | None, DataFlow | None]:
    """Return the method of a program that ExecuTorch emitted, and what feeds what in it, as far as that is known."""
    with files.scratch_directory() as folder:
        path = folder / "program.pte"
        with path.open("wb") as file:
            emitted.write_to_file(file)
        program = pte.parse_own(path)
        if program is None:
            return None, None
        return program.methods[0], data_flow(program, program.methods[0])


def _layout_changes(flow: DataFlow) -> int:
    return sum(borders.changes_layout(flow, position) for position in range(len(flow.steps)))


def _moved(captured: torch.export.ExportedProgram, border: Border) -> torch.export.ExportedProgram:
    """Return a copy of the captured program whose inputs and outputs of `border` are channels-last."""
    moved = copy_program(captured)
    module, signature = moved.graph_module, moved.graph_signature
    placeholders = (node for node in module.graph.nodes if node.op == "placeholder")
    kinds = (spec.kind for spec in signature.input_specs)
    given = [node for node, kind in zip(placeholders, kinds, strict=True) if kind == InputKind.USER_INPUT]
    for place in sorted(border.inputs):
        _turn_input(module.graph, given[place])
    returned = [i for i, spec in enumerate(signature.output_specs) if spec.kind == OutputKind.USER_OUTPUT]
    _turn_outputs(module.graph, signature, [returned[place] for place in sorted(border.outputs)])
    module.recompile()
    return moved


def _turn_input(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Let an input come as channels-last, and give every reader a contiguous copy of its own.

    One copy for all would stay if only one of them needs it. Where readers quantize, the copy comes after that.
    """
    node.meta["val"] = node.meta["val"].contiguous(memory_format=torch.channels_last)
    for reader in list(node.users):
        if base(reader) == _QUANTIZE:
            recompute(reader)
            for dequantized in [user for user in reader.users if base(user) == _DEQUANTIZE]:
                recompute(dequantized)
                readers = list(dequantized.users)
                with graph.inserting_after(dequantized):
                    made = _converted(graph, dequantized, torch.contiguous_format)
                for user in readers:
                    user.replace_input_with(dequantized, made)
        else:
            with graph.inserting_before(reader):
                made = _converted(graph, node, torch.contiguous_format)
            reader.replace_input_with(node, made)


def _turn_outputs(graph: torch.fx.Graph, signature: Any, places: list[int]) -> None:
    """Convert what is returned, each tensor once; other readers go on with what they had."""
    end = graph.output_node()
    returned = list(end.args[0])
    made: dict[torch.fx.Node, torch.fx.Node] = {}
    for place in places:
        node = returned[place]
        if node not in made:
            with graph.inserting_before(end):
                made[node] = _converted(graph, node, torch.channels_last)
        returned[place] = made[node]
        signature.output_specs[place].arg.name = made[node].name
    end.args = (tuple(returned),)


def _converted(graph: torch.fx.Graph, node: torch.fx.Node, memory_format: torch.memory_format) -> torch.fx.Node:
    """Return a copy in another layout; of a dequantized tensor, quantized and dequantized again for lowering."""
    copied = graph.call_function(torch.ops.aten._to_copy.default, (node,), {"memory_format": memory_format})
    recompute(copied)
    if base(node) != _DEQUANTIZE:
        return copied
    with graph.inserting_after(copied):
        quantize = torch.ops.quantized_decomposed.quantize_per_tensor.default
        quantized = graph.call_function(quantize, (copied, *node.args[1:]))
    recompute(quantized)
    with graph.inserting_after(quantized):
        dequantized = graph.call_function(node.target, (quantized, *node.args[1:]), dict(node.kwargs))
    recompute(dequantized)
    return dequantized
