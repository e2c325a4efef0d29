"""An export as one would type it: `sme2-kit export …` with all that decides what comes of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from model_profiling.artifacts import ExportRecord, RequestRecord
from model_profiling.export.request import ExportRequest
from model_profiling.models.options import LoadOptions


def typed(request: ExportRequest) -> list[str]:
    """The words of the command, without a place for its files; what is the default is left out, except the dtype."""
    options = request.options
    words = ["sme2-kit", "export", request.target or request.model, "--dtype", request.dtype]
    words += [word for shape in options.shapes for word in ("--input-shape", ",".join(map(str, shape)))]
    words += [word for key, value in options.settings for word in ("--set", f"{key}={value}")]
    words += [word for name in request.rewrites for word in ("--rewrite", name)]
    given = (
        ("--checkpoint", str(options.checkpoint or ""), ""),
        ("--seed", str(request.seed), "0"),
        ("--backend", request.backend, "xnnpack"),
        ("--memory-format", request.memory_format, "contiguous"),
        ("--delegation", request.delegation, "whole"),
    )
    return words + [word for flag, value, default in given if value != default for word in (flag, value)]


def recorded(record: ExportRecord, asked: RequestRecord) -> ExportRequest:
    """What was asked for, from what was recorded."""
    options = LoadOptions(
        tuple(tuple(shape) for shape in asked.shapes),
        tuple(asked.settings.items()),
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
    )


def repeated(record: ExportRecord, base: str) -> list[str] | None:
    """The command that makes a recorded export again when it is typed in the directory `base`.

    None where there is none: the model was in memory, its settings cannot be typed, or nobody recorded what was asked.
    """
    asked = record.request
    if asked is None or asked.origin == "memory" or not all(_typeable(value) for value in asked.settings.values()):
        return None
    request = recorded(record, asked)
    if asked.origin == "file":
        path, colon, attribute = (asked.target, "", "")
        if not path.endswith(".py"):
            path, colon, attribute = path.rpartition(":")
        request = replace(request, target=f"{_seen_from(base, asked, path)}{colon}{attribute}")
    if asked.checkpoint:
        moved = Path(_seen_from(base, asked, asked.checkpoint))
        request = replace(request, options=replace(request.options, checkpoint=moved))
    outdir = _seen_from(base, asked, asked.outdir)
    return typed(request) + ([] if outdir == f"out_{record.model}/artifacts" else ["--outdir", outdir])


def _typeable(value: Any) -> bool:
    """Whether `--set KEY=VALUE` gives exactly this: it makes whole numbers of digits, and text of all else."""
    if isinstance(value, str):
        return not value.isdecimal()
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _seen_from(base: str, asked: RequestRecord, path: str) -> str:
    """A path of the export as it must be written in `base`: as it was, below `base`, or in full."""
    if not base or base == asked.directory or Path(path).is_absolute():
        return path
    full = Path(asked.directory) / path
    return str(full.relative_to(base)) if full.is_relative_to(base) else str(full)
