"""A model and inputs of our own: an export converts and quantizes in place, and the caller's stay as they are."""

import copy
from typing import Any

import torch

from model_profiling.base.errors import InputError
from model_profiling.upstream.captured_graphs import mapped


def own_copy(module: torch.nn.Module) -> torch.nn.Module:
    """Copy a module with its weights, hooks and all else that it holds."""
    # Computed tensors (a weight that old-style weight_norm made) refuse to be copied: their values are copied instead.
    held = [value for part in module.modules() for value in (*vars(part).values(), *part.buffers(recurse=False))]
    computed = [value for value in held if isinstance(value, torch.Tensor) and not value.is_leaf]
    try:
        return copy.deepcopy(module, {id(tensor): tensor.detach().clone() for tensor in computed})
    except Exception as error:
        first = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise InputError(
            f"{type(module).__name__} cannot be copied, and an export may not change yours: {first}",
            "Take out of the module what cannot be copied (locks, open files, generators), or export it from a file.",
        ) from error


def own_inputs(value: Any) -> Any:
    """Return nested inputs with tensors of their own: a model may write into what it is given."""
    return mapped(lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf, value)
