"""`--rewrite layout`: values stay in memory as they are until an operator cannot compute with them in that order."""

from typing import Any

import torch

from model_profiling.export.rewrites.layout.rebuild import Declined, Rebuild
from model_profiling.export.rewrites.layout.rules import pointwise, rule_table


def layout(program: torch.export.ExportedProgram) -> int:
    rules = rule_table()
    for node in program.graph.nodes:
        if node.op == "call_function" and torch.Tag.pointwise in getattr(node.target, "tags", ()):
            rules.setdefault(node.target, pointwise)
    Rebuild(program, rules).run()
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()
    return 1
