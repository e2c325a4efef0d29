"""Captured graphs from inside: schemas of operators, where nodes come from, and nested inputs."""

import dataclasses
import re
from collections.abc import Callable, Iterable
from typing import Any

from model_profiling.upstream.reliance import holds, lacking, reliance

# What a model is called with: positional and keyword inputs.
Call = tuple[tuple[Any, ...], dict[str, Any]]


def origin(node: Any) -> str:
    """Return the name that a node had when the model was captured first; its own if that is not known."""
    steps = (node.meta.get("from_node") or []) if holds(PROVENANCE) else []
    return str(steps[0].name) if steps else str(node.name)


def flat_inputs(program: Any, call: Call) -> Any:
    """Return what the graph of an exported program is called with: weights, buffers and inputs in its order."""
    return program._graph_module_flat_inputs(*call)


def named_leaves(value: Any) -> tuple[list[Any], list[str]]:
    """Return the leaves and where each is, by the keys of dicts and the fields of classes: `logits`, `boxes[0]`.

    torch is told of the dataclasses among them; '' is what has a number only.
    """
    import torch

    for kind in {type(leaf) for leaf in leaves(value) if dataclasses.is_dataclass(leaf)}:
        torch.export.register_dataclass(kind, serialized_type_name=f"{kind.__module__}.{kind.__qualname__}")
    found = leaves(value)
    if not holds(NESTED):
        return found, [""] * len(found)
    from torch.utils import _pytree

    paths = [path for path, _ in _pytree.tree_flatten_with_path(value)[0]]
    names = [re.sub(r"\['([^']+)'\]", r".\1", _pytree.keystr(path)).removeprefix(".") for path in paths]
    return found, [name if re.search("[a-zA-Z]", name) else "" for name in names]


def leaves(value: Any) -> list[Any]:
    """Return what is in nested tuples, lists and dicts."""
    if holds(NESTED):
        from torch.utils import _pytree

        found: list[Any] = _pytree.tree_leaves(value)
        return found
    inside = value.values() if isinstance(value, dict) else value
    return [leaf for each in inside for leaf in leaves(each)] if isinstance(value, (tuple, list, dict)) else [value]


def mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """Return nested tuples, lists and dicts with every leaf changed, in order."""
    if holds(NESTED):
        from torch.utils import _pytree

        return _pytree.tree_map(change, value)
    if isinstance(value, dict):
        return type(value)((key, mapped(change, each)) for key, each in value.items())
    if isinstance(value, (tuple, list)):
        made = [mapped(change, each) for each in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    return change(value)


def tensors_of(value: Any) -> list[Any]:
    """Flatten nested values to their tensors, in pytree order."""
    import torch

    return [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def mapped_tensors(change: Callable[[Any], Any], value: Any) -> Any:
    """Return nested values with every tensor changed; all else stays."""
    import torch

    return mapped(lambda leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf, value)


def with_tensors(value: Any, others: Iterable[Any]) -> Any:
    """Return nested values with other tensors."""
    given = iter(others)
    return mapped_tensors(lambda _: next(given), value)


def _check_operators() -> str:
    import torch

    read, written = torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor
    if not isinstance(read, torch._ops.OpOverload) or read._overloadname != "Tensor":
        return "operators of a graph are no torch._ops.OpOverload with _overloadname"
    names = [argument.name for argument in read._schema.arguments]
    if names != ["self", "other", "alpha"] or read._schema.is_mutable or not written._schema.is_mutable:
        return "the _schema of an operator does not tell its arguments and what it changes"
    return ""


def _check_provenance() -> str:
    import torch
    from torch.fx.traceback import NodeSource

    node = torch.fx.Graph().placeholder("given")
    return "" if NodeSource(node).name == "given" else "torch.fx.traceback.NodeSource does not name its node"


def _check_nested() -> str:
    from torch.utils import _pytree

    value = ({"b": 1, "a": (2, None)}, [3])
    same = _pytree.tree_leaves(value) == [1, 2, None, 3] and _pytree.tree_map(lambda leaf: leaf, value) == value
    return "" if same else "torch.utils._pytree does not take nested tuples, lists and dicts apart in order"


OPERATORS = reliance("operator-schemas", _check_operators)
FLAT_INPUTS = reliance(
    "flat-inputs", lambda: lacking("torch.export:ExportedProgram._graph_module_flat_inputs(self, args, kwargs)")
)
PROVENANCE = reliance("node-provenance", _check_provenance)
NESTED = reliance("nested-inputs", _check_nested)
