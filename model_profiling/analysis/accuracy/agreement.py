"""Are outputs right? How far two sets differ, experiments and eager PyTorch, and what of that the dtype explains."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from model_profiling.base import files
from model_profiling.base.dtypes import Limit, dtype_of
from model_profiling.base.errors import InputError
from model_profiling.base.npy import read_npy, read_values
from model_profiling.runner.protocol import TensorInfo
from model_profiling.store.artifacts import Decibel, DtypeCost, ExportRecord, TensorFile
from model_profiling.store.run_directory import Manifest, Phase, RunDirectory, experiment_file

Verdict = Literal["agrees", "differs"]
Array = npt.NDArray[np.generic]
# What a runner writes and NumPy reads; bfloat16 and plain numbers are not compared.
_DTYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "bool")
# What rounding does in a dtype of which the export measured what it costs.
_ROUNDING_ELSE = Limit(5e-2, 30.0)
# A program of unknown origin, perhaps quantized, whose dtype's cost nobody measured.
_UNKNOWN = Limit(3e-1, 8.0)
# An output that is zero has no size of its own: what rounding leaves of numbers around 1, in fp32 and in fp16.
_ZERO = (1e-5, 1e-3)


def suspicious(arrays: Sequence[Array], whose: str = "") -> list[str]:
    """Name the outputs that hold NaN or infinity, and those whose values are all the same: not worth timing."""
    found = []
    for index, array in enumerate(arrays):
        if not np.issubdtype(array.dtype, np.floating):
            continue
        bad = int(np.sum(~np.isfinite(array)))
        if bad:
            found.append(f"output {index}{whose} has {bad} of {array.size} values NaN or infinite")
        elif array.size > 1 and np.ptp(array) == 0:
            found.append(f"output {index}{whose} is constant: all {array.size} values are {float(array.flat[0]):g}")
    return found


class Agreement(msgspec.Struct, frozen=True):
    """Outputs `left` against `right`: largest difference, cosine, signal to noise in decibel (None: exact).

    Of several outputs, each judged by itself, the numbers are of the worst. Outputs that hold NaN or infinity have no
    such numbers: then those that cannot be computed are None, too.
    """

    left: str
    right: str
    max_abs_error: float | None
    cosine: float | None
    sqnr_db: Decibel | None
    # The largest value of `right`: what a difference is to be measured by.
    max_abs_reference: float | None
    # As far as the dtype explains.
    verdict: Verdict
    # What the dtype alone reaches in eager PyTorch, where that was measured and is not exact.
    dtype_sqnr_db: Decibel | None = None
    # What is odd about the outputs of `left`: NaN, infinite, constant.
    remarks: list[str] = []
    # Which of several outputs the numbers are of: its name or number.
    output: str = ""
    # Whether it is something else than `right`, and not only worse.
    wrong: bool = False

    @property
    def error_of_reference(self) -> str:
        """`0.01 of 2.5`, of several outputs with which one, or why there is no such number."""
        if self.max_abs_error is None or self.max_abs_reference is None:
            return f"NaN or infinite values{self.in_output}"
        return f"{self.max_abs_error:.3g} of {self.max_abs_reference:.3g}{self.in_output}"

    @property
    def in_output(self) -> str:
        return f" in {self.output}" if self.output else ""


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
    names = export.output_names if export else []
    for before, after in manifest.compare_pairs:
        if outputs.get(before) and outputs.get(after):
            found.append(agreement_of(before, outputs[before], after, outputs[after], dtype, cost, names))
    return [agreement for agreement in found if agreement is not None]


def wrong_outputs(export: ExportRecord | None, found: Sequence[Agreement]) -> list[Agreement]:
    """Return the outputs that are not those of the eager model, unless the export knows that none can be compared."""
    known = export.verification if export is not None else None
    if export is None or (known is not None and known.status == "verified" and not known.verdict):
        return []
    return [each for each in found if each.right == "eager" and each.wrong]


def against_eager(
    name: str, outputs: list[Array], home: Path, export: ExportRecord | None, phase: Phase | None
) -> Agreement | None:
    """Return outputs compared with what eager PyTorch computed at export; None where either was not kept."""
    eager = expected_outputs(home, export) if phase is None else expected_logits(home, export, phase)
    if export is None or not eager or not outputs:
        return None
    skipped = export.verification.not_compared if export.verification is not None else []
    ours = without(skipped, outputs, eager) if phase is None else last_logits(outputs)
    return agreement_of(name, ours, "eager", eager, export.dtype, export.dtype_cost, export.output_names)


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
    kept = all(_is_kept(directory, name, export) for name in names)
    return [_expected(directory / name) for name in names] if kept else []


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
    left: str,
    ours: list[Array],
    right: str,
    theirs: list[Array],
    dtype: str,
    cost: DtypeCost | None = None,
    names: Sequence[str] = (),
) -> Agreement | None:
    """Compare two sets of outputs of a model of `dtype`, which alone costs `cost`, by the worst of them; None unless
    shapes are the same."""
    if not ours or [a.shape for a in ours] != [b.shape for b in theirs]:
        return None
    scale = max(float(np.max(np.abs(b.astype(np.float64)), initial=0.0, where=np.isfinite(b))) for b in theirs)
    costs = cost.outputs if cost is not None and len(cost.outputs) == len(ours) else [cost] * len(ours)
    known = names if len(names) == len(ours) else [""] * len(ours)
    titles = [name or f"output {index}" for index, name in enumerate(known)]
    found = [
        _of_output((left, a, right, b), (dtype, alone, scale), title if len(ours) > 1 else "")
        for a, b, alone, title in zip(ours, theirs, costs, titles, strict=True)
    ]
    return msgspec.structs.replace(max(found, key=_badness), remarks=suspicious(ours))


def without(skipped: Collection[int], ours: list[Array], theirs: list[Array]) -> list[Array]:
    """Return our outputs with theirs in the place of those that cannot be compared."""
    return [theirs[i] if i in skipped and i < len(theirs) else array for i, array in enumerate(ours)]


def _badness(found: Agreement) -> tuple[bool, bool, float]:
    differs = found.verdict == "differs"
    return found.wrong, differs, -found.sqnr_db if found.sqnr_db is not None else np.inf if differs else -np.inf


def _of_output(
    sides: tuple[str, Array, str, Array], explained: tuple[str, DtypeCost | None, float], title: str
) -> Agreement:
    """Compare one output; `explained` is its dtype, what that alone costs, and the largest value of all outputs."""
    left, ours, right, theirs = sides
    dtype, cost, scale = explained
    a, b = (array.ravel().astype(np.float64) for array in (ours, theirs))
    # Outputs may hold anything; what comes out is judged below.
    with np.errstate(all="ignore"):
        noise, signal = float(np.sum((a - b) ** 2)), float(np.sum(b**2))
        norm = float(np.linalg.norm(a) * np.linalg.norm(b))
        cosine = float(np.dot(a, b) / norm) if norm else 1.0
        error = float(np.max(np.abs(a - b), initial=0.0))
        reference = float(np.max(np.abs(b), initial=0.0))
        sqnr = 10 * float(np.log10(signal / noise)) if noise and signal else None
    agrees = error == 0 or (np.isfinite(error) and _within(error, reference, sqnr, dtype, cost, scale))
    # What the dtype costs has to be known, for what is worse than it to be wrong.
    judged = np.issubdtype(theirs.dtype, np.floating) and (cost is not None or not dtype_of(dtype).converts)
    far = sqnr is None or not np.isfinite(sqnr) or sqnr < dtype_of(dtype).numerics.floor_db
    return Agreement(
        left=left,
        right=right,
        max_abs_error=_finite(error),
        cosine=_finite(cosine),
        sqnr_db=_finite(sqnr),
        max_abs_reference=_finite(reference),
        verdict="agrees" if agrees else "differs",
        dtype_sqnr_db=cost.sqnr_db if cost else None,
        output=title,
        wrong=bool(not agrees and judged and far),
    )


def _within(
    error: float, reference: float, sqnr_db: float | None, dtype: str, cost: DtypeCost | None, scale: float
) -> bool:
    """Return whether an output differs by no more than its dtype explains; `scale` is the largest value of all."""
    known = dtype_of(dtype).numerics
    limit = known.rounding or (_UNKNOWN if cost is None else _ROUNDING_ELSE)
    most, least = limit.error * reference, limit.sqnr_db
    if not reference:
        most = _ZERO[dtype_of(dtype).halves] * max(1.0, scale)
    if cost is not None and cost.sqnr_db is not None:
        # The same dtype rounded in another order is a second sample of the same noise.
        most = max(most, known.room.error * cost.max_abs_error)
        least = min(least, cost.sqnr_db - known.room.noise_db)
    return error <= most and (sqnr_db is None or sqnr_db >= least)


def _finite(value: float | None) -> float | None:
    """Return None for NaN and infinity, which JSON does not have."""
    return value if value is not None and np.isfinite(value) else None
