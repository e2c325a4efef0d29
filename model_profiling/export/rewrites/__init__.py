"""Rewrites of the captured graph: the same answers from less work, or with more of it delegated.

base/rewrites.py is their table. Each is a module of this folder, named as the rewrite is, with two functions:
`find(program)` returns the nodes that it would change and leaves the program as it is, so that every export can record
which rewrites are worth trying; `write(program, node)` returns what stands in the place of one. A module that changes
more than such nodes has `apply(program)` instead, which returns how many there were.
"""

import importlib
from collections.abc import Iterable
from typing import Any

import torch

from model_profiling.base.rewrites import REWRITES
from model_profiling.export.beside import beside
from model_profiling.export.lower.delegation import node_line
from model_profiling.export.rewrites.graph import replace_each


def rewrite_module(name: str) -> Any:
    """Return the module that does a rewrite: `gelu_tanh` for gelu-tanh."""
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")


def apply(name: str, program: torch.export.ExportedProgram) -> int:
    """Do one rewrite to a program; return how many places changed."""
    module = rewrite_module(name)
    if hasattr(module, "apply"):
        return int(module.apply(program))
    return replace_each(program, module.find(program), module.write)


def matches(program: torch.export.ExportedProgram, names: Iterable[str] = tuple(REWRITES)) -> dict[str, list[str]]:
    """Return where each rewrite would change a program: a line of the model (`path:line`, '' if unknown) per place.

    One that cannot look at this graph is not among them.
    """
    found = {}
    for name in names:
        with beside(f"whether --rewrite {name} would change something is not known"):
            found[name] = [node_line(node) for node in rewrite_module(name).find(program)]
    return found
