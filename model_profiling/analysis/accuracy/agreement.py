"""How far two sets of outputs differ: experiments against each other and against eager PyTorch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from model_profiling.analysis.accuracy.correctness import judge, suspicious
from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.base.npy import read_npy, read_values
from model_profiling.runner.protocol import TensorInfo
from model_profiling.store.artifacts import Decibel, DtypeCost, ExportRecord, TensorFile
from model_profiling.store.run_directory import Manifest, Phase, RunDirectory, experiment_file

Array = npt.NDArray[np.generic]
# What a runner writes and NumPy reads; bfloat16 and plain numbers are not compared.
_DTYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "bool")


class Agreement(msgspec.Struct, frozen=True):
    """Outputs `left` against `right`: largest difference, cosine, signal to noise in decibel (None: exact).

    Outputs that hold NaN or infinity have no such numbers: then those that cannot be computed are None, too.
    """

    left: str
    right: str
    max_abs_error: float | None
    cosine: float | None
    sqnr_db: Decibel | None
    # The largest value of `right`: what a difference is to be measured by.
    max_abs_reference: float | None
    # As far as the dtype explains.
    verdict: Literal["agrees", "differs"]
    # What the dtype alone reaches in eager PyTorch, where that was measured and is not exact.
    dtype_sqnr_db: Decibel | None = None
    # What is odd about the outputs of `left`: NaN, infinite, constant.
    remarks: list[str] = []

    @property
    def error_of_reference(self) -> str:
        """`0.01 of 2.5`, or why there is no such number."""
        if self.max_abs_error is None or self.max_abs_reference is None:
            return "NaN or infinite values"
        return f"{self.max_abs_error:.3g} of {self.max_abs_reference:.3g}"


def agreements(directory: RunDirectory, manifest: Manifest) -> list[Agreement]:
    """Return each experiment against eager, and each compared pair against each other, where outputs were kept."""
    outputs = {
        name: outputs_of(directory, manifest, name) for name, r in manifest.experiments.items() if r.status == "ok"
    }
    home, export, dtype = Path(manifest.model.path).parent, manifest.model.export, manifest.model.roughest_dtype
    cost = export.dtype_cost if export else None
    found = [
        against_eager(name, arrays, home, export, manifest.experiments[name].phase) for name, arrays in outputs.items()
    ]
    for before, after in manifest.compare_pairs:
        if outputs.get(before) and outputs.get(after):
            found.append(agreement_of(before, outputs[before], after, outputs[after], dtype, cost))
    return [agreement for agreement in found if agreement is not None]


def against_eager(
    name: str, outputs: list[Array], home: Path, export: ExportRecord | None, phase: Phase | None
) -> Agreement | None:
    """Return outputs held against what eager PyTorch computed at export; None where either was not kept."""
    eager = expected_outputs(home, export) if phase is None else expected_logits(home, export, phase)
    if export is None or not eager or not outputs:
        return None
    ours = outputs if phase is None else last_logits(outputs)
    return agreement_of(name, ours, "eager", eager, export.dtype, export.dtype_cost)


def outputs_of(directory: RunDirectory, manifest: Manifest, name: str) -> list[Array]:
    """Return the outputs an experiment left behind; empty if it left none (a foreign runner does not)."""
    record = manifest.experiments[name]
    base = directory.experiment(name) / experiment_file(manifest.model.stem, name, record.threads, "_output")
    return read_outputs(base, record.outputs)


def read_outputs(base: Path, tensors: Sequence[TensorInfo | TensorFile]) -> list[Array]:
    """Return `<base>-<index>.bin` of each tensor; empty unless all are there and of the size they should be."""
    arrays: list[Array] = []
    for index, tensor in enumerate(tensors):
        path = base.with_name(f"{base.name}-{index}.bin")
        if not files.is_file(path) or tensor.dtype not in _DTYPES:
            return []
        try:
            arrays.append(read_values(path, tensor.dtype, tensor.shape))
        except (OSError, ValueError):
            return []
    return arrays


def expected_outputs(directory: Path, export: ExportRecord | None) -> list[Array]:
    """Return what eager PyTorch computed at export; empty if it was not kept."""
    names = [tensor.file for tensor in export.outputs] if export else []
    return [_expected(directory / name) for name in names] if all(_is_kept(directory, n, export) for n in names) else []


def expected_logits(directory: Path, export: ExportRecord | None, phase: Phase) -> list[Array]:
    """Return what eager PyTorch answered at export to the last token of a phase; empty if it was not asked."""
    logits = export.sequence.logits if export is not None and export.sequence is not None else {}
    file = logits.get(str(phase.last))
    if file is None or not _is_kept(directory, file, export):
        return []
    return [_expected(directory / file).ravel()]


def _is_kept(directory: Path, name: str, export: ExportRecord | None) -> bool:
    """Return whether a file of an export is there as it was exported: what another export put there is of no use."""
    path, known = directory / name, export.files.get(name) if export is not None else None
    return files.is_file(path) and known in (None, files.sha256(path))


def last_logits(outputs: list[Array]) -> list[Array]:
    """Return the logits of the last token: [vocabulary] of [1, vocabulary] or of [1, tokens, vocabulary]."""
    first = outputs[0]
    return [first.reshape(-1, first.shape[-1])[-1]] if first.ndim else outputs[:1]


def _expected(path: Path) -> Array:
    array: Array = read_npy(path, "expected output", "Export the model again.")
    if array.dtype.kind not in "biuf":
        raise InputError(f"expected output {path} contains {array.dtype}, not numbers", "Export the model again.")
    return array


def agreement_of(
    left: str, ours: list[Array], right: str, theirs: list[Array], dtype: str, cost: DtypeCost | None = None
) -> Agreement | None:
    """Compare two sets of outputs of a model of `dtype`, which alone costs `cost`; None unless shapes are the same."""
    if [a.shape for a in ours] != [b.shape for b in theirs]:
        return None
    a = np.concatenate([array.ravel().astype(np.float64) for array in ours])
    b = np.concatenate([array.ravel().astype(np.float64) for array in theirs])
    # Outputs may hold anything; what comes out is judged below.
    with np.errstate(all="ignore"):
        noise, signal = float(np.sum((a - b) ** 2)), float(np.sum(b**2))
        norm = float(np.linalg.norm(a) * np.linalg.norm(b))
        cosine = float(np.dot(a, b) / norm) if norm else 1.0
        error = float(np.max(np.abs(a - b), initial=0.0))
        reference = float(np.max(np.abs(b), initial=0.0))
        sqnr = 10 * float(np.log10(signal / noise)) if noise and signal else None
    return Agreement(
        left=left,
        right=right,
        max_abs_error=_finite(error),
        cosine=_finite(cosine),
        sqnr_db=_finite(sqnr),
        max_abs_reference=_finite(reference),
        verdict=judge(error, reference, sqnr, dtype, cost),
        dtype_sqnr_db=cost.sqnr_db if cost else None,
        remarks=suspicious(ours),
    )


def _finite(value: float | None) -> float | None:
    """Return None for NaN and infinity, which JSON does not have."""
    return value if value is not None and np.isfinite(value) else None
