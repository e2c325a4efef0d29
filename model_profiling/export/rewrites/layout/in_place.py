"""Replaces changes in place by new tensors, so that a value is the same wherever it is read."""

from typing import Any

import torch

from model_profiling.export.rewrites.graph import is_replaceable, replace
from model_profiling.export.rewrites.layout.rebuild import Declined

aten = torch.ops.aten


def without_changes_in_place(program: torch.export.ExportedProgram) -> None:
    """Replace each by the operator that gives a new tensor; raise Declined where somebody could notice."""
    for node in list(program.graph.nodes):
        schema = getattr(node.target, "_schema", None)
        if node.op != "call_function" or schema is None or not schema.is_mutable:
            continue
        target = _functional(node.target)
        if target is None or not is_replaceable(program, node):
            raise Declined(f"{node.target} changes a tensor that is also known by another name")
        with program.graph.inserting_before(node):
            values, keywords = torch.fx.map_arg((node.args, node.kwargs), lambda entry: entry.meta["val"])
            new = program.graph.call_function(target, node.args, node.kwargs)
            new.meta = {**node.meta, "val": target(*values, **keywords)}
        replace(program, node, new)


def _functional(target: Any) -> Any:
    """Return `aten.relu.default` for `aten.relu_.default`; None where there is none."""
    name = target.overloadpacket.__name__
    packet = getattr(aten, name[:-1], None) if name.endswith("_") and not name.endswith("__") else None
    return getattr(packet, target._overloadname, None)
