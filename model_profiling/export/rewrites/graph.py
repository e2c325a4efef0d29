"""What rewrites share: new nodes at an old one's line, and one node of an exported program taking another's place."""

from typing import Any

import torch

# What hands its input on as it is, although its schema does not say so.
_NOTHING = {
    torch.ops.aten.dropout.default,
    torch.ops.aten.feature_dropout.default,
    torch.ops.aten.contiguous.default,
    torch.ops.aten.reshape.default,
    torch.ops.aten.flatten.using_ints,
}


def take_place(program: torch.export.ExportedProgram, old: Any, new: Any) -> None:
    """Let everybody who used `old` use `new`, the program's own signature too; `new` may go on using `old`."""
    old.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)
    for spec in program.graph_signature.output_specs:
        if getattr(spec.arg, "name", None) == old.name:
            spec.arg.name = new.name


def step(program: torch.export.ExportedProgram, like: Any, target: Any, *args: Any) -> Any:
    """A new operator that stands at the same line of the model as `like`."""
    made = program.graph.call_function(target, args)
    values = torch.fx.map_arg(args, lambda node: node.meta["val"])
    made.meta = {**like.meta, "val": target(*values)}
    return made


def in_half_precision(program: torch.export.ExportedProgram, *targets: Any) -> list[Any]:
    """Every call of these operators that gives fp16 and whose replacement by a new tensor nobody could notice."""
    calls = [node for node in program.graph.nodes if node.op == "call_function" and node.target in targets]
    return [node for node in calls if node.meta["val"].dtype == torch.float16 and is_replaceable(program, node)]


def replace(program: torch.export.ExportedProgram, node: Any, new: Any) -> None:
    """Put `new` where `node` was; who read the tensor that `node` changed in place reads `new` from then on."""
    if _in_place(node):
        order = {each: number for number, each in enumerate(program.graph.nodes)}
        changed = node.args[0]
        changed.replace_all_uses_with(new, delete_user_cb=lambda user: order[user] > order[node])
    take_place(program, node, new)
    program.graph.erase_node(node)


def _in_place(node: Any) -> bool:
    return str(node.target.overloadpacket).endswith("_")


def is_replaceable(program: torch.export.ExportedProgram, node: Any) -> bool:
    """A change in place can go only if the tensor is known by one name: neither a view, nor an input, nor viewed."""
    if not _in_place(node):
        return True
    changed = node.args[0]
    aliases = [user for user in changed.users if user is not node and _may_alias(user)]
    return changed.op == "call_function" and not _may_alias(changed) and not aliases


def _may_alias(node: Any) -> bool:
    """Whether a node's result shares memory with what it was given: a view, a change in place, or nothing done."""
    if node.target in _NOTHING:
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(result.alias_info is not None for result in schema.returns)
