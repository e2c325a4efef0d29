"""`--rewrite layout`: values stay in memory as they are until an operator cannot compute with them in that order."""

import copy
from dataclasses import dataclass
from typing import Any

import torch

from model_profiling.export.rewrites.layout.in_place import without_changes_in_place
from model_profiling.export.rewrites.layout.pointwise import pointwise
from model_profiling.export.rewrites.layout.rebuild import Declined, Rebuild
from model_profiling.export.rewrites.layout.rules import rule_table
from model_profiling.export.rewrites.layout.views import CHANGING


def layout(program: torch.export.ExportedProgram) -> int:
    """Rebuild the program; returns how many of the model's layout changes are gone. What cannot be proven stays."""
    try:
        return len(_rebuilt(program))
    except Declined:
        return 0
    finally:
        program.graph.eliminate_dead_code()
        program.graph_module.recompile()


def needless_changes(program: torch.export.ExportedProgram) -> list[Any]:
    """The layout changes that `layout` would remove, and operators that would no longer cost any."""
    graph = torch.fx.Graph()
    made: dict[Any, Any] = {}
    graph.output(graph.graph_copy(program.graph, made))
    for old, new in made.items():
        new.name = old.name
    try:
        return _rebuilt(_Draft(graph, copy.deepcopy(program.graph_signature)))
    except Declined:
        return []


@dataclass
class _Draft:
    """A program to try a change on: a graph, and which inputs and outputs it has."""

    graph: torch.fx.Graph
    graph_signature: Any


def _rebuilt(program: Any) -> list[Any]:
    without_changes_in_place(program)
    rules = rule_table()
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    for node in nodes:
        if torch.Tag.pointwise in getattr(node.target, "tags", ()):
            rules.setdefault(node.target, pointwise)
    rebuild = Rebuild(program, rules)
    rebuild.run()
    changes = [node for node in nodes if node.target in CHANGING and node.args[0].op != "placeholder"]
    gone = dict.fromkeys(node for node in [*changes, *rebuild.viewed] if node not in rebuild.needed)
    return list(gone | dict.fromkeys(rebuild.spared))
