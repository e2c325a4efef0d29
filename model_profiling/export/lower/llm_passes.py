"""What `export_llm` does to the graph of a language model with ExecuTorch's own attention and cache operators.

These operators take [batch, token, head, value], and models hold heads before tokens: they transpose right before and
right after. `export_llm` removes such pairs; left in, each is a copy that no user of it has.
"""

from typing import Any

import torch
from torch.export import ExportedProgram

from model_profiling.export.rewrites.graph import remove_unused, replace_uses

aten = torch.ops.aten


def has_llm_operators(program: ExportedProgram) -> bool:
    """Return whether a program calls an operator of the namespace `llama`."""
    targets = (node.target for node in program.graph.nodes if node.op == "call_function")
    return any(getattr(target, "namespace", "") == "llama" for target in targets)


def remove_inverse_transposes(program: ExportedProgram) -> int:
    """Let nobody read a transpose that undoes the one before it; returns how many went.

    ExecuTorch's RemoveRedundantTransposes takes any permute done twice for undone, which a cycle of three axes is not.
    """
    removed = 0
    for node in list(program.graph.nodes):
        order = _order(node)
        before = _order(node.args[0]) if order is not None else None
        if order is None or before is None or [before[axis] for axis in order] != sorted(order):
            continue
        if any(user.op == "output" for user in node.users):
            continue  # a signature names its outputs, and an input may not be one
        replace_uses(program, node, node.args[0].args[0])
        removed += 1
    remove_unused(program.graph)
    program.graph_module.recompile()
    return removed


def _order(node: Any) -> list[int] | None:
    """Return which axis of its input each axis of a transpose or permute is; None for anything else."""
    if not isinstance(node, torch.fx.Node) or node.op != "call_function":
        return None
    if node.target not in (aten.transpose.int, aten.permute.default):
        return None
    count = node.meta["val"].dim()
    if node.target is aten.permute.default:
        return [axis % count for axis in node.args[1]]
    order = list(range(count))
    first, second = node.args[1] % count, node.args[2] % count
    order[first], order[second] = order[second], order[first]
    return order
