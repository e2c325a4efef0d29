"""`--rewrite layout`: values stay in memory as they are until an operator cannot compute with them in that order."""

import copy
import operator
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import torch

from model_profiling.export.rewrites.graph import PADDING, remove_unused
from model_profiling.export.rewrites.layout import images, views
from model_profiling.export.rewrites.layout.arithmetic import SOFTMAX, layer_norm, linear, matmul, pointwise, softmax
from model_profiling.export.rewrites.layout.rebuild import (
    Declined,
    Plan,
    Rebuild,
    Rule,
    ValueRule,
    without_changes_in_place,
)

# How often a better choice of what to move at once is looked for.
ROUNDS = 4


def apply(program: torch.export.ExportedProgram, large_by_rows: bool = True) -> int:
    """Rebuild the program; return how many of the model's layout changes are gone. What cannot be proven stays.

    `large_by_rows` turns large images in two steps where they have to be turned.
    """
    try:
        return len(_gone(_rebuilt(program, replace(_best(program), large_by_rows=large_by_rows))))
    except Declined:
        return 0
    finally:
        remove_unused(program.graph)
        program.graph_module.recompile()


def find(program: torch.export.ExportedProgram) -> list[Any]:
    """Return the layout changes that `apply` would remove, and operators that would no longer cost any."""
    try:
        return _gone(_rebuilt(_draft(program), _best(program)))
    except Declined:
        return []


def _best(program: torch.export.ExportedProgram) -> Plan:
    """Return the cheapest plan: what to do at once, because later it is done twice, and outputs in another order."""
    as_it_stands = Plan(
        frozenset(node.name for node in program.graph.nodes if node.target in views.CHANGING | views.RENAMING)
    )
    tried = {as_it_stands: _cost(_rebuilt(_draft(program), as_it_stands))}
    plan = Plan()
    for _ in range(ROUNDS):
        rebuild = _rebuilt(_draft(program), plan)
        tried[plan] = _cost(rebuild)
        often = Counter(cause.name for cause, _ in rebuild.moves if cause is not None)
        more = frozenset(name for name, count in often.items() if count > 1)
        outputs = {**rebuild.wishes, **dict(plan.outputs)}
        plan = Plan(plan.at_once | more, tuple(sorted(outputs.items())))
        if plan in tried:
            break
    best = min(tried, key=lambda plan: tried[plan])
    # Arithmetic on an image that is then turned several times over is better done after it is turned.
    turns = _rebuilt(_draft(program), best).turns
    again = frozenset(node.name for node, count in turns.items() if node is not None and count > 1)
    other = replace(best, turned=again)
    return other if again and _cost(_rebuilt(_draft(program), other)) < tried[best] else best


def _cost(rebuild: Rebuild) -> tuple[int, int]:
    return sum(count for _, count in rebuild.moves), len(rebuild.moves)


@dataclass
class _Draft:
    """A program to try a change on: a graph, and which inputs and outputs it has."""

    graph: torch.fx.Graph
    graph_signature: Any
    state_dict: dict[str, Any]
    constants: dict[str, Any]


def _draft(program: torch.export.ExportedProgram) -> _Draft:
    graph = torch.fx.Graph()
    made: dict[Any, Any] = {}
    graph.output(graph.graph_copy(program.graph, made))
    for old, new in made.items():
        new.name = old.name
    return _Draft(graph, copy.deepcopy(program.graph_signature), program.state_dict, dict(program.constants))


def _rebuilt(program: Any, plan: Plan) -> Rebuild:
    without_changes_in_place(program)
    targets = {node.target for node in program.graph.nodes if node.op == "call_function"} - VALUE_RULES.keys()
    of_points = {target: pointwise for target in targets if torch.Tag.pointwise in getattr(target, "tags", ())}
    rebuild = Rebuild(program, {**of_points, **RULES}, VALUE_RULES, plan)
    rebuild.run()
    return rebuild


def _gone(rebuild: Rebuild) -> list[Any]:
    """Return what the model had moved, or what made lowering turn images, and no longer does."""
    stays = {cause for cause, _ in rebuild.moves} | rebuild.fused
    changes = [node for node in rebuild.nodes if node.target in views.CHANGING and node.args[0].op != "placeholder"]
    gone = dict.fromkeys(node for node in [*changes, *rebuild.viewed] if node not in stays)
    return list(gone | dict.fromkeys(rebuild.saved))


aten = torch.ops.aten


RULES: dict[Any, Rule] = {
    aten.cat.default: views.cat,
    aten.matmul.default: matmul,
    aten.bmm.default: matmul,
    operator.getitem: images.get_item,
}
VALUE_RULES: dict[Any, ValueRule] = {
    target: rule
    for targets, rule in (
        ([aten.linear.default], linear), ([aten.layer_norm.default], layer_norm), (SOFTMAX, softmax),
        ([aten.group_norm.default], images.group_norm), ([aten.mean.dim], images.mean),
        ([aten.upsample_nearest2d.vec, aten.upsample_nearest2d.default], images.nearest),
        (images.OF_IMAGES, images.of_images), (PADDING, images.padding),
        ([aten.slice.Tensor, aten.select.int], views.slice_or_select),
        ([aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default, aten.unbind.int], views.split),
        ([aten.pixel_shuffle.default], views.shuffle_rule(views.pixel_shuffle)),
        ([aten.pixel_unshuffle.default], views.shuffle_rule(views.pixel_unshuffle)),
        ([aten.channel_shuffle.default], views.shuffle_rule(views.channel_shuffle)),
        (views.RENAMING, views.view_rule), (views.PERMUTING, views.permute_rule), (views.KEEPING, views.copy_rule),
    )
    for target in targets
}  # fmt: skip
