"""Layers that stay in fp32 while the rest of a model is converted to fp16 or quantized.

They are named as the model names its modules (`features.3`, `blocks.*.norm`: with all that is inside), or as the
captured graph names an operator (`add_4`). What stands between them stays in fp32, too: operators without weights,
such as a ReLU, on the way from one kept layer to another.
"""

import difflib
import fnmatch
import operator
from collections.abc import Callable, Collection, Iterable, Mapping

import torch
from torch.fx.node import map_aggregate

from model_profiling.base.errors import InputError
from model_profiling.export.rewrites.graph import (
    add_call,
    base,
    constant,
    is_mutable,
    may_alias,
    recompute,
    remove_unused,
    rename_outputs,
    replace_uses,
)
from model_profiling.upstream.captured_graphs import OPERATORS
from model_profiling.upstream.reliance import require

Names = tuple[str, ...]

# With weights these are layers of their own, which stay in fp32 only by name.
_LAYERS = frozenset(
    (
        *("conv1d", "conv2d", "conv3d", "convolution", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        *("linear", "addmm", "mm", "bmm", "baddbmm", "matmul", "bilinear", "embedding", "embedding_bag"),
        *("batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "native_layer_norm"),
        *("lstm", "gru", "rnn_tanh", "rnn_relu", "native_group_norm", "_native_batch_norm_legit_no_training"),
    )
)
NORMS = frozenset(("batch_norm", "_native_batch_norm_legit_no_training"))
_CONVOLUTIONS = frozenset(name for name in _LAYERS if name.startswith("conv"))
# What XNNPACK computes in one operator with what stands before it.
_ACTIVATIONS = frozenset(
    ("relu", "relu_", "relu6", "relu6_", "hardtanh", "hardtanh_", "clamp", "clamp_", "clamp_min", "clamp_min_")
)
_SUMS = ("linear", "addmm", "mm", "bmm", "matmul", "add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_")
_HEADS = _CONVOLUTIONS | NORMS | frozenset(_SUMS)
_FLOATS = {torch.float16, torch.float32}
# Checks that a value has the dtype which it had when the model was captured.
_CHECK = "_assert_tensor_metadata"


def kept_nodes(graph: torch.fx.Graph, names: Names) -> set[torch.fx.Node]:
    """Return the operators that names mean, with what stands between them; a name that means none is refused."""
    if not names:
        return set()
    require(OPERATORS)
    nodes = [node for node in graph.nodes if node.op == "call_function"]
    paths = {node: _paths(node) for node in nodes}

    def is_meant(node: torch.fx.Node, name: str) -> bool:
        return node.name == name or any(fnmatch.fnmatchcase(path, name) for path in paths[node])

    by_name = {name: {node for node in nodes if is_meant(node, name)} for name in names}
    known = {node.name for node in nodes}.union(*paths.values())
    _refuse_unknown([name for name, found in by_name.items() if not found], known)
    kept: set[torch.fx.Node] = set().union(*by_name.values())
    for node in nodes:
        # In order: what is computed together with one that is kept is as well.
        first = node.args[0] if node.args else None
        if isinstance(first, torch.fx.Node) and first in kept and len(first.users) == 1 and follows(first, node):
            kept.add(node)
    units = _units(nodes)
    for unit in units:
        kept -= unit if any(node.op != "call_function" for node in unit) else set()
        kept |= unit if kept & unit else set()
    return kept | _between(units, kept, _constants(nodes))


def follows(node: torch.fx.Node, user: torch.fx.Node) -> bool:
    """Return whether `user` is computed in one operator with `node`: a norm or an activation after a convolution."""
    if not user.args or user.args[0] is not node or user.op != "call_function":
        return False
    if base(user) in NORMS:
        return base(node) in _CONVOLUTIONS
    return base(user) in _ACTIVATIONS and base(node) in _HEADS


Unit = set[torch.fx.Node]


def _between(units: list[Unit], kept: Unit, constants: Unit) -> Unit:
    """Return the operators without weights on the way from one kept layer to another.

    Of those where values of other layers come in *and* go out, none: in fp32 they would save no conversion.
    """
    free = [unit for unit in units if not unit & kept and all(_is_functional(node, constants) for node in unit)]
    left = _reached(_reached(free, kept, _given)[::-1], kept, _users)
    while lost := [unit for unit in left if not _saves_a_conversion(unit, kept.union(*left), constants)]:
        left = [unit for unit in left if unit not in lost]
    return set().union(*left)


def _reached(units: list[Unit], kept: Unit, step: Callable[[Unit], Unit]) -> list[Unit]:
    """Return those from which steps through others of them lead to a kept layer."""
    found = set(kept)
    for unit in units:
        found |= unit if step(unit) & found else set()
    return [unit for unit in units if unit <= found]


def _saves_a_conversion(unit: Unit, inside: Unit, constants: Unit) -> bool:
    given = [each in inside for each in _given(unit) if each not in constants and _dtypes(each) & _FLOATS]
    taken = [user in inside for user in _users(unit)]
    return any(given) and any(taken) and (all(given) or all(taken))


def _given(unit: Unit) -> Unit:
    return {each for node in unit for each in node.all_input_nodes} - unit


def _users(unit: Unit) -> Unit:
    return {user for node in unit for user in node.users if base(user) != _CHECK} - unit


def _is_functional(node: torch.fx.Node, constants: Collection[torch.fx.Node]) -> bool:
    """Return whether it is an operator of PyTorch on tensors and no layer with weights of its own."""
    if node.target is operator.getitem:
        return bool(_dtypes(node))
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten" or not _dtypes(node):
        return False
    weights = any(each in constants and _dtypes(each) & _FLOATS for each in node.all_input_nodes)
    return not (weights and base(node) in _LAYERS)


def _constants(nodes: list[torch.fx.Node]) -> set[torch.fx.Node]:
    """Return the model's weights, inputs of such names in a program, and what is computed from them alone."""
    if not nodes:
        return set()
    found = {
        node
        for node in nodes[0].graph.nodes
        if node.op == "get_attr" or (node.op == "placeholder" and node.name.startswith(("p_", "b_", "c_")))
    }
    for node in nodes:
        if all(each in found for each in node.all_input_nodes):
            found.add(node)
    return found


def _units(nodes: list[torch.fx.Node]) -> list[Unit]:
    """Return nodes that are kept together or not at all, in order: several results of one operator, and those that
    share memory which one of them changes for the others to read."""
    order = {node: number for number, node in enumerate(nodes)}
    # Nodes whose value is, or may be, in the memory of their first argument.
    sharing = (node for node in nodes if node.args and (node.target is operator.getitem or may_alias(node)))
    source = {node: node.args[0] for node in sharing if isinstance(node.args[0], torch.fx.Node)}
    owner: dict[torch.fx.Node, torch.fx.Node] = {}
    groups: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    for node in nodes:
        first = source.get(node, node)
        owner[node] = owner.get(first, first)
        groups.setdefault(owner[node], [owner[node]])
        groups[owner[node]] += [node] if node is not owner[node] else []

    def is_read_later(writer: torch.fx.Node, group: list[torch.fx.Node]) -> bool:
        through = {writer}
        for node in group:
            through |= {node} if source.get(node) in through else set()
        others = (node for node in group if node not in through)
        return any(order.get(user, len(order)) > order[writer] for node in others for user in node.users)

    units: list[Unit] = []
    for group in groups.values():
        writers = [node for node in group if is_mutable(node)]
        if writers and (group[0].op != "call_function" or any(is_read_later(node, group) for node in writers)):
            units.append(set(group))
            continue
        results = [{node, *(u for u in node.users if u.target is operator.getitem)} for node in group]
        units += [unit for unit, node in zip(results, group, strict=True) if node.target is not operator.getitem]
    return sorted(units, key=lambda unit: min(order.get(node, -1) for node in unit))


def nodes_in_changed_memory(graph: torch.fx.Graph) -> Unit:
    """Return nodes whose value changes after they are computed: others write to their memory, and somebody reads it."""
    units = _units([node for node in graph.nodes if node.op == "call_function"])
    return set().union(*(unit for unit in units if len(unit) > 1 and any(map(is_mutable, unit))))


def is_kept(path: str, names: Names) -> bool:
    """Return whether a module of this path is one of those named, or inside one."""
    return any(fnmatch.fnmatchcase(outer, name) for name in names for outer in _with_outer(path))


def refuse_unknown_modules(module: torch.nn.Module, names: Names) -> None:
    paths = {path for path, _ in module.named_modules() if path}
    _refuse_unknown([name for name in names if not any(is_kept(path, (name,)) for path in paths)], paths)


def keep_in_fp32(program: torch.export.ExportedProgram, names: Names, weights: Mapping[str, torch.Tensor]) -> None:
    """Let the named operators of a program in fp16 compute in fp32, with the `weights` that the model had before.

    What they are given is converted to fp32, and what others take from them back to fp16.
    """
    kept = kept_nodes(program.graph, names)
    for node in list(program.graph.nodes):
        if base(node) == _CHECK and (node in kept or node.args[0] in kept):
            kept.discard(node)
            program.graph.erase_node(node)
    _restore_weights(program, kept, weights)
    changing = nodes_in_changed_memory(program.graph)
    for node in [node for node in program.graph.nodes if node in kept]:
        with program.graph.inserting_before(node):
            given = {
                each: _converted(program, each, node, torch.float32)
                for each in node.all_input_nodes
                if _dtype(each) == torch.float16
            }
        node.args, node.kwargs = map_aggregate(
            (node.args, node.kwargs),
            lambda each, given=given: torch.float32 if each is torch.float16 else given.get(each, each),
        )
        was = _dtype(node)
        recompute(node)
        if was == torch.float16 and _dtype(node) == torch.float32:
            _give_back(program, node, kept, node in changing)
    remove_unused(program.graph)
    program.graph_module.recompile()


def _restore_weights(
    program: torch.export.ExportedProgram, kept: Collection[torch.fx.Node], weights: Mapping[str, torch.Tensor]
) -> None:
    """Give these operators the model's own weights again, not rounded to fp16; a copy if the layer is also called
    where it is not kept."""
    signature = program.graph_signature
    for node in [node for node in program.graph.nodes if node.op == "placeholder"]:
        name = signature.inputs_to_parameters.get(node.name) or signature.inputs_to_buffers.get(node.name)
        own = weights.get(name) if name is not None else None
        users = [user for user in node.users if user in kept]
        if own is None or not users or _dtype(node) != torch.float16 or own.dtype != torch.float32:
            continue
        if name in signature.buffers_to_mutate.values() or any(is_mutable(user) for user in node.users):
            continue
        if len(users) < len(node.users):
            copy = constant(program, own)
            for user in users:
                user.replace_input_with(node, copy)
            continue
        held = program.state_dict if name in program.state_dict else program.constants
        parameter = isinstance(held.get(name), torch.nn.Parameter)
        held[name] = torch.nn.Parameter(own, requires_grad=False) if parameter else own
        node.meta["val"] = node.meta["val"].to(torch.float32)


def _give_back(program: torch.export.ExportedProgram, node: torch.fx.Node, kept: Unit, changes: bool) -> None:
    """Let all who are not kept take the node's value in fp16: each as it is then, if it `changes` later."""
    others = [user for user in node.users if user not in kept]
    if changes:
        for user in others:
            with program.graph.inserting_before(user):
                half = _converted(program, node, node, torch.float16)
            user.replace_input_with(node, half)
            if user.op == "output":
                rename_outputs(program, node, half)
    elif others:
        with program.graph.inserting_after(node):
            half = _converted(program, node, node, torch.float16)
        inside = [user for user in node.users if user in kept]
        replace_uses(program, node, half)
        for user in inside:
            user.replace_input_with(half, node)


def _converted(
    program: torch.export.ExportedProgram, node: torch.fx.Node, like: torch.fx.Node, dtype: torch.dtype
) -> torch.fx.Node:
    return add_call(program.graph, like, torch.ops.aten._to_copy.default, node, dtype=dtype)


def _dtypes(node: torch.fx.Node) -> set[torch.dtype]:
    """Return the dtypes of what a node gives: one tensor or several."""
    value = node.meta.get("val")
    return {each.dtype for each in (value if isinstance(value, (list, tuple)) else [value]) if torch.is_tensor(each)}


def _dtype(node: torch.fx.Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


def _paths(node: torch.fx.Node) -> list[str]:
    """Return the paths of the modules in which a node stands: a list of modules is no step of its own in the graph."""
    stack = [str(path) for path, _ in (node.meta.get("nn_module_stack") or {}).values() if path]
    return list(dict.fromkeys(outer for path in stack for outer in _with_outer(path)))


def _with_outer(path: str) -> list[str]:
    """Return `a`, `a.b` and `a.b.c` of `a.b.c`."""
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
