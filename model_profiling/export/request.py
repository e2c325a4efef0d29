"""What is asked of an export and what comes of it; knows nothing of torch."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from model_profiling.base.directories import working_directory
from model_profiling.export.options import ExportOptions
from model_profiling.models.options import InputSpec, LoadOptions, setting
from model_profiling.store.artifacts import ExportPaths, ExportRecord, RequestRecord


@dataclass(frozen=True)
class ExportRequest(ExportOptions):
    """What the user asked for. `target` is where the model comes from when that is not its name: `file.py:Class`."""

    loud: bool = False
    target: str = ""
    options: LoadOptions = field(default_factory=LoadOptions)
    # Ends the names of its files, where another export of the model lies beside it.
    suffix: str = ""

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
