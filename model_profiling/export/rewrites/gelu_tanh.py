"""GELU in fp16, which XNNPACK does not take, becomes multiplications and a sigmoid, which it takes.

gelu(x) is nearly x * sigmoid(1.5958 x + 0.0714 x^3), its well-known tanh form. Done in fp16 it is off by at most 0.0021
between -6 and 6, where eager PyTorch's fp16 GELU is off by 0.0010. Very large inputs overflow on the way to the right
answer: x, or zero.
"""

import math
from typing import Any

import torch

from model_profiling.export.rewrites.graph import take_place

aten = torch.ops.aten
_LINEAR = math.sqrt(8 / math.pi)
_CUBIC = 0.044715 * _LINEAR


def gelu_tanh(program: torch.export.ExportedProgram) -> int:
    """Replace every GELU of a half-precision tensor; returns how many there were."""
    found = [
        node
        for node in program.graph.nodes
        if node.target is aten.gelu.default and node.meta["val"].dtype == torch.float16
    ]
    for node in found:
        (x,) = node.all_input_nodes

        def step(target: Any, *args: Any, like: Any = node) -> Any:
            made = program.graph.call_function(target, args)
            # Every step has the shape and the dtype of the whole, and stands at its line of the model.
            made.meta = dict(like.meta)
            return made

        with program.graph.inserting_before(node):
            square = step(aten.mul.Tensor, x, x)
            slope = step(aten.add.Tensor, step(aten.mul.Tensor, square, _CUBIC), _LINEAR)
            gate = step(aten.sigmoid.default, step(aten.mul.Tensor, x, slope))
            result = step(aten.mul.Tensor, x, gate)
        take_place(program, node, result)
        program.graph.erase_node(node)
    program.graph_module.recompile()
    return len(found)
