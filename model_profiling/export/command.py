"""An export as one would type it: `sme2-kit export …` with all that decides what comes of it."""

from dataclasses import replace
from pathlib import Path

from model_profiling.export.request import ExportRequest, unplain
from model_profiling.models.options import InputSpec, LoadOptions, input_spec, spelled
from model_profiling.store.artifacts import ExportRecord, RequestRecord


def typed(request: ExportRequest) -> list[str]:
    """The words of the command, without a place for its files; what is the default is left out, except the dtype."""
    options = request.options
    words = ["sme2-kit", "export", request.target or request.model, "--dtype", request.dtype]
    for spec in options.inputs:
        words += ["--input-shape" if spec == InputSpec(spec.shape) else "--input", str(spec)]
    words += [word for key, value in options.settings for word in ("--set", f"{key}={spelled(value) or value}")]
    words += [word for name in request.rewrites for word in ("--rewrite", name)]
    words += [word for name in request.keep_fp32 for word in ("--keep-fp32", name)]
    given = (
        ("--checkpoint", str(options.checkpoint or ""), ""),
        ("--calibration", str(request.calibration or ""), ""),
        ("--seed", str(request.seed), "0"),
        ("--backend", request.backend, "xnnpack"),
        ("--memory-format", request.memory_format, "contiguous"),
        ("--io-layout", request.io_layout, "contiguous"),
        ("--delegation", request.delegation, "whole"),
    )
    return words + [word for flag, value, default in given if value != default for word in (flag, value)]


def recorded(record: ExportRecord, asked: RequestRecord) -> ExportRequest:
    """What was asked for, from what was recorded."""
    options = LoadOptions(
        tuple(map(input_spec, asked.inputs or asked.shapes)),
        tuple((key, unplain(value)) for key, value in asked.settings.items()),
        Path(asked.checkpoint) if asked.checkpoint else None,
    )
    return ExportRequest(
        record.model,
        Path(asked.outdir),
        record.dtype,
        record.backend,
        record.memory_format,
        record.seed,
        target=asked.target,
        options=options,
        rewrites=tuple(asked.rewrites),
        delegation=asked.delegation,
        io_layout=record.io_layout,
        keep_fp32=tuple(record.keep_fp32),
        calibration=Path(asked.calibration) if asked.calibration else None,
    )


def repeated(record: ExportRecord, base: str) -> list[str] | None:
    """The command that makes a recorded export again when it is typed in the directory `base`.

    None where there is none: the model was in memory, its settings cannot be typed, or nobody recorded what was asked.
    """
    asked = record.request
    if asked is None or asked.origin == "memory":
        return None
    request = recorded(record, asked)
    if any(spelled(value) is None for _, value in request.options.settings):
        return None
    if asked.origin == "file":
        path, colon, attribute = (asked.target, "", "")
        if not path.endswith(".py"):
            path, colon, attribute = path.rpartition(":")
        request = replace(request, target=f"{_seen_from(base, asked, path)}{colon}{attribute}")
    if asked.checkpoint:
        moved = Path(_seen_from(base, asked, asked.checkpoint))
        request = replace(request, options=replace(request.options, checkpoint=moved))
    if asked.calibration:
        request = replace(request, calibration=Path(_seen_from(base, asked, asked.calibration)))
    outdir = _seen_from(base, asked, asked.outdir)
    return typed(request) + ([] if outdir == f"out_{record.model}/artifacts" else ["--outdir", outdir])


def _seen_from(base: str, asked: RequestRecord, path: str) -> str:
    """A path of the export as it must be written in `base`: as it was, below `base`, or in full."""
    if not base or base == asked.directory or Path(path).is_absolute():
        return path
    full = Path(asked.directory) / path
    return str(full.relative_to(base)) if full.is_relative_to(base) else str(full)
