"""Sample inputs and expected outputs: the model's tensors, flattened in the order the .pte takes and gives them."""

import io
from typing import Any

import numpy as np
import torch

from model_profiling.analysis.accuracy.agreement import Array
from model_profiling.base.errors import RunError
from model_profiling.formats.pte.program import TensorSpec
from model_profiling.store.artifacts import TensorFile
from model_profiling.upstream.captured_graphs import leaves, mapped

# What a model is called with: positional and keyword inputs.
Call = tuple[tuple[Any, ...], dict[str, Any]]
_NUMPY = (torch.float16, torch.float32, torch.float64)


def as_dtype(value: Any, dtype: torch.dtype) -> Any:
    """Convert the floating-point tensors of nested inputs; token ids, masks and plain numbers stay as they are."""

    def convert(leaf: Any) -> Any:
        return leaf.to(dtype) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

    return mapped(convert, value)


def as_channels_last(value: Any) -> Any:
    """Store the 4-D tensors of nested inputs with their channels last; their logical shape stays NCHW."""

    def convert(leaf: Any) -> Any:
        four = isinstance(leaf, torch.Tensor) and leaf.dim() == 4
        return leaf.contiguous(memory_format=torch.channels_last) if four else leaf

    return mapped(convert, value)


def copied(value: Any) -> Any:
    """Copy nested inputs with their tensors: a model may write into what it is given."""
    return mapped(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, value)


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Flatten nested values to their tensors, in pytree order."""
    return [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def other_leaves(value: Any) -> list[str]:
    """Name the types of the leaves that are no tensors, which a runner that passes tensors cannot pass."""
    return [type(leaf).__name__ for leaf in leaves(value) if not isinstance(leaf, torch.Tensor)]


def arrays_of(tensors: list[torch.Tensor]) -> list[Array]:
    """Return the tensors as NumPy's, in logical order (NCHW) and C-contiguous, whatever their memory format."""
    return [_array(tensor) for tensor in tensors]


def _array(tensor: torch.Tensor) -> Array:
    # NumPy has neither bfloat16 nor eight bits; float32 holds all their values.
    wide = tensor.detach().float() if tensor.is_floating_point() and tensor.dtype not in _NUMPY else tensor.detach()
    try:
        array: Array = np.ascontiguousarray(wide.numpy())
    except TypeError:
        raise RunError(
            f"a tensor of dtype {tensor.dtype} cannot be stored as .npy",
            "Let the model take and return one of NumPy's own dtypes.",
        ) from None
    return array.reshape(tuple(tensor.shape))


def npy_bytes(tensor: torch.Tensor) -> bytes:
    """Encode a tensor as .npy."""
    file = io.BytesIO()
    np.save(file, _array(tensor), allow_pickle=False)
    return file.getvalue()


def describe(
    tensors: list[torch.Tensor], folder: str, prefix: str, specs: tuple[TensorSpec | None, ...]
) -> list[TensorFile]:
    """Return the tensors' records; `specs` are those of the program, which has None for what is not a tensor."""
    orders = [list(spec.dim_order) for spec in specs if spec is not None]
    # A program that takes or gives another number of tensors than the model does not say which is which.
    known = orders if len(orders) == len(tensors) else [[] for _ in tensors]
    return [
        TensorFile(list(tensor.shape), dtype_name(tensor), f"{folder}/{prefix}_{index}.npy", known[index])
        for index, tensor in enumerate(tensors)
    ]


def dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def as_recorded(tensor: torch.Tensor, entry: TensorFile) -> torch.Tensor:
    """Return a sample in the layout in which the program takes it."""
    last = entry.layout == "channels_last"
    return tensor.contiguous(memory_format=torch.channels_last) if last else tensor
