"""What each layer computes in eager PyTorch, and how far a program's values are from it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export.graph_signature import InputKind

from model_profiling.analysis.accuracy.numerics import Gap
from model_profiling.base.npy import read_values
from model_profiling.export.prepare.samples import Call
from model_profiling.upstream.captured_graphs import flat_inputs

# Takes a node's name and its value, and gives the value to go on with.
Seen = Callable[[str, torch.Tensor], torch.Tensor]


class _Watched(torch.fx.Interpreter):  # type: ignore[misc]
    """Executes a graph node by node; some of them are shown to `seen`."""

    def __init__(self, program: torch.export.ExportedProgram, names: set[str], seen: Seen) -> None:
        super().__init__(program.graph_module)
        self._names = names
        self._seen = seen

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        return self._seen(n.name, value) if n.name in self._names and isinstance(value, torch.Tensor) else value


def execute(program: torch.export.ExportedProgram, call: Call, names: set[str], seen: Seen) -> list[torch.Tensor]:
    """Run a captured graph eagerly and return its outputs; the model's own buffers are left as they are."""
    flat = flat_inputs(program, call)
    kinds = [spec.kind for spec in program.graph_signature.input_specs]
    given = [
        value.clone() if kind != InputKind.PARAMETER and isinstance(value, torch.Tensor) else value
        for value, kind in zip(flat, kinds, strict=True)
    ]
    with torch.no_grad():
        outputs = _Watched(program, names, seen).run(*given, enable_io_processing=False)
    first = len(program.graph_signature.buffers_to_mutate) + len(program.graph_signature.user_inputs_to_mutate)
    return [value.detach().clone() for value in outputs[first:] if isinstance(value, torch.Tensor)]


class TensorStore:
    """Values by name, in files: those of a large model do not fit in memory."""

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._home = home
        self._files: dict[str, tuple[Path, tuple[int, ...]]] = {}

    def put(self, name: str, values: torch.Tensor) -> None:
        path = self._home / f"{len(self._files)}.f32"
        values.detach().to(torch.float32).contiguous().numpy().tofile(path)
        self._files[name] = path, tuple(values.shape)

    def get(self, name: str) -> torch.Tensor:
        path, shape = self._files[name]
        return torch.from_numpy(read_values(path, "float32", shape))

    def __contains__(self, name: str) -> bool:
        return name in self._files


def gap(ours: torch.Tensor, theirs: torch.Tensor) -> Gap:
    """Return how far `ours` is from `theirs`; nothing is known of values that are not finite."""
    return gap_of_all([ours], [theirs])


def gap_of_all(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> Gap:
    """Return the same of several tensors taken together; those that are no floating-point numbers are left out."""
    noise = signal = energy = product = largest = 0.0
    for one, other in zip(ours, theirs, strict=True):
        if not other.is_floating_point() or not other.numel():
            continue
        a, b = one.to(torch.float32), other.to(torch.float32)
        difference = a - b
        noise += _square(difference)
        signal += _square(b)
        energy += _square(a)
        product += float(torch.sum(a * b, dtype=torch.float64))
        largest = max(largest, float(difference.abs().max())) if np.isfinite(noise) else np.nan
    if not np.isfinite([noise, signal, energy, product]).all():
        return Gap()
    norm = float(np.sqrt(energy) * np.sqrt(signal))
    cosine = min(1.0, product / norm) if norm else None
    return Gap(10 * float(np.log10(signal / noise)) if noise and signal else None, cosine, largest)


def _square(values: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(values, dtype=torch.float64)) ** 2


def finite_range(values: torch.Tensor) -> tuple[float | None, float | None]:
    """Return the least and the largest value, of those that are finite."""
    finite = values[torch.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.numel() else (None, None)


def outputs_with(
    reference: torch.export.ExportedProgram, call: Call, errors: Mapping[str, Callable[[str], torch.Tensor]]
) -> list[torch.Tensor]:
    """Return the fp32 outputs if these values had the errors that are read by their names."""
    return execute(reference, call, set(errors), lambda name, value: value + errors[name](name))
