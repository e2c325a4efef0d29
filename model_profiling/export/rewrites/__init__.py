"""Rewrites that the advice recommends, done to the captured graph: same meaning, less work or more of it delegated.

A rewrite changes the program it is given and returns how many places it changed.
"""

from collections.abc import Callable

import torch

from model_profiling.export.rewrites.keepdim import keepdim
from model_profiling.export.rewrites.per_pixel import per_pixel

REWRITES: dict[str, Callable[[torch.export.ExportedProgram], int]] = {"keepdim": keepdim, "per-pixel": per_pixel}
