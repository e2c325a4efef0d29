"""toy_cnn with one 1x1 convolution applied twice: a real model that is known to be about 5 % slower."""

from pathlib import Path

import torch

from model_profiling.analysis.latency import Comparison, compare
from model_profiling.models.toy_cnn.model import ToyCNN, ToyCNNModel
from model_profiling.pipeline.account import Program
from model_profiling.pipeline.schedule import Counts
from model_profiling.pipeline.side_by_side import measure
from model_profiling.platforms.local import LocalPlatform


class SlowerToyCNN(ToyCNN):
    def mix_windows(self, x: torch.Tensor) -> torch.Tensor:
        return super().mix_windows(torch.relu(self.pointwise(x)))


class SlowerToyCNNModel(ToyCNNModel):
    def get_eager_model(self) -> torch.nn.Module:
        return SlowerToyCNN()


def export_slower(outdir: Path, dtype: str) -> Path:
    from model_profiling.export.exporter import ExportRequest, export
    from model_profiling.models import register_model

    register_model("slower_toy_cnn", SlowerToyCNNModel)
    return export(ExportRequest("slower_toy_cnn", outdir, dtype)).paths.pte


def compared(before: Path, after: Path, home: Path, runs: int = 60) -> Comparison:
    """Measure two programs in turns and compare them."""
    programs = {name: Program(pte, name, ()) for name, pte in (("before", before), ("after", after))}
    outcomes = measure(LocalPlatform(), programs, home, 1, lambda *_: None, counts=Counts(runs))
    return compare(("before", outcomes["before"].timed), ("after", outcomes["after"].timed), paired=True)
