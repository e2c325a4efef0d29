"""What rewrites share: new nodes at an old one's line, and one node of an exported program taking another's place."""

import copy
import operator
from collections.abc import Callable, Sequence
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


class Site:
    """A call that is to be replaced: what it was given, and new operators at its line of the model."""

    def __init__(self, program: torch.export.ExportedProgram, node: Any) -> None:
        self.program, self.node = program, node

    # What a call is given changes with what is replaced before it.

    @property
    def source(self) -> Any:
        return self.node.args[0]

    @property
    def given(self) -> dict[str, Any]:
        return arguments(self.node)

    @property
    def value(self) -> Any:
        return self.node.meta["val"]

    @property
    def is_ordinary(self) -> bool:
        """Return whether it takes and gives floats that XNNPACK takes, of sizes that are known now."""
        given, gives = (node.meta.get("val") for node in ((*self.node.all_input_nodes, self.node)[0], self.node))
        values = [given, *(gives if isinstance(gives, (list, tuple)) else [gives])]
        floats = all(isinstance(each, torch.Tensor) and each.dtype in (torch.float32, torch.float16) for each in values)
        return floats and all(isinstance(size, int) and size > 0 for each in values for size in each.shape)

    def __call__(self, target: Any, *args: Any, **keywords: Any) -> Any:
        """Return a new operator."""
        made = self.program.graph.call_function(target, args, keywords)
        values, named = torch.fx.map_arg((args, keywords), lambda node: node.meta["val"])
        made.meta = {**self.node.meta, "val": target(*values, **named)}
        return made

    def reshape(self, tensor: Any, shape: Sequence[int]) -> Any:
        return self(aten.reshape.default, tensor, list(shape))

    def reshaped(self, tensor: Any, shape: Sequence[int]) -> Any:
        """Return a tensor in this shape, which it may have already."""
        return tensor if list(tensor.meta["val"].shape) == list(shape) else self.reshape(tensor, shape)

    def constant(self, data: torch.Tensor) -> Any:
        return constant(self.program, data)

    def number(self, like: Any, value: float) -> Any:
        """Return a constant in the dtype of `like`: a plain number is converted from fp32 outside the delegate."""
        return self.constant(torch.tensor([value], dtype=like.meta["val"].dtype))

    def replace(self, new: Any) -> None:
        """Put `new` where the call was; who read the tensor that it changed in place reads `new` from then on."""
        graph = self.program.graph
        if base(self.node).endswith("_"):
            order = {each: number for number, each in enumerate(graph.nodes)}
            self.source.replace_all_uses_with(new, delete_user_cb=lambda user: order[user] > order[self.node])
        replace_uses(self.program, self.node, new)
        graph.erase_node(self.node)


class NodeRewrite(NamedTuple):
    """Calls of some operators that fit, and what is written in the place of each; None if that has been done."""

    targets: Sequence[Any]
    fits: Callable[[Site], bool]
    write: Callable[[Site], Any]
    # Whether it is for other values than those of ordinary calls, too.
    any_value: bool = False


Rewrites = Sequence[NodeRewrite]


def find_sites(program: torch.export.ExportedProgram, rewrites: Rewrites) -> dict[Any, tuple[Site, NodeRewrite]]:
    """Return the nodes that rewrites would change, each by the first for which it fits; the program stays as it is."""
    found: dict[Any, tuple[Site, NodeRewrite]] = {}
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    for each in rewrites:
        for site in (Site(program, node) for node in calls if node.target in each.targets and node not in found):
            if (each.any_value or site.is_ordinary) and each.fits(site):
                found[site.node] = site, each
    return found


def rewrite_nodes(program: torch.export.ExportedProgram, rewrites: Rewrites) -> int:
    """Replace each node that rewrites would change; return how many there were."""
    found = find_sites(program, rewrites)
    for site, each in found.values():
        with program.graph.inserting_before(site.node):
            result = each.write(site)
        if result is not None:
            site.replace(result)
    if found:
        program.graph_module.recompile()
    return len(found)


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
    values = (node.meta.get("val") for node in program.graph.nodes)
    mode = next(value.fake_mode for value in values if hasattr(value, "fake_mode"))
    made.meta = {"val": mode.from_tensor(data, static_shapes=True)}
    key = f"rewritten.{made.name}".replace(".", "_")
    program.constants[key] = data
    spec = InputSpec(kind=InputKind.CONSTANT_TENSOR, arg=TensorArgument(name=made.name), target=key, persistent=None)
    program.graph_signature.input_specs.insert(0, spec)
    return made


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


def arguments(node: Any) -> dict[str, Any]:
    """Return all arguments of a call by their names."""
    schema = node.target._schema.arguments
    given = {argument.name: value for argument, value in zip(schema, node.args, strict=False)}
    return {argument.name: argument.default_value for argument in schema} | given | dict(node.kwargs)


def is_replaceable(node: Any) -> bool:
    """Return whether a node can be replaced: if in place, its tensor is neither a view, nor an input, nor viewed."""
    if not base(node).endswith("_"):
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
