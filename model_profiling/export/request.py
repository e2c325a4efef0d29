"""What is asked of an export and what comes of it; knows nothing of torch."""

from dataclasses import dataclass, field
from pathlib import Path

from model_profiling.artifacts import ExportPaths, ExportRecord
from model_profiling.models.options import LoadOptions


@dataclass(frozen=True)
class ExportRequest:
    """What the user asked for. `target` is where the model comes from when that is not its name: `file.py:Class`."""

    model: str
    outdir: Path
    dtype: str = "fp32"
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

    @property
    def paths(self) -> ExportPaths:
        return ExportPaths.for_export(self.outdir, self.model, self.backend, self.dtype)


@dataclass(frozen=True)
class ExportResult:
    """What is now on disk."""

    paths: ExportPaths
    record: ExportRecord
