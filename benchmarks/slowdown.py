"""toy_cnn with one 1x1 convolution applied twice: a real model that is known to be about 5 % slower."""

import contextlib
from pathlib import Path

import torch

from model_profiling.models.toy_cnn.model import ToyCNN, ToyCNNModel
from model_profiling.platforms.base import Request
from model_profiling.platforms.local import LocalPlatform
from model_profiling.run_directory import Turn


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


def alternate(models: list[Path], log: Path, turns: int = 20, runs: int = 3) -> list[list[Turn]]:
    """Time several models side by side, in turns: what the pipeline does with several feature sets of one model."""
    platform = LocalPlatform()
    runner = platform.runner(None)
    taken: list[list[Turn]] = [[] for _ in models]
    with contextlib.ExitStack() as stack:
        sessions = []
        for model in models:
            session = platform.open(Request(runner, model, (), 1, 3, (), log))
            stack.callback(session.close)
            sessions.append(session)
        for turn in range(turns):
            order = range(len(models)) if turn % 2 else reversed(range(len(models)))
            for index in order:
                taken[index].append(Turn(turn, 0.0, sessions[index].run(runs + 1)[1:]))
    return taken
