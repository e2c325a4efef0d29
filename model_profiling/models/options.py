"""What a user may add to a model's name; knows nothing of torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class LoadOptions:
    """`shapes` replaces the example inputs of a model from a file; `settings` are arguments of the model's class."""

    shapes: tuple[tuple[int, ...], ...] = ()
    settings: tuple[tuple[str, Any], ...] = ()
    checkpoint: Path | None = None
