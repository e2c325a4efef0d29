"""Rewrites of the captured graph: the same answers from less work, or with more of it delegated.

base/rewrites.py is their table, and `DONE_BY` says what does each: a module of this folder, or a part of one, with two
functions. `find(program)` returns the nodes that it would change and leaves the program as it is, so that every export
can record which rewrites are worth trying; `write(program, node)` returns what stands in the place of one. What changes
more than such nodes has `apply(program)` instead, which returns how many there were.
"""

from collections.abc import Iterable
from typing import Any

import torch

from model_profiling.base.rewrites import REWRITES
from model_profiling.export.beside import beside
from model_profiling.export.lower.delegation import node_line
from model_profiling.export.rewrites import activations, attention, copies, layout, norm, reductions, upsample
from model_profiling.export.rewrites.graph import replace_each

DONE_BY: dict[str, Any] = {
    "attention": attention,
    "copies": copies,
    "cumsum": reductions.CUMSUM,
    "gelu-tanh": activations.GELU_TANH,
    "hardsigmoid": activations.HARDSIGMOID,
    "keepdim": reductions.KEEPDIM,
    "layout": layout,
    "mean": reductions.MEAN,
    "norm": norm,
    "silu": activations.SILU,
    "upsample": upsample,
}


def apply(name: str, program: torch.export.ExportedProgram) -> int:
    """Do one rewrite to a program; return how many places changed."""
    rewrite = DONE_BY[name]
    if hasattr(rewrite, "apply"):
        return int(rewrite.apply(program))
    return replace_each(program, rewrite.find(program), rewrite.write)


def matches(program: torch.export.ExportedProgram, names: Iterable[str] = tuple(REWRITES)) -> dict[str, list[str]]:
    """Return where each rewrite would change a program: a line of the model (`path:line`, '' if unknown) per place.

    One that cannot look at this graph is not among them.
    """
    found = {}
    for name in names:
        with beside(f"whether --rewrite {name} would change something is not known"):
            found[name] = [node_line(node) for node in DONE_BY[name].find(program)]
    return found
