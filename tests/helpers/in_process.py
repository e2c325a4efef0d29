"""Does an exported program answer as the eager model does? Asked of ExecuTorch's own runtime, in this process."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from model_profiling.analysis.accuracy.agreement import Agreement, agreement_of
from model_profiling.base.errors import GateError
from model_profiling.base.npy import read_npy
from model_profiling.export.request import ExportResult
from model_profiling.store.artifacts import ExportPaths, ExportRecord, TensorFile


def run_program(paths: ExportPaths, record: ExportRecord) -> list[torch.Tensor]:
    """Run a .pte on its sample inputs."""
    from executorch.runtime import Runtime

    inputs = [_as_recorded(torch.from_numpy(_sample(paths, entry)), entry) for entry in record.inputs]
    method = Runtime.get().load_program(Path(paths.pte)).load_method("forward")
    assert method is not None
    return list(method.execute(inputs))


def _as_recorded(tensor: torch.Tensor, entry: TensorFile) -> torch.Tensor:
    """A sample in the layout in which the program takes it."""
    last = entry.layout == "channels_last"
    return tensor.contiguous(memory_format=torch.channels_last) if last else tensor


def _sample(paths: ExportPaths, entry: TensorFile) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = read_npy(paths.directory / entry.file, "sample", "Export the model again.")
    return found


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
