"""What each layer computes in eager PyTorch and in a program that hands its layers out, and how far apart that is."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export.graph_signature import InputKind

from model_profiling.analysis.accuracy.numerics import Gap
from model_profiling.base.errors import RunError
from model_profiling.base.npy import read_values
from model_profiling.export.numerics.taps import TappedLayer
from model_profiling.pipeline.axes import accelerator
from model_profiling.pipeline.phase_experiments import usual_method
from model_profiling.platforms.base import LaunchRequest, Platform
from model_profiling.runner.features import feature_label
from model_profiling.runner.protocol import TensorInfo
from model_profiling.upstream.captured_graphs import Call, flat_inputs

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
    """Return the same of several tensors, each of which counts as much as the others, however large it is; those that
    are no floating-point numbers are left out."""
    noise = signal = energy = product = largest = 0.0
    for one, other in zip(ours, theirs, strict=True):
        if not other.is_floating_point() or not other.numel():
            continue
        a, b = one.to(torch.float32), other.to(torch.float32)
        difference, weight = a - b, 1 / (_square(b) or 1.0)
        noise += weight * _square(difference)
        signal += weight * _square(b)
        energy += weight * _square(a)
        product += weight * float(torch.sum(a * b, dtype=torch.float64))
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


# One execution; an emulator takes hundreds of times as long for it as a CPU.
_TIMEOUT_S = {"measured": 600.0, "emulated": 7200.0}


@dataclass(frozen=True)
class RunVariant:
    """One way to run the program."""

    name: str
    title: str
    disabled_features: tuple[str, ...] = ()


def sides_of(platform: Platform, dtype: str) -> list[RunVariant]:
    """Return the sides to run: everything on, and without what matters most to this dtype (emulated: SME)."""
    name = platform.name
    if platform.timing == "emulated":
        neon = RunVariant(f"{name}_neon", "NEON, emulated", ("sme",))
        has_sme = "sme2" in platform.probe().features
        return (
            [RunVariant(f"{name}_sme2", "SME2, emulated"), neon] if has_sme else [replace(neon, disabled_features=())]
        )
    feature = accelerator(platform, dtype)
    if feature is None:
        return [RunVariant(f"{name}_baseline", name)]
    switched = feature_label(feature)
    return [
        RunVariant(f"{name}_{feature}_on", f"{switched} on"),
        RunVariant(f"{name}_{feature}_off", f"{switched} off", (feature,)),
    ]


@dataclass(frozen=True)
class OutputFiles:
    """What an execution left: a file for each output."""

    base: Path
    tensors: Sequence[TensorInfo]

    def __len__(self) -> int:
        return len(self.tensors)

    def get(self, index: int) -> torch.Tensor:
        """Return one of them, as the program gave it."""
        tensor = self.tensors[index]
        path = self.base.with_name(f"{self.base.name}-{index}.bin")
        try:
            return torch.from_numpy(read_values(path, tensor.dtype, tensor.shape))
        except (OSError, TypeError, ValueError) as error:
            raise RunError(f"output {index} of the runner cannot be read: {error}", f"It is {path}.") from None


def execute_once(
    platform: Platform, program: Path, inputs: tuple[Path, ...], side: RunVariant, home: Path
) -> OutputFiles:
    """Load a program, execute it once, and keep all its outputs in `home`."""
    home.mkdir(parents=True, exist_ok=True)
    base = home / "output"
    asked = LaunchRequest(
        runner=platform.runner(None),
        model=program,
        inputs=inputs,
        threads=1,
        warmup=0,
        disable_features=side.disabled_features,
        log=home / "run.log",
        output_base=base,
        timeout_s=_TIMEOUT_S[platform.timing],
        once=True,
        method=usual_method(program),
    )
    with contextlib.closing(platform.open(asked)) as session:
        return OutputFiles(base, session.finish().outputs)


def own_outputs(outputs: OutputFiles, count: int, reference: list[torch.Tensor]) -> Gap:
    """Return a program's own outputs against those of the fp32 model; nothing is known if they do not correspond."""
    found = [outputs.get(index) for index in range(count)]
    if [tuple(tensor.shape) for tensor in found] != [tuple(tensor.shape) for tensor in reference]:
        return Gap()
    return gap_of_all(found, reference)


class LayerValues:
    """The values of all layers on one side, from the outputs of one or several tapped programs."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[OutputFiles, int]] = {}

    def add(self, layers: list[TappedLayer], outputs: OutputFiles) -> None:
        """Add the values of a tapped program's layers, which are its last outputs."""
        own = len(outputs) - len(layers)
        if own < 0:
            raise RunError(
                "the tapped program gave fewer outputs than it has taps", "Try again without rewrites, and report it."
            )
        self._places |= {layer.reference: (outputs, own + number) for number, layer in enumerate(layers)}

    def raw(self, layer: TappedLayer) -> torch.Tensor:
        outputs, index = self._places[layer.reference]
        return outputs.get(index)
