"""Sample inputs and expected outputs: the model's tensors, flattened in the order the .pte takes and gives them.

And what a dtype alone costs of their accuracy, before any export: the program is not blamed for it.
"""

import io
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import torch

from model_profiling.analysis.accuracy.agreement import Array, agreement_of
from model_profiling.base.dtypes import FP32, dtype_of
from model_profiling.base.errors import RunError
from model_profiling.export.beside import beside, is_left_out
from model_profiling.formats.pte import TensorSpec
from model_profiling.models.loading import LoadedModel
from model_profiling.models.state import own_inputs, restored_state
from model_profiling.store.artifacts import DtypeCost, TensorFile
from model_profiling.upstream.captured_graphs import Call, mapped_tensors, named_leaves, tensors_of

_NUMPY = (torch.float16, torch.float32, torch.float64)
# What rounding changes of a number in fp32, with some room.
_LAST_DIGITS = 1e-6


def as_dtype(value: Any, dtype: torch.dtype) -> Any:
    """Convert the floating-point tensors of nested inputs; token ids, masks and plain numbers stay as they are."""
    return mapped_tensors(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, value)


def shuffled(value: Any) -> Any:
    """Return other inputs of the same kind: values in another order, floats smaller; masks and single numbers stay."""
    generator = torch.Generator().manual_seed(1)

    def change(leaf: torch.Tensor) -> torch.Tensor:
        if leaf.numel() < 2 or leaf.dtype == torch.bool:
            return leaf
        mixed = leaf.flatten()[torch.randperm(leaf.numel(), generator=generator)].reshape(leaf.shape)
        if leaf.is_floating_point():
            factors = torch.rand(leaf.shape, generator=generator).to(leaf.dtype) / 2 + 0.5
            mixed = mixed * factors if leaf.any() else factors
        return torch.empty_like(leaf).copy_(mixed)

    return mapped_tensors(change, value)


def answered(result: Any) -> tuple[list[torch.Tensor], list[str]]:
    """Return the tensors of what a model answers, and their names in dicts and dataclasses."""
    pairs = [pair for pair in zip(*named_leaves(result), strict=True) if isinstance(pair[0], torch.Tensor)]
    return [leaf.clone() for leaf, _ in pairs], [name for _, name in pairs]


def run_eagerly(module: torch.nn.Module, call: Call) -> list[torch.Tensor]:
    """Return the tensors that a model answers to inputs, both of which stay as they are."""
    inputs, keywords = own_inputs(call)
    with restored_state(module), torch.no_grad():
        return [tensor.clone() for tensor in tensors_of(module(*inputs, **keywords))]


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
    tensors: list[torch.Tensor],
    folder: str,
    prefix: str,
    specs: tuple[TensorSpec | None, ...],
    names: Sequence[str] = (),
) -> list[TensorFile]:
    """Return the tensors' records; `specs` are those of the program, which has None for what is not a tensor."""
    orders = [list(spec.dim_order) for spec in specs if spec is not None]
    # A program that takes or gives another number of tensors than the model does not say which is which.
    known = orders if len(orders) == len(tensors) else [[] for _ in tensors]
    return [
        TensorFile(list(t.shape), dtype_name(t), f"{folder}/{prefix}_{i}.npy", known[i], names[i] if names else "")
        for i, t in enumerate(tensors)
    ]


def dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def not_comparable(model: LoadedModel) -> dict[int, str]:
    """Return which of a model's outputs cannot be compared, and why: they may differ from one execution to the next, or
    with the last digits of its inputs."""

    def outputs(change: float) -> list[np.ndarray[Any, Any]]:
        call = as_dtype(own_inputs(model.call), torch.float32)
        for tensor in tensors_of(call):
            if tensor.is_floating_point() and change:
                noise = torch.empty_like(tensor).uniform_(-change, change, generator=torch.Generator().manual_seed(0))
                tensor.mul_(1 + noise)
        return arrays_of(run_eagerly(model.module, call))

    def changed(others: list[np.ndarray[Any, Any]]) -> Iterator[int]:
        for index, (first, other) in enumerate(zip(usual, others, strict=True)):
            found = agreement_of("other", [other], "eager", [first], FP32)
            if found is None or found.verdict == "differs":
                yield index

    usual = outputs(0.0)
    nearby = dict.fromkeys(changed(outputs(_LAST_DIGITS)), "eager's changes as much with the last digits of the inputs")
    return nearby | dict.fromkeys(
        changed(outputs(0.0)), "two executions of the eager model differ, too: it draws random numbers"
    )


_UNKNOWN = "what the dtype alone costs is not known: eager PyTorch does not run in it"


def dtype_cost(module: torch.nn.Module, call: Any, reference: list[torch.Tensor]) -> DtypeCost | None:
    """Run the model of another dtype eagerly and hold it against the fp32 outputs; None if it gives NaN or infinity, or
    if PyTorch has no kernel for it."""
    outputs = None
    with beside(_UNKNOWN):
        outputs = run_eagerly(module, call)
    if outputs is None:
        return None
    each = [_cost(*pair) for pair in zip(arrays_of(outputs), arrays_of(reference), strict=True)]
    known = [cost for cost in each if cost is not None]
    worst = min(known, key=lambda cost: np.inf if cost.sqnr_db is None else cost.sqnr_db, default=None)
    return worst and msgspec.structs.replace(worst, outputs=each if len(each) > 1 else [])


def _cost(ours: Array, theirs: Array) -> DtypeCost | None:
    found = agreement_of("dtype", [ours], "eager", [theirs], FP32)
    if found is None or found.max_abs_error is None or found.cosine is None:
        return None
    return DtypeCost(found.max_abs_error, found.cosine, found.sqnr_db)


def remark(cost: DtypeCost | None, dtype: str, weights: str) -> list[str]:
    """Return what the user should know of it, if anything."""
    least = dtype_of(dtype).numerics.least_sqnr_db
    if least is None:
        return []
    if cost is None or None in cost.outputs:
        return [] if is_left_out(_UNKNOWN) else [f"in {dtype} eager PyTorch itself gives NaN or infinite values"]
    if cost.sqnr_db is None or cost.sqnr_db >= least:
        return []
    random = "; its weights are random, trained ones usually lose less" if weights == "random" else ""
    return [f"{dtype} alone gives {cost.sqnr_db:.1f} dB SQNR against the fp32 outputs{random}"]
