"""Rewrites that the advice recommends, done to the captured graph: the same answers from less work, or more delegated.

A rewrite changes the program it is given and returns how many places it changed.
"""

from collections.abc import Callable

import torch

from model_profiling.export.rewrites.gelu_tanh import gelu_tanh
from model_profiling.export.rewrites.keepdim import keepdim
from model_profiling.export.rewrites.per_pixel import per_pixel

REWRITES: dict[str, Callable[[torch.export.ExportedProgram], int]] = {
    "gelu-tanh": gelu_tanh,
    "keepdim": keepdim,
    "per-pixel": per_pixel,
}
