"""How much of a model's accuracy its dtype costs, before any export: so that the program is not blamed for it."""

from typing import Any

import torch

from model_profiling.analysis.accuracy.agreement import agreement_of
from model_profiling.base.dtypes import FP32, dtype_of
from model_profiling.export.beside import beside, is_left_out
from model_profiling.export.prepare import samples
from model_profiling.models.state import restored_state
from model_profiling.store.artifacts import DtypeCost

_UNKNOWN = "what the dtype alone costs is not known: eager PyTorch does not run in it"


def dtype_cost(module: torch.nn.Module, call: Any, reference: list[torch.Tensor]) -> DtypeCost | None:
    """Run the model of another dtype eagerly and hold it against the fp32 outputs; None if it gives NaN or infinity, or
    if PyTorch has no kernel for it."""
    inputs, keywords = samples.copied(call)
    outputs = None
    with beside(_UNKNOWN), restored_state(module), torch.no_grad():
        outputs = [tensor.clone() for tensor in samples.tensors_of(module(*inputs, **keywords))]
    if outputs is None:
        return None
    found = agreement_of("dtype", samples.arrays_of(outputs), "eager", samples.arrays_of(reference), FP32)
    if found is None or found.max_abs_error is None or found.cosine is None:
        return None
    return DtypeCost(found.max_abs_error, found.cosine, found.sqnr_db)


def remark(cost: DtypeCost | None, dtype: str, weights: str) -> list[str]:
    """Return what the user should know of it, if anything."""
    least = dtype_of(dtype).numerics.least_sqnr_db
    if least is None:
        return []
    if cost is None:
        return [] if is_left_out(_UNKNOWN) else [f"in {dtype} eager PyTorch itself gives NaN or infinite values"]
    if cost.sqnr_db is None or cost.sqnr_db >= least:
        return []
    random = "; its weights are random, trained ones usually lose less" if weights == "random" else ""
    return [f"{dtype} alone gives {cost.sqnr_db:.1f} dB SQNR against the fp32 outputs{random}"]
