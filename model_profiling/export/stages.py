"""The stages of an export: each is timed, announced, and its failure turned into one error."""

import contextlib
import io
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from model_profiling.base.directories import LIMITS
from model_profiling.base.errors import KitError, SetupError
from model_profiling.export.check.failure import stage_failed

Announce = Callable[[str], None]


@dataclass
class Stages:
    """Times the stages, tells the listener which one runs, and turns a stage's failure into the one error."""

    # None where nothing is written: a check.
    log: Path | None
    said: io.StringIO
    announce: Callable[[str], None]
    seconds: dict[str, float] = field(default_factory=dict)
    captured: torch.export.ExportedProgram | None = None

    @contextlib.contextmanager
    def stage(self, name: str, writes: bool = False) -> Iterator[None]:
        self.announce(name)
        started = time.perf_counter()
        try:
            yield
        except KitError:
            raise
        except Exception as error:
            if writes and isinstance(error, OSError):
                raise  # the directory's fault, not the model's
            if isinstance(error, OSError) and error.errno in LIMITS:  # nor when ExecuTorch may start no program
                raise SetupError(f"the export cannot {name}: {error.strerror}", LIMITS[error.errno]) from error
            raise stage_failed(name, error, self.log, self.said.getvalue(), self.captured) from error
        self.seconds[name] = round(time.perf_counter() - started, 3)
