"""Lower and run programs that return the values of layers: all of a model, or each layer on clean inputs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import torch

from model_profiling.analysis.accuracy.numerics import Numerics
from model_profiling.base.on_progress import OnProgress
from model_profiling.export.check.failure import stage_failed
from model_profiling.export.numerics.clean_inputs import LayersApart
from model_profiling.export.numerics.eager_layers import EagerLayers
from model_profiling.export.numerics.layer_values import TensorStore, execute
from model_profiling.export.numerics.tapped_runs import LayerValues, OutputFiles, RunVariant, execute_once
from model_profiling.export.numerics.taps import TappedLayer, in_groups, tapped_program
from model_profiling.platforms.base import Platform

# How often to try with fewer taps where ExecuTorch cannot lower the program.
_MORE_ATTEMPTS = 10
Made = TypeVar("Made")


@dataclass
class _InGroups(Generic[Made]):
    """What was made of layers, by groups; those with which it cannot be done are `failed`."""

    made: list[tuple[list[TappedLayer], Made]] = field(default_factory=list)
    failed: list[TappedLayer] = field(default_factory=list)
    failure: Exception | None = None


def _in_groups(
    layers: list[TappedLayer], most_bytes: int, what: str, make: Callable[[list[TappedLayer]], Made], report: OnProgress
) -> _InGroups[Made]:
    """Make something of as many layers at a time as fit; where that fails, of fewer of them."""
    waiting = list(in_groups(layers, most_bytes))
    found = _InGroups[Made]()
    for attempt in range(len(waiting) + _MORE_ATTEMPTS):
        if not waiting:
            break
        group = waiting.pop(0)
        report(f"{what}, program {attempt + 1}", attempt, len(waiting) + attempt + 1)
        try:
            found.made.append((group, make(group)))
        except Exception as error:  # noqa: BLE001 - whatever ExecuTorch raises for a graph that it cannot lower
            found.failure = error
            half = len(group) // 2
            waiting += [group[:half], group[half:]] if half else []
            found.failed += [] if half else group
    found.failed += [layer for group in waiting for layer in group]
    return found


def tapped_programs(
    work: EagerLayers, most_bytes: int, report: OnProgress
) -> tuple[list[Path], list[list[TappedLayer]]]:
    """Return programs that return all layers, and which each has, without layers whose taps cannot be lowered."""

    def lowered(group: list[TappedLayer]) -> bytes:
        return tapped_program(work.pair.ours, [layer.node for layer in group], work.pair.lowering)

    found = _in_groups(work.layers, most_bytes, "lower with taps", lowered, report)
    groups, failed = [group for group, _ in found.made], found.failed
    programs = [work.home / f"tapped_{number}.pte" for number in range(len(groups))]
    for path, (_, program) in zip(programs, found.made, strict=True):
        path.write_bytes(program)
    if not programs:
        raise stage_failed("lower with taps", found.failure or RuntimeError("no layer"), None, "", None)
    if failed:
        work.left_out["ExecuTorch cannot lower the program with a tap there"] = len(failed)
        work.layers = [layer for layer in work.layers if layer not in failed]
    return programs, groups


def run_tapped(
    platform: Platform,
    programs: list[Path],
    groups: list[list[TappedLayer]],
    inputs: tuple[Path, ...],
    each: RunVariant,
    home: Path,
) -> tuple[LayerValues, OutputFiles]:
    """Return the values of all layers, and the outputs of the first program."""
    values, first = LayerValues(), None
    for number, (program, group) in enumerate(zip(programs, groups, strict=True)):
        outputs = execute_once(platform, program, inputs, each, home / str(number))
        values.add(group, outputs)
        first = first or outputs
    assert first is not None
    return values, first


def run_apart(
    work: EagerLayers, numerics: Numerics, platform: Platform, main: RunVariant, most_bytes: int, report: OnProgress
) -> TensorStore:
    """Return the error of each layer that is not exact, computed by the program's kernels on inputs as fp32 gives them.

    Not of layers that cannot be run apart from the others.
    """
    inexact = {layer.name for layer in numerics.worst}
    apart = LayersApart(work.pair, work.layers, work.reference)
    layers = [layer for layer in work.layers if layer.reference in inexact and apart.can(layer)]
    taken = LayerValues()
    computed: set[str] = set()

    def run(group: list[TappedLayer]) -> OutputFiles:
        home = work.home / "apart" / group[0].reference / str(len(group))
        program, inputs = apart.program(group).write(home)
        return execute_once(platform, program, inputs, main, home / "outputs")

    # Each layer has its inputs, too, which are about as large.
    for group, outputs in _in_groups(layers, most_bytes // 2, "run layers apart", run, report).made:
        taken.add(group, outputs)
        computed |= {layer.reference for layer in group}
    errors, by_name = TensorStore(work.home / "apart_errors"), {layer.reference: layer for layer in work.layers}

    def compare(name: str, value: torch.Tensor) -> torch.Tensor:
        layer = by_name[name]
        if name in computed:
            errors.put(name, layer.real(taken.raw(layer)).reshape(value.shape) - value)
        return work.rounded(name).to(value.dtype)

    execute(work.pair.reference, work.pair.reference_call, set(by_name), compare)
    return errors
