"""Layers that stay in fp32 while the rest of a model is converted to fp16 or quantized.

They are named as the model names its modules (`features.3`, `blocks.*.norm`: with all that is inside), or as the
captured graph names an operator (`add_4`).
"""

import difflib
import fnmatch
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import torch

from model_profiling.errors import InputError
from model_profiling.export.rewrites.graph import take_place

Names = tuple[str, ...]


def kept_nodes(graph: torch.fx.Graph, names: Names) -> set[torch.fx.Node]:
    """The operators that names mean; a name that means none is refused."""
    nodes = [node for node in graph.nodes if node.op == "call_function"]
    by_name = {name: {node for node in nodes if _is_meant(node, name)} for name in names}
    known = {path for node in nodes for path in _paths(node)} | {node.name for node in nodes}
    _refuse_unknown([name for name, found in by_name.items() if not found], known)
    return set().union(*by_name.values())


def is_kept(path: str, names: Names) -> bool:
    """Whether a module of this path is one of those named, or inside one."""
    return any(fnmatch.fnmatchcase(outer, name) for name in names for outer in _with_outer(path))


def refuse_unknown_modules(module: torch.nn.Module, names: Names) -> None:
    paths = {path for path, _ in module.named_modules() if path}
    _refuse_unknown([name for name in names if not any(is_kept(path, (name,)) for path in paths)], paths)


def not_kept(names: Names) -> Callable[[torch.fx.Node], bool]:
    """Says of an operator that it may be quantized."""
    return lambda node: not any(_is_meant(node, name) for name in names)


def keep_in_fp32(program: torch.export.ExportedProgram, names: Names, weights: Mapping[str, torch.Tensor]) -> None:
    """Let the named operators of a program in fp16 compute in fp32, with the `weights` that the model had before.

    What they are given is converted to fp32, and what others take from them back to fp16.
    """
    kept = kept_nodes(program.graph, names)
    _restore_weights(program, kept, weights)
    for node in [node for node in program.graph.nodes if node in kept]:
        with program.graph.inserting_before(node):
            given = {
                each: _converted(program, each, node, torch.float32)
                for each in node.all_input_nodes
                if each not in kept and _dtype(each) == torch.float16
            }
        node.args = torch.fx.map_arg(node.args, lambda each, given=given: given.get(each, each))
        node.kwargs = torch.fx.map_arg(node.kwargs, lambda each, given=given: given.get(each, each))
        was = _dtype(node)
        node.meta["val"] = _computed(node)
        if was == torch.float16 and _dtype(node) == torch.float32:
            _give_back(program, node, kept)
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()


def _restore_weights(
    program: torch.export.ExportedProgram, kept: Collection[torch.fx.Node], weights: Mapping[str, torch.Tensor]
) -> None:
    """The weights that only these operators use are the model's own again and not rounded to fp16."""
    signature = program.graph_signature
    for node in program.graph.nodes:
        name = signature.inputs_to_parameters.get(node.name) or signature.inputs_to_buffers.get(node.name)
        own = weights.get(name) if name is not None else None
        if node.op != "placeholder" or own is None or not node.users or not all(user in kept for user in node.users):
            continue
        if _dtype(node) != torch.float16 or own.dtype != torch.float32:
            continue
        held = program.state_dict if name in program.state_dict else program.constants
        parameter = isinstance(held.get(name), torch.nn.Parameter)
        held[name] = torch.nn.Parameter(own, requires_grad=False) if parameter else own
        node.meta["val"] = node.meta["val"].to(torch.float32)


def _give_back(program: torch.export.ExportedProgram, node: torch.fx.Node, kept: Collection[torch.fx.Node]) -> None:
    """Let all who are not kept take the node's value in fp16."""
    if all(user in kept for user in node.users):
        return
    with program.graph.inserting_after(node):
        half = _converted(program, node, node, torch.float16)
    inside = [user for user in node.users if user in kept]
    take_place(program, node, half)
    for user in inside:
        user.replace_input_with(half, node)


def _converted(
    program: torch.export.ExportedProgram, node: torch.fx.Node, like: torch.fx.Node, dtype: torch.dtype
) -> torch.fx.Node:
    made = program.graph.call_function(torch.ops.aten._to_copy.default, (node,), {"dtype": dtype})
    made.meta = {**like.meta, "val": node.meta["val"].to(dtype)}
    return made


def _computed(node: torch.fx.Node) -> Any:
    """What a node gives now that it is given something else: sizes and dtype, not values."""
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
    return node.target(*args, **kwargs)


def _dtype(node: torch.fx.Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


def _is_meant(node: torch.fx.Node, name: str) -> bool:
    return node.name == name or any(fnmatch.fnmatchcase(path, name) for path in _paths(node))


def _paths(node: torch.fx.Node) -> list[str]:
    """The paths of the modules in which a node stands: a list of modules is no step of its own in the graph."""
    stack = [str(path) for path, _ in (node.meta.get("nn_module_stack") or {}).values() if path]
    return list(dict.fromkeys(outer for path in stack for outer in _with_outer(path)))


def _with_outer(path: str) -> list[str]:
    """`a`, `a.b` and `a.b.c` of `a.b.c`."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _refuse_unknown(names: list[str], known: Iterable[str]) -> None:
    if not names:
        return
    near = difflib.get_close_matches(names[0], sorted(known), 3, 0.5)
    raise InputError(
        f"the model has no layer {names[0]!r} to keep in fp32",
        f"Did you mean {' or '.join(near)}?" if near else "sme2-kit numerics lists the names of its layers.",
    )
