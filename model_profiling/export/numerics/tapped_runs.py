"""Run a program that hands its layers out, and find their values among its outputs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from model_profiling.analysis.accuracy.numerics import Gap
from model_profiling.base.errors import RunError
from model_profiling.base.npy import read_values
from model_profiling.export.numerics.layer_values import gap_of_all
from model_profiling.export.numerics.taps import TappedLayer
from model_profiling.pipeline.accelerator import accelerator
from model_profiling.pipeline.phase_experiments import usual_method
from model_profiling.platforms.base import LaunchRequest, Platform
from model_profiling.runner.features import feature_label
from model_profiling.runner.protocol import TensorInfo

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
    session = platform.open(
        LaunchRequest(
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
    )
    try:
        return OutputFiles(base, session.finish().outputs)
    finally:
        session.close()


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
