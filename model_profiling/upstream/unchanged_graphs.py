"""Faster passes: graphs that did not change are not traced and verified again.

Most of ExecuTorch's passes end with tracing the graph again, to compute shapes of what they changed, also where they
changed nothing; and each verifies the graph before it begins. XNNPACK's are seventeen for every delegate. A graph that
is what the last trace made of it would be traced to the same, one that was verified is still right, and an operator
has the same shape as the last time that it had the same inputs.
"""

from collections.abc import Iterator
from threading import get_ident
from typing import Any

import torch
from executorch.backends.xnnpack._passes import XNNPACKPassManager
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from executorch.exir.pass_base import ExportPass, PassResult, _ExportPassBase
from executorch.exir.verification.arg_validator import EdgeOpArgValidator
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Interpreter

from model_profiling.upstream.patching import Block, Replacement

# What a pass may define without changing how operators are traced.
_BESIDE_TRACING = {"call", "requires", "ensures", "__call__", "__init__"}
_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.layout, torch.device, torch.memory_format)


def _content(graph: Graph) -> list[tuple[Any, ...]]:
    """Return what tracing reads of a graph: nodes and values by identity, arguments as they are."""
    return [(node, node.target, node.args, node.kwargs, _Same(node.meta.get("val"))) for node in graph.nodes]


class _Same:
    """Equal only to what holds the very same object, and keeps it alive so that no other gets its place."""

    __slots__ = ("value",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value


def traced_once(block: Block) -> Iterator[Replacement]:
    """Skip tracing a graph again if no pass changed it, inside a delegate, whose program nobody else holds."""
    trace, transform = _ExportPassBase.call, XNNPACKPassManager.transform
    hooks = {name for each in (ExportPass, _ExportPassBase) for name in vars(each)} - _BESIDE_TRACING
    stock = {name: getattr(ExportPass, name) for name in hooks if callable(getattr(ExportPass, name))}
    # For each delegate that is being made, one inside the other: what its graphs were when they were traced.
    delegates: list[dict[GraphModule, list[tuple[Any, ...]]]] = block.remember([])

    def only_traces(one: Any) -> bool:
        return isinstance(one, ExportPass) and all(getattr(type(one), name) is hook for name, hook in stock.items())

    def traced_if_changed(self: Any, graph_module: GraphModule) -> Any:
        if get_ident() != block.thread or not delegates:
            return trace(self, graph_module)
        traced = delegates[-1]
        if only_traces(self) and traced.get(graph_module) == _content(graph_module.graph):
            return PassResult(graph_module, True)
        result = trace(self, graph_module)
        traced[result.graph_module] = _content(result.graph_module.graph)
        return result

    def transformed(self: Any) -> Any:
        if get_ident() != block.thread:
            return transform(self)
        delegates.append({})
        try:
            return transform(self)
        finally:
            delegates.pop()

    yield Replacement(_ExportPassBase, "call", traced_if_changed)
    yield Replacement(XNNPACKPassManager, "transform", transformed)


def verified_once(block: Block) -> Iterator[Replacement]:
    """Verify a program again only if its graph or signature is another."""
    verify = ExportedProgram._validate
    verified: list[tuple[Any, ...]] = block.remember([])

    def verified_if_changed(program: ExportedProgram) -> None:
        if get_ident() != block.thread:
            verify(program)
            return
        modules = [module for module in program.graph_module.modules() if isinstance(module, GraphModule)]
        contents = [_content(module.graph) for module in modules]
        what = (_Same(program.graph_module), list(program.verifiers), contents, str(program.graph_signature))
        if verified != [what]:
            verify(program)
            verified[:] = [what]

    yield Replacement(ExportedProgram, "_validate", verified_if_changed)


def shaped_once(block: Block) -> Iterator[Replacement]:
    """Compute shape and type of an operator's output once for the very same inputs."""
    call = Interpreter.call_function
    # The inputs stay alive, so that no other value gets the identity of one of them.
    known: dict[Any, tuple[Any, Any]] = block.remember({})

    def called(self: Interpreter, target: Any, args: Any, kwargs: Any) -> Any:
        if get_ident() != block.thread:
            return call(self, target, args, kwargs)
        # A pass runs operators one by one, by an interpreter that has no graph.
        in_pass = type(self) is Interpreter and not len(self.graph.nodes)
        functional = isinstance(target, (OpOverload, EdgeOpOverload)) and not target._schema.is_mutable
        if not (in_pass or type(self) is EdgeOpArgValidator) or not (functional or target is executorch_call_delegate):
            return call(self, target, args, kwargs)
        key = _key((target, args, list(kwargs.items())))
        if key in known:
            return known[key][1]
        result = call(self, target, args, kwargs)
        if key is not None and _static(result):
            known[key] = (args, kwargs), result
        return result

    yield Replacement(Interpreter, "call_function", called)


def _key(call: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return what decides an operator's output: values by identity, numbers by type and value; None if not known."""
    target, args, kwargs = call
    tensors = 0

    def part(value: Any) -> Any:
        nonlocal tensors
        if isinstance(value, (tuple, list)):
            return tuple(map(part, value))
        if type(value) is FakeTensor:
            tensors += 1
            return id(value)
        if isinstance(value, torch.nn.Module):  # a delegate
            return id(value)
        if isinstance(value, _PLAIN):
            return type(value), value
        raise TypeError

    try:
        parts = part(args), part(kwargs)
    except TypeError:
        return None
    return (target, *parts) if tensors else None


def _static(result: Any) -> bool:
    if isinstance(result, (tuple, list)):
        return all(map(_static, result))
    return type(result) is FakeTensor and not result._has_symbolic_sizes_strides
