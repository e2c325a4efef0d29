"""Reductions that XNNPACK does not take become ones that it takes."""

import math

import torch

from model_profiling.export.rewrites.graph import take_place


def keepdim(program: torch.export.ExportedProgram) -> int:
    """Let mean and sum keep their dimensions and drop them by a view: XNNPACK takes both. Returns how many changed."""
    aten = torch.ops.aten
    changed = 0
    for node in list(program.graph.nodes):
        if node.op != "call_function" or node.target not in (aten.mean.dim, aten.sum.dim_IntList):
            continue
        value = node.meta["val"]
        keeps = len(node.args) > 2 and node.args[2]
        if keeps or len(node.args) < 2 or not all(isinstance(size, int) for size in value.shape):
            continue
        source, dims = node.args[0], node.args[1]
        rank = source.meta["val"].dim()
        reduced = {dim % rank for dim in dims}
        shape = [1 if i in reduced else size for i, size in enumerate(source.meta["val"].shape)]
        if math.prod(shape) != value.numel():
            continue
        node.args = (source, dims, True, *node.args[3:])
        with program.graph.inserting_after(node):
            view = program.graph.call_function(aten.view.default, (node, list(value.shape)))
        view.meta = {**node.meta, "val": value}
        node.meta = {**node.meta, "val": value.new_empty(shape)}
        take_place(program, node, view)
        changed += 1
    program.graph_module.recompile()
    return changed
