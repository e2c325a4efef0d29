"""Rewrites that the advice recommends, done to the captured graph: the same answers from less work, or more delegated.

`places` finds what a rewrite would change in a program and leaves the program as it is, so that every export can say
which rewrites are worth asking for. `apply` changes it and returns how many places that were.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from model_profiling.etrecord.source import frame
from model_profiling.export.delegation import short_path
from model_profiling.export.rewrites.gelu_tanh import fp16_gelus, gelu_tanh
from model_profiling.export.rewrites.half_gates import fp16_hardsigmoids, fp16_silus, hardsigmoid, silu
from model_profiling.export.rewrites.keepdim import keepdim, pixel_reductions
from model_profiling.export.rewrites.layout import layout, needless_changes

# The rewrite that is also done in lowering.
LAYOUT = "layout"


@dataclass(frozen=True)
class Rewrite:
    """`places` are the nodes that would go or change."""

    places: Callable[[torch.export.ExportedProgram], list[Any]]
    apply: Callable[[torch.export.ExportedProgram], int]


REWRITES: dict[str, Rewrite] = {
    "gelu-tanh": Rewrite(fp16_gelus, gelu_tanh),
    "hardsigmoid": Rewrite(fp16_hardsigmoids, hardsigmoid),
    "keepdim": Rewrite(pixel_reductions, keepdim),
    "silu": Rewrite(fp16_silus, silu),
    LAYOUT: Rewrite(needless_changes, layout),
}


def matches(program: torch.export.ExportedProgram) -> dict[str, list[str]]:
    """Where each rewrite would change this program: a line of the model (`path:line`, '' if unknown) per place."""
    return {name: [_line(node) for node in rewrite.places(program)] for name, rewrite in REWRITES.items()}


def _line(node: Any) -> str:
    file, line, _ = frame(node.meta.get("stack_trace") or "")
    return f"{short_path(file)}:{line}" if file else ""
