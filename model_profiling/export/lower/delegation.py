"""What XNNPACK took, what it left to the portable kernels, and why."""

import contextlib
import operator
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from model_profiling.base.records import by_key
from model_profiling.export.prepare.samples import dtype_name
from model_profiling.formats.etrecord.reader import frame
from model_profiling.formats.graph_terms import base_name
from model_profiling.store.artifacts import Delegation, UndelegatedOperator
from model_profiling.upstream.reliance import holds
from model_profiling.upstream.xnnpack_lowering import REASONS, listening, supported_operators

# What XNNPACK computes in, outside of quantized operators.
_FLOATS = {"float32", "float16"}
_SIZES = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float)
# The namespaces of PyTorch's and ExecuTorch's general operators; all others belong to somebody's own kernels.
_GENERAL = ("aten", "quantized_decomposed", "dim_order_ops", "prims", "prim", "executorch_prim", "torchao")
UNKNOWN_REASON = "reason unknown: this version of ExecuTorch does not tell it"
REPOSITORY = Path(__file__).resolve().parents[3]


class LoweredNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One operator of the lowered graph. `delegate` numbers the delegate call it went into; none if portable."""

    name: str
    op: str
    delegate: int | None
    shapes: list[list[int | str]]
    dtypes: list[str]
    source: str


def _with_dtype(node: Any, reason: str) -> str:
    """Return what is meant by an invalid dtype: a dtype, a size that is no number yet, or an empty tensor."""
    if reason != "invalid dtype":
        return reason
    given = [arg.meta.get("val") for arg in node.all_input_nodes]
    tensors = [*(value for value in given if isinstance(value, torch.Tensor)), *_results(node)]
    if other := sorted({dtype_name(tensor) for tensor in tensors} - _FLOATS):
        return f"dtype not supported by XNNPACK ({', '.join(other)})"
    if any(isinstance(value, _SIZES) for value in given):
        return "one of its sizes is known only when the program runs"
    if any(free_unbacked_symbols(tensor) for tensor in tensors):
        return "its shape depends on a value that is known only when the program runs"
    return "XNNPACK takes neither empty tensors nor this dtype"


@contextlib.contextmanager
def rejections() -> Iterator[dict[str, str]]:
    """Give what the partitioner says while the block runs: a node's name to why it is left out."""
    reasons: dict[str, str] = {}

    def hear(node: Any, reason: str) -> None:
        reasons[node.name] = _with_dtype(node, reason)

    with listening(hear) if holds(REASONS) else contextlib.nullcontext():
        yield reasons


def list_nodes(graph_module: torch.fx.GraphModule) -> list[LoweredNode]:
    """List the operators of a lowered graph in order, those inside delegates among them, at the place of their call."""
    nodes: list[LoweredNode] = []
    delegates = 0
    for node in graph_module.graph.nodes:
        if node.op != "call_function":
            continue
        if _op(node) == "executorch_call_delegate":
            inside = getattr(graph_module, node.args[0].target).original_module.graph.nodes
            nodes += [_node(inner, delegates) for inner in inside if _is_operator(inner)]
            delegates += 1
        elif _is_operator(node):
            nodes.append(_node(node, None))
    return nodes


def portable_nodes(operators: Collection[str], nodes: list[LoweredNode]) -> list[LoweredNode]:
    """Return the nodes outside of delegates that become these operators of a program (`aten::mean.out`)."""
    wanted = {base_name(operator) for operator in operators}
    return [node for node in nodes if node.delegate is None and base_name(node.op) in wanted]


def _is_operator(node: Any) -> bool:
    """Tell operators from bookkeeping: picking one of several outputs is not work."""
    return node.op == "call_function" and node.target is not operator.getitem


def _op(node: Any) -> str:
    name = str(getattr(node.target, "__name__", node.target))
    # An operator that writes into its arguments, in the wrapping that lowering puts around it.
    return str(node.args[0]) if name.startswith("auto_functionalized") and node.args else name


def _results(node: Any) -> list[torch.Tensor]:
    value = node.meta.get("val")
    return [each for each in (value if isinstance(value, (tuple, list)) else [value]) if isinstance(each, torch.Tensor)]


def _node(node: Any, delegate: int | None) -> LoweredNode:
    shapes = [[d if isinstance(d, int) else str(d) for d in tensor.shape] for tensor in _results(node)]
    dtypes, source = list(map(dtype_name, _results(node))), source_line(node.meta.get("stack_trace") or "")
    return LoweredNode(node.name, _op(node), delegate, shapes, dtypes, source)


def source_line(stack_trace: str) -> str:
    """Find the model's own line, `path:line`, as the innermost frame of a trace that is not torch's."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', stack_trace)
    # What torch made while it traced, such as <eval_with_key>.37, is no file.
    own = [(path, line) for path, line in frames if not re.search(r"/site-packages/torch/|^<", path)]
    if not own:
        return ""
    path, line = own[-1]
    return f"{short_path(path)}:{line}"


def node_line(node: torch.fx.Node) -> str:
    """Return the line of the model that a node of a captured graph comes from; '' if it is not known."""
    file, line, _ = frame(node.meta.get("stack_trace") or "")
    return f"{short_path(file)}:{line}" if file else ""


def short_path(path: str) -> str:
    """Shorten a path to what tells it apart: from the repository's root, or from inside site-packages."""
    if "/site-packages/" in path:
        return path.split("/site-packages/")[-1]
    with contextlib.suppress(ValueError):
        return str(Path(path).relative_to(REPOSITORY))
    return path


def summarise(nodes: list[LoweredNode], backend: str, reasons: dict[str, str]) -> Delegation:
    """Count both sides of the cut, and group what was left out by operator and reason."""
    portable = [node for node in nodes if node.delegate is None]
    delegates = {node.delegate for node in nodes if node.delegate is not None}
    supported = supported_operators() if backend == "xnnpack" else frozenset()
    left_out = by_key(((node.op, _reason(node, backend, supported, reasons)), node.source) for node in portable)
    most_first = sorted(left_out.items(), key=lambda entry: -len(entry[1]))
    return Delegation(
        delegated_nodes=len(nodes) - len(portable),
        portable_nodes=len(portable),
        delegate_calls=len(delegates),
        not_delegated=[
            UndelegatedOperator(op, len(sources), reason, list(dict.fromkeys(filter(None, sources))))
            for (op, reason), sources in most_first
        ],
    )


def _reason(node: LoweredNode, backend: str, supported: frozenset[str] | None, reasons: dict[str, str]) -> str:
    if backend != "xnnpack":
        return "exported without a delegate (--backend portable)"
    if not node.shapes:
        return "computes a size or a position, and no tensor"
    if node.op.count(".") > 1 and node.op.split(".")[0] not in _GENERAL:
        return "a custom operator with a kernel of its own, which no delegate takes: there is nothing to rewrite"
    if node.name in reasons:
        return reasons[node.name]
    # Without the dialect, as the partitioner knows it: `aten.mean.dim` is `mean.dim`.
    bare = node.op.partition(".")[2] if node.op.count(".") > 1 else node.op
    if supported is not None and bare not in supported:
        return "XNNPACK's partitioner does not know this operator"
    if supported is None or not holds(REASONS):
        return UNKNOWN_REASON
    return "XNNPACK supports this operator, but not as it is used here (the partitioner gives no reason)"
