"""Does an exported program answer as the eager model does? Asked of ExecuTorch's own runtime, in this process."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from model_profiling.analysis.accuracy.agreement import Agreement, agreement_of
from model_profiling.base.dtypes import FP32
from model_profiling.base.errors import GateError
from model_profiling.base.npy import read_npy
from model_profiling.export.prepare import samples
from model_profiling.export.prepare.samples import as_recorded
from model_profiling.export.request import ExportResult
from model_profiling.models.loading import LoadedModel
from model_profiling.models.state import restored_state
from model_profiling.store.artifacts import ExportPaths, ExportRecord, TensorFile

# What rounding changes of a number in fp32, with some room.
_LAST_DIGITS = 1e-6


def run_program(paths: ExportPaths, record: ExportRecord) -> list[torch.Tensor]:
    """Run a .pte on its sample inputs."""
    from executorch.runtime import Runtime

    inputs = [as_recorded(torch.from_numpy(_sample(paths, entry)), entry) for entry in record.inputs]
    method = Runtime.get().load_program(Path(paths.pte)).load_method("forward")
    assert method is not None
    return list(method.execute(inputs))


def _sample(paths: ExportPaths, entry: TensorFile) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = read_npy(paths.directory / entry.file, "sample", "Export the model again.")
    return found


def not_comparable(model: LoadedModel) -> str:
    """Return why a model's outputs cannot be compared, '' if they can: they may differ from one execution to the next,
    or with the last digits of its inputs."""

    def outputs(change: float) -> list[np.ndarray[Any, Any]]:
        call = samples.as_dtype(samples.copied((model.inputs, model.keyword_inputs)), torch.float32)
        for tensor in samples.tensors_of(call):
            if tensor.is_floating_point() and change:
                noise = torch.empty_like(tensor).uniform_(-change, change, generator=torch.Generator().manual_seed(0))
                tensor.mul_(1 + noise)
        with restored_state(model.module), torch.no_grad():
            return samples.arrays_of([t.clone() for t in samples.tensors_of(model.module(*call[0], **call[1]))])

    first = outputs(0.0)
    again = agreement_of("again", outputs(0.0), "eager", first, FP32)
    if again is None or again.verdict == "differs":
        return "two executions of the eager model differ, too: it draws random numbers"
    nearby = agreement_of("nearby", outputs(_LAST_DIGITS), "eager", first, FP32)
    if nearby is None or nearby.verdict == "differs":
        return "the eager model's outputs change as much with the last digits of its inputs"
    return ""


def verify(result: ExportResult) -> Agreement:
    """Hold a program's outputs against the eager model's; outputs that are too far off are an error."""
    paths, record = result.paths, result.record
    ours = [tensor.contiguous().numpy() for tensor in run_program(paths, record)]
    theirs = [_sample(paths, entry) for entry in record.outputs]
    agreement = agreement_of("program", ours, "eager", theirs, record.dtype, record.dtype_cost)
    if agreement is None:
        raise GateError("the program's outputs have other shapes than the eager model's", "Export the model again.")
    if agreement.verdict == "differs" or agreement.remarks:
        sqnr = f"{agreement.sqnr_db:.1f} dB" if agreement.sqnr_db is not None else "none"
        odd = "; ".join(agreement.remarks)
        raise GateError(
            f"{paths.pte.name} does not match the eager model: max error "
            f"{agreement.error_of_reference}, SQNR {sqnr}{f'; {odd}' if odd else ''}",
            "Try --dtype fp32 first: if that matches, the error comes from the dtype.",
        )
    return agreement
