"""What is asked of an export, the command that asks for it, and what comes of it; knows nothing of torch."""

import math
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from model_profiling.base.directories import working_directory
from model_profiling.export.options import DECIDING, ExportOptions
from model_profiling.models.options import InputSpec, LoadOptions, input_spec, literal_text, setting
from model_profiling.store.artifacts import ExportPaths, ExportRecord, RequestRecord

if TYPE_CHECKING:
    from model_profiling.analysis.compare.comparison import MetricChange


@dataclass(frozen=True)
class ExportRequest(ExportOptions):
    """What the user asked for. `target` is where the model comes from when that is not its name: `file.py:Class`."""

    loud: bool = False
    target: str = ""
    options: LoadOptions = field(default_factory=LoadOptions)
    # Ends the names of its files, where another export of the model lies beside it.
    suffix: str = ""
    # Whether to go on with what was tried, and runs, if the program is wrong; the record says so.
    mend: bool = False

    @property
    def paths(self) -> ExportPaths:
        return ExportPaths.for_export(self.outdir, self.model, self.backend, f"{self.dtype}{self.suffix}")

    def record(self, origin: Literal["registry", "file", "memory"]) -> RequestRecord:
        """Return what the export record does not say otherwise, so that the same can be asked again."""
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
            inputs=[] if plain else [str(spec) for spec in options.inputs],
            options=self.recorded("options"),
            **self.recorded("request"),
        )


def _plain(value: Any) -> Any:
    """Return a setting as JSON can hold it; a value that is more than a number or a text is not taken for one."""
    held = isinstance(value, (int, str)) or (isinstance(value, float) and math.isfinite(value))
    return value if held else {"python": repr(value)}


@dataclass(frozen=True)
class Unreadable:
    """A recorded setting that Python has no literal for."""

    text: str


def unplain(value: Any) -> Any:
    """Return the setting of a record again."""
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
    # What the user's metric says of it and of eager PyTorch, if that was asked for.
    metric: "MetricChange | None" = None


def typed(request: ExportRequest) -> list[str]:
    """Return the words of the command without a place for its files, and without defaults but the dtype."""
    options = request.options
    words = ["sme2-kit", "export", request.target or request.model, "--dtype", request.dtype]
    for spec in options.inputs:
        words += ["--input", str(spec)]
    words += [word for key, value in options.settings for word in ("--set", f"{key}={literal_text(value) or value}")]
    words += ["--checkpoint", str(options.checkpoint)] if options.checkpoint else []
    chosen = [(row, getattr(request, row.name)) for row in DECIDING if row.name != "dtype"]
    return words + [word for row, value in chosen if value != row.default for word in row.words(value)]


def arguments(request: ExportRequest, beside: ExportRequest | None = None) -> str:
    """Return a request's options as Python takes them: the dtype, and what is not the default or `beside`'s."""
    given = {row.name: row.plain(getattr(request, row.name)) for row in DECIDING}
    usual = {row.name: row.plain(row.default if beside is None else getattr(beside, row.name)) for row in DECIDING}
    usual |= {} if beside is not None else {"dtype": None}
    return ", ".join(f"{name}={value!r}" for name, value in given.items() if value != usual[name])


def differing(request: ExportRequest, other: ExportRequest) -> str:
    """Return the flags of a request that another one does not have."""
    rows = [row for row in DECIDING if getattr(request, row.name) != getattr(other, row.name)]
    return shlex.join(word for row in rows for word in row.words(getattr(request, row.name)))


def recorded(record: ExportRecord, asked: RequestRecord) -> ExportRequest:
    """Return what was asked for, from what was recorded."""
    options = LoadOptions(
        tuple(map(input_spec, asked.inputs or asked.shapes)),
        tuple((key, unplain(value)) for key, value in asked.settings.items()),
        Path(asked.checkpoint) if asked.checkpoint else None,
    )
    return ExportRequest(
        record.model, Path(asked.outdir), target=asked.target, options=options, **recorded_options(record, asked)
    )


def recorded_options(record: ExportRecord, asked: RequestRecord | None) -> dict[str, Any]:
    """Return the options that were asked for; without a record of them those of the export's record."""
    found: dict[str, Any] = {}
    for row in DECIDING:
        if row.recorded == "export":
            found[row.name] = getattr(record, row.name)
        elif asked is not None and row.recorded == "request":
            found[row.name] = getattr(asked, row.name)
        elif asked is not None and row.name in asked.options:
            found[row.name] = asked.options[row.name]
    return found


def typable(request: ExportRequest, origin: str) -> str:
    """Return the command that asks for it; '' where none does: the model was in memory, or its settings are no text."""
    return shlex.join(typed(request)) if origin != "memory" and _has_literals(request) else ""


def _has_literals(request: ExportRequest) -> bool:
    return all(literal_text(value) is not None for _, value in request.options.settings)


def repeated(record: ExportRecord, base: str) -> list[str] | None:
    """Return the command that makes a recorded export again when it is typed in the directory `base`.

    None where there is none: the model was in memory, its settings cannot be typed, or nobody recorded what was asked.
    """
    asked = record.request
    if asked is None or asked.origin == "memory":
        return None
    request = recorded_in(record, asked, base)
    if not _has_literals(request):
        return None
    outdir = _seen_from(base, asked, asked.outdir)
    return typed(request) + ([] if outdir == f"out_{record.model}/artifacts" else ["--out", outdir])


def recorded_in(record: ExportRecord, asked: RequestRecord, base: str) -> ExportRequest:
    """Return what was asked for, with its paths as they are written in the directory `base`."""
    request = recorded(record, asked)
    if asked.origin == "file":
        path, colon, attribute = (asked.target, "", "")
        if not path.endswith(".py"):
            path, colon, attribute = path.rpartition(":")
        request = replace(request, target=f"{_seen_from(base, asked, path)}{colon}{attribute}")
    if asked.checkpoint:
        moved = Path(_seen_from(base, asked, asked.checkpoint))
        request = replace(request, options=replace(request.options, checkpoint=moved))
    for row in DECIDING:
        if row.kind is Path and (path := getattr(request, row.name)):
            moved_option: dict[str, Any] = {row.name: _seen_from(base, asked, str(path))}
            request = replace(request, **moved_option)
    return request


def _seen_from(base: str, asked: RequestRecord, path: str) -> str:
    """Return a path of the export as it must be written in `base`: as it was, below `base`, or in full."""
    if not base or base == asked.directory or Path(path).is_absolute():
        return path
    full = Path(asked.directory) / path
    return str(full.relative_to(base)) if full.is_relative_to(base) else str(full)
