"""Sample inputs and expected outputs: the model's tensors, flattened in the order the .pte takes and gives them."""

import io
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree

from model_profiling.artifacts import TensorFile
from model_profiling.errors import RunError


def as_dtype(value: Any, dtype: torch.dtype) -> Any:
    """Convert the floating-point tensors of nested inputs; token ids, masks and plain numbers stay as they are."""

    def convert(leaf: Any) -> Any:
        return leaf.to(dtype) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

    return pytree.tree_map(convert, value)


def as_channels_last(value: Any) -> Any:
    """Store the 4-D tensors of nested inputs with their channels last; their logical shape stays NCHW."""

    def convert(leaf: Any) -> Any:
        four = isinstance(leaf, torch.Tensor) and leaf.dim() == 4
        return leaf.contiguous(memory_format=torch.channels_last) if four else leaf

    return pytree.tree_map(convert, value)


def copied(value: Any) -> Any:
    """Nested inputs with tensors of their own: a model may write into what it is given."""
    return pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, value)


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Flatten nested values to their tensors, in pytree order."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def other_leaves(value: Any) -> list[str]:
    """Name the types of the leaves that are no tensors, which a runner that passes tensors cannot pass."""
    return [type(leaf).__name__ for leaf in pytree.tree_leaves(value) if not isinstance(leaf, torch.Tensor)]


def npy_bytes(tensor: torch.Tensor) -> bytes:
    """Encode a tensor as .npy: logical order (NCHW) and C-contiguous, whatever its memory format."""
    try:
        array = np.ascontiguousarray(tensor.detach().numpy())
    except TypeError:
        raise RunError(
            f"a tensor of dtype {tensor.dtype} cannot be stored as .npy",
            "Let the model take and return one of NumPy's own dtypes.",
        ) from None
    file = io.BytesIO()
    np.save(file, array.reshape(tuple(tensor.shape)), allow_pickle=False)
    return file.getvalue()


def describe(tensors: list[torch.Tensor], folder: str, prefix: str) -> list[TensorFile]:
    return [
        TensorFile(list(tensor.shape), str(tensor.dtype).removeprefix("torch."), f"{folder}/{prefix}_{index}.npy")
        for index, tensor in enumerate(tensors)
    ]


def odd(tensors: list[torch.Tensor]) -> list[str]:
    """Say which outputs hold NaN or infinity or one value only: a model that computes nothing is not worth timing."""
    found = []
    for index, tensor in enumerate(tensors):
        if not tensor.is_floating_point() or not tensor.numel():
            continue
        bad = int((~torch.isfinite(tensor)).sum())
        if bad:
            found.append(f"output {index} of the eager model has {bad} of {tensor.numel()} values NaN or infinite")
        elif tensor.numel() > 1 and bool((tensor == tensor.flatten()[0]).all()):
            found.append(
                f"output {index} of the eager model is constant: every value is {float(tensor.flatten()[0]):g}"
            )
    return found
