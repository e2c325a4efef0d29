"""What rewrites share: new nodes at an old one's line, and one node of an exported program taking another's place."""

import copy
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

aten = torch.ops.aten
PADDING = {aten.pad.default, aten.constant_pad_nd.default}
# Operators that give the values of their one input in another shape or order.
VIEWS = {
    *(aten.view.default, aten.reshape.default, aten.flatten.using_ints, aten.permute.default, aten.transpose.int),
    *(aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.expand.default),
    *(aten.slice.Tensor, aten.select.int),
}
# In a model that is not trained these give their input itself, which their schema does not say.
_DROPOUT = {aten.dropout.default, aten.feature_dropout.default}


class NodeRewrite(NamedTuple):
    """A rewrite of single nodes: finds them in a program, and writes what stands in the place of one."""

    find: Callable[[torch.export.ExportedProgram], list[Any]]
    write: Callable[[torch.export.ExportedProgram, Any], Any]


def base(node: torch.fx.Node) -> str:
    """Return `conv2d` for `aten.conv2d.default`; '' for what is no operator of PyTorch."""
    target = node.target
    return str(target.overloadpacket).partition(".")[2] if isinstance(target, torch._ops.OpOverload) else ""


def is_mutable(node: torch.fx.Node) -> bool:
    """Return whether an operator writes into what it is given."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def copy_program(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return the program again, to be changed; weights are shared."""
    module = copy.deepcopy(program.graph_module)
    for node, other in zip(program.graph.nodes, module.graph.nodes, strict=True):
        other.name = node.name  # a copy calls an `input` something else, and the signature goes by names
    return torch.export.ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=copy.deepcopy(program.graph_signature),
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        example_inputs=program.example_inputs,
        constants=dict(program.constants),
        verifiers=program.verifiers,
    )


def replace_uses(program: torch.export.ExportedProgram, old: Any, new: Any) -> None:
    """Let everybody who used `old` use `new`, the program's own signature too; `new` may go on using `old`."""
    old.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)
    rename_outputs(program, old, new)


def rename_outputs(program: torch.export.ExportedProgram, old: Any, new: Any) -> None:
    """Let the program's signature say that it gives `new` where it gave `old`."""
    for spec in program.graph_signature.output_specs:
        if getattr(spec.arg, "name", None) == old.name:
            spec.arg.name = new.name


def recompute(node: torch.fx.Node) -> None:
    """Compute a node's shape and dtype again from its inputs."""
    args, keywords = torch.fx.map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
    node.meta["val"] = node.target(*args, **keywords)


def step(program: torch.export.ExportedProgram, like: Any, target: Any, *args: Any) -> Any:
    """Return a new operator that stands at the same line of the model as `like`."""
    made = program.graph.call_function(target, args)
    made.meta = {**like.meta, "val": target(*torch.fx.map_arg(args, lambda node: node.meta["val"]))}
    return made


def reshaped(program: torch.export.ExportedProgram, like: Any, tensor: Any, shape: list[int]) -> Any:
    """Return a tensor in this shape, which it may have already."""
    return (
        tensor if list(tensor.meta["val"].shape) == shape else step(program, like, aten.reshape.default, tensor, shape)
    )


def remove_unused(graph: torch.fx.Graph) -> None:
    """Remove operators whose results nobody reads; other functions, as vmap's, may do more than to give a result."""
    other = (node for node in graph.nodes if node.op == "call_function" and node.target is not operator.getitem)
    kept = {node for node in other if not isinstance(node.target, torch._ops.OpOverload)}
    graph.eliminate_dead_code(lambda node: node.is_impure() or node in kept)


def constant(program: torch.export.ExportedProgram, data: torch.Tensor) -> Any:
    """Return a new constant of the program, for example the weight of a layer that stands for an operator.

    Each use gets its own: XNNPACK refuses a constant that it needs in two layouts.
    """
    first = next(iter(program.graph.nodes))
    with program.graph.inserting_before(first):
        made = program.graph.placeholder("c_rewritten")
    made.target = made.name
    made.meta = {"val": _fake_mode(program).from_tensor(data, static_shapes=True)}
    key = f"rewritten.{made.name}".replace(".", "_")
    program.constants[key] = data
    spec = InputSpec(kind=InputKind.CONSTANT_TENSOR, arg=TensorArgument(name=made.name), target=key, persistent=None)
    program.graph_signature.input_specs.insert(0, spec)
    return made


def number(program: torch.export.ExportedProgram, like: Any, value: float) -> Any:
    """Return a constant in the dtype of `like`: a plain number would be converted from fp32 outside the delegate."""
    return constant(program, torch.tensor([value], dtype=like.meta["val"].dtype))


def known_value(program: torch.export.ExportedProgram, node: Any) -> torch.Tensor | None:
    """Return a node's constant value: a parameter, a buffer that nobody changes, or computed from such alone."""
    needed, waiting = {node}, [node]
    while waiting:
        entry = waiting.pop()
        if stored_tensor(program, entry) is None and not _pure(entry):
            return None
        new = [given for given in entry.all_input_nodes if given not in needed]
        needed.update(new)
        waiting += new
    values: dict[Any, Any] = {}
    with torch.no_grad():
        for entry in program.graph.nodes:
            if entry in needed:
                args, kwargs = torch.fx.map_arg((entry.args, entry.kwargs), values.get)
                values[entry] = entry.target(*args, **kwargs) if _pure(entry) else stored_tensor(program, entry)
    return values[node] if isinstance(values[node], torch.Tensor) else None


