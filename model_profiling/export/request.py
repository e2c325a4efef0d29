"""What is asked of an export and what comes of it; knows nothing of torch."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from model_profiling.base.dtypes import CALIBRATED, FP32, dtype_of
from model_profiling.base.errors import InputError
from model_profiling.base.places import working_directory
from model_profiling.export import choices
from model_profiling.models.options import InputSpec, LoadOptions, setting
from model_profiling.store.artifacts import ExportPaths, ExportRecord, RequestRecord


@dataclass(frozen=True)
class ExportRequest:
    """What the user asked for. `target` is where the model comes from when that is not its name: `file.py:Class`."""

    model: str
    outdir: Path
    dtype: str = FP32
    backend: str = "xnnpack"
    memory_format: str = "contiguous"
    seed: int = 0
    save_graph: bool = False
    loud: bool = False
    target: str = ""
    options: LoadOptions = field(default_factory=LoadOptions)
    # Changes to the graph that keep its meaning (see rewrites/), and whether each operator becomes its own delegate.
    rewrites: tuple[str, ...] = ()
    delegation: str = "whole"
    # channels_last: inputs and outputs in that layout wherever it saves a layout change (see io_layout.py).
    io_layout: str = "contiguous"
    # Layers that stay in fp32 (see kept_layers.py), and a folder of samples that set the ranges of int8.
    keep_fp32: tuple[str, ...] = ()
    calibration: Path | None = None
    # Whether to execute the program once before it is called an export (see verification.py).
    verify: bool = True
    # Lower also what rewrites would give, so that the advice of a run knows what they add and remove.
    candidates: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "rewrites", tuple(sorted({choices.rewrite_name(name) for name in self.rewrites})))
        object.__setattr__(self, "keep_fp32", tuple(sorted(set(self.keep_fp32))))

    def check(self) -> None:
        """Refuse what no export can do; the command line's own choices are the same."""
        for what, value, allowed in (
            ("dtype", self.dtype, choices.DTYPES),
            ("backend", self.backend, choices.BACKENDS),
            ("memory format", self.memory_format, choices.MEMORY_FORMATS),
            ("io layout", self.io_layout, choices.IO_LAYOUTS),
            ("delegation", self.delegation, choices.DELEGATIONS),
            *(("rewrite", rewrite, choices.REWRITES) for rewrite in self.rewrites),
        ):
            if value not in allowed:
                raise InputError(f"there is no {what} {value!r}", f"Use one of {', '.join(allowed)}.")
        if self.keep_fp32 and not dtype_of(self.dtype).converts:
            raise InputError("all layers are in fp32 already", "Give --keep-fp32 together with another --dtype.")
        if self.calibration is not None and not dtype_of(self.dtype).calibrated:
            hint = f"Give --calibration together with --dtype {' or '.join(CALIBRATED)}."
            raise InputError(f"{self.dtype} is not calibrated", hint)
        if self.calibration is not None and not self.calibration.is_dir():
            raise InputError(f"there is no folder {self.calibration} to calibrate with", "Give a folder of .npy files.")

    @property
    def paths(self) -> ExportPaths:
        return ExportPaths.for_export(self.outdir, self.model, self.backend, self.dtype)

    def record(self, origin: Literal["registry", "file", "memory"]) -> RequestRecord:
        """What the export record does not say otherwise, so that the same can be asked again."""
        options = self.options
        plain = all(spec == InputSpec(spec.shape) and spec.shape for spec in options.inputs)
        return RequestRecord(
            origin=origin,
            target=self.target or self.model,
            directory=working_directory(),
            outdir=str(self.outdir),
            settings={key: _plain(value) for key, value in options.settings},
            shapes=[list(spec.shape) for spec in options.inputs] if plain else [],
            checkpoint=str(options.checkpoint or ""),
            rewrites=list(self.rewrites),
            delegation=self.delegation,
            inputs=[] if plain else [str(spec) for spec in options.inputs],
            calibration=str(self.calibration or ""),
        )


def _plain(value: Any) -> Any:
    """A setting as JSON can hold it; a value that is more than a number or a text is not taken for one."""
    held = isinstance(value, (int, str)) or (isinstance(value, float) and math.isfinite(value))
    return value if held else {"python": repr(value)}


@dataclass(frozen=True)
class Unreadable:
    """A recorded setting that Python has no literal for."""

    text: str


def unplain(value: Any) -> Any:
    """The setting of a record again."""
    if not isinstance(value, dict):
        return value
    text = str(value.get("python"))
    read = setting(text)
    return Unreadable(text) if isinstance(read, str) else read


@dataclass(frozen=True)
class ExportResult:
    """What is now on disk."""

    paths: ExportPaths
    record: ExportRecord
