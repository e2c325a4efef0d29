"""Rewrites of the captured graph: the same answers from less work, or with more of it delegated.

base/rewrites.py is their table, and `DONE_BY` says what does each: rows of calls that fit, so that every export can
record which rewrites are worth trying, and of what is written in their place. `layout` rebuilds the whole graph.
"""

from collections.abc import Iterable

import torch

from model_profiling.base.rewrites import LAYOUT, REWRITES
from model_profiling.export.beside import beside
from model_profiling.export.lower.delegation import node_line
from model_profiling.export.rewrites import activations, attention, copies, layout, norm, reductions, upsample
from model_profiling.export.rewrites.graph import Rewrites, find_sites, rewrite_nodes

DONE_BY: dict[str, Rewrites] = {
    "attention": attention.REWRITES,
    "copies": copies.REWRITES,
    "cumsum": reductions.CUMSUM,
    "gelu-tanh": activations.GELU_TANH,
    "hardsigmoid": activations.HARDSIGMOID,
    "keepdim": reductions.KEEPDIM,
    "mean": reductions.MEAN,
    "norm": norm.REWRITES,
    "silu": activations.SILU,
    "upsample": upsample.REWRITES,
}


def apply(name: str, program: torch.export.ExportedProgram) -> int:
    """Do one rewrite to a program; return how many places changed."""
    return layout.apply(program) if name == LAYOUT else rewrite_nodes(program, DONE_BY[name])


def matches(program: torch.export.ExportedProgram, names: Iterable[str] = tuple(REWRITES)) -> dict[str, list[str]]:
    """Return where each rewrite would change a program: a line of the model (`path:line`, '' if unknown) per place.

    One that cannot look at this graph is not among them.
    """
    found = {}
    for name in names:
        with beside(f"whether --rewrite {name} would change something is not known"):
            nodes = layout.find(program) if name == LAYOUT else find_sites(program, DONE_BY[name])
            found[name] = [node_line(node) for node in nodes]
    return found
