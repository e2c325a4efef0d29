"""Rewrites that the advice recommends, done to the captured graph: the same answers from less work, or more delegated.

`places` finds what a rewrite would change in a program and leaves the program as it is, so that every export can say
which rewrites are worth asking for. `apply` changes it and returns how many places that were.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from model_profiling.export.delegation import short_path
from model_profiling.export.rewrites.attention import attention, undelegated_products
from model_profiling.export.rewrites.copies import copies, undelegated_copies
from model_profiling.export.rewrites.cumsum import cumsum, short_sums
from model_profiling.export.rewrites.gelu_tanh import fp16_gelus, gelu_tanh
from model_profiling.export.rewrites.half_gates import fp16_hardsigmoids, fp16_silus, hardsigmoid, silu
from model_profiling.export.rewrites.keepdim import keepdim, pixel_reductions
from model_profiling.export.rewrites.layout import layout, needless_changes
from model_profiling.export.rewrites.means import means, undelegated_means
from model_profiling.export.rewrites.norm import norm, undelegated_norms
from model_profiling.export.rewrites.upsample import undelegated_resizes, upsample
from model_profiling.formats.etrecord.source import frame

# The rewrite that is also done in lowering.
LAYOUT = "layout"


@dataclass(frozen=True)
class Rewrite:
    """`places` are the nodes that would go or change.

    Parts of an operator that stays in float must not be quantized each on its own: such a rewrite waits until the graph
    is quantized.
    """

    places: Callable[[torch.export.ExportedProgram], list[Any]]
    apply: Callable[[torch.export.ExportedProgram], int]
    after_quantization: bool = False


REWRITES: dict[str, Rewrite] = {
    "attention": Rewrite(undelegated_products, attention, after_quantization=True),
    "copies": Rewrite(undelegated_copies, copies, after_quantization=True),
    "cumsum": Rewrite(short_sums, cumsum, after_quantization=True),
    "gelu-tanh": Rewrite(fp16_gelus, gelu_tanh),
    "hardsigmoid": Rewrite(fp16_hardsigmoids, hardsigmoid),
    "keepdim": Rewrite(pixel_reductions, keepdim),
    "mean": Rewrite(undelegated_means, means, after_quantization=True),
    "norm": Rewrite(undelegated_norms, norm, after_quantization=True),
    "silu": Rewrite(fp16_silus, silu),
    "upsample": Rewrite(undelegated_resizes, upsample, after_quantization=True),
    # Last: what others put into the graph may need no layout change either.
    LAYOUT: Rewrite(needless_changes, layout),
}


# Attention as one operator hides the layout changes of its parts.
IMPLIED = {"layout": ("attention",)}


def matches(program: torch.export.ExportedProgram, names: Iterable[str] = tuple(REWRITES)) -> dict[str, list[str]]:
    """Where each rewrite would change this program: a line of the model (`path:line`, '' if unknown) per place."""
    return {name: [_line(node) for node in REWRITES[name].places(program)] for name in names}


def _line(node: Any) -> str:
    file, line, _ = frame(node.meta.get("stack_trace") or "")
    return f"{short_path(file)}:{line}" if file else ""