def stored_tensor(program: torch.export.ExportedProgram, node: Any) -> torch.Tensor | None:
    """Return the tensor that the program holds for a node, if it is a placeholder and nobody changes it."""
    if not isinstance(node, torch.fx.Node) or node.op != "placeholder":
        return None
    signature = program.graph_signature
    name = signature.inputs_to_parameters.get(node.name) or signature.inputs_to_buffers.get(node.name)
    name = name or signature.inputs_to_lifted_tensor_constants.get(node.name)
    if name is None or name in signature.buffers_to_mutate.values() or not _unchanged(node):
        return None
    found = program.state_dict.get(name, program.constants.get(name))
    return found.detach() if isinstance(found, torch.Tensor) else None


def _pure(node: Any) -> bool:
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    random = torch.Tag.nondeterministic_seeded in node.target.tags
    return not node.target._schema.is_mutable and not random and _unchanged(node)


def _unchanged(node: Any) -> bool:
    """Return whether no user changes the node's tensor in place."""
    schemas = [getattr(user.target, "_schema", None) for user in node.users]
    return not any(schema is not None and schema.is_mutable for schema in schemas)


def permutation_of(node: Any) -> list[int]:
    """Return which axis of its input each axis of a permute is: axes told apart by their sizes show where each goes."""
    by_size = torch.empty([2 + axis for axis in range(node.args[0].meta["val"].dim())], device="meta")
    return [size - 2 for size in node.target(by_size, *node.args[1:], **node.kwargs).shape]


def calls(program: torch.export.ExportedProgram, *targets: Any) -> list[Any]:
    """Return every call of these operators on floats that XNNPACK takes, of sizes that are known now."""
    found = [node for node in program.graph.nodes if node.op == "call_function" and node.target in targets]
    return [node for node in found if all(_ordinary(value) for value in _values(node))]


def arguments(node: Any) -> dict[str, Any]:
    """Return all arguments of a call by their names."""
    schema = node.target._schema.arguments
    given = {argument.name: value for argument, value in zip(schema, node.args, strict=False)}
    return {argument.name: argument.default_value for argument in schema} | given | dict(node.kwargs)


def _values(node: Any) -> list[Any]:
    """Return what goes into a call first, and what comes out of it."""
    first = node.args[0] if node.args else None
    given = first.meta.get("val") if isinstance(first, torch.fx.Node) else None
    results = node.meta.get("val")
    return [given, *(results if isinstance(results, (list, tuple)) else [results])]


def _ordinary(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.dtype not in (torch.float32, torch.float16):
        return False
    return all(isinstance(size, int) and size > 0 for size in value.shape)


def _fake_mode(program: torch.export.ExportedProgram) -> Any:
    values = (node.meta.get("val") for node in program.graph.nodes)
    return next(value.fake_mode for value in values if hasattr(value, "fake_mode"))


def in_half_precision(program: torch.export.ExportedProgram, *targets: Any) -> list[Any]:
    """Return every call of these operators that gives fp16 and can be replaced by a new tensor."""
    calls = [node for node in program.graph.nodes if node.op == "call_function" and node.target in targets]
    return [node for node in calls if node.meta["val"].dtype == torch.float16 and is_replaceable(program, node)]


def replace(program: torch.export.ExportedProgram, node: Any, new: Any) -> None:
    """Put `new` where `node` was; who read the tensor that `node` changed in place reads `new` from then on."""
    if _in_place(node):
        order = {each: number for number, each in enumerate(program.graph.nodes)}
        node.args[0].replace_all_uses_with(new, delete_user_cb=lambda user: order[user] > order[node])
    replace_uses(program, node, new)
    program.graph.erase_node(node)


def replace_each(program: torch.export.ExportedProgram, found: list[Any], write: Callable[[Any, Any], Any]) -> int:
    """Replace each node by what `write` makes of it; return how many there were."""
    for node in found:
        with program.graph.inserting_before(node):
            result = write(program, node)
        replace(program, node, result)
    program.graph_module.recompile()
    return len(found)


def _in_place(node: Any) -> bool:
    return str(node.target.overloadpacket).endswith("_")


def is_replaceable(program: torch.export.ExportedProgram, node: Any) -> bool:
    """Return whether a node can be replaced: if in place, its tensor is neither a view, nor an input, nor viewed."""
    if not _in_place(node):
        return True
    changed = node.args[0]
    aliases = [user for user in changed.users if user is not node and may_alias(user)]
    return changed.op == "call_function" and not may_alias(changed) and not aliases


def may_alias(node: Any) -> bool:
    """Return whether a node's result may share memory with its input: a view, a change in place, or nothing done."""
    if node.target in _DROPOUT:
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(result.alias_info is not None for result in schema.returns)
