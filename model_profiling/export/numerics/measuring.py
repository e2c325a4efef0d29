"""Where a program loses accuracy: run it with taps on every layer, and compare each with eager PyTorch in fp32."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec
import torch

from model_profiling.analysis.accuracy.numerics import Alarm, Gap, Numerics, Trial, Variant, helps, is_fine
from model_profiling.base import files
from model_profiling.base.dtypes import dtype_of
from model_profiling.base.errors import KitError
from model_profiling.base.on_progress import OnProgress
from model_profiling.export.beside import require_for_numerics
from model_profiling.export.exporter import export_loaded
from model_profiling.export.host import host_untouched
from model_profiling.export.numerics.compare_layers import compare_layers, measure_alone
from model_profiling.export.numerics.eager_layers import EagerLayers, LayersApart, Load, eager_layers
from model_profiling.export.numerics.layer_values import (
    LayerValues,
    OutputFiles,
    RunVariant,
    TensorStore,
    execute,
    execute_once,
    own_outputs,
    sides_of,
)
from model_profiling.export.numerics.taps import TappedLayer, in_groups, tapped_program
from model_profiling.export.quiet import kept_off_terminal
from model_profiling.export.request import ExportRequest, ExportResult
from model_profiling.export.stages import stage_failed
from model_profiling.pipeline.pipeline import sample_inputs
from model_profiling.platforms.base import Platform

# How many layers are kept at once at most, of those that alarms name, and of the next worst.
_MOST_ALARMS, _NEXT_WORST = 10, 3


def try_remedies(
    numerics: Numerics, layers: list[TappedLayer], outputs_with: Callable[[list[str], int], dict[str, Gap]]
) -> list[Trial]:
    """Keep what the worst alarm names, then what all name; where nothing helps, their neighbours and the next worst.

    `outputs_with` exports the model with more layers in fp32, for the nth time, and runs it on every side.
    """
    best = {variant.name: variant.outputs for variant in numerics.variants}
    trials: list[Trial] = []
    unusable: set[str] = set()
    for keep in _wider_and_wider(numerics, layers, trials):
        wanted = [name for name in dict.fromkeys(keep) if name not in unusable]
        if not wanted or any(set(wanted) == set(trial.keep) for trial in trials):
            continue
        try:
            outputs = outputs_with(wanted, len(trials) + 1)
        except KitError as error:
            trials.append(Trial(wanted, failure=error.message))
            unusable |= set(wanted)
            continue
        trials.append(Trial(wanted, outputs, helps(numerics, best, outputs)))
        best = outputs if trials[-1].helps else best
    return trials


def _wider_and_wider(numerics: Numerics, layers: list[TappedLayer], trials: list[Trial]) -> Iterator[list[str]]:
    alarms = numerics.alarms[:_MOST_ALARMS]
    if not alarms:
        return
    # Outputs stay NaN until all of those are kept that give it.
    broken = [alarm for alarm in alarms if alarm.kind == "not finite"]
    yield _names(broken or alarms[:1])
    named = _names(alarms)
    yield named
    if is_fine(numerics) or any(trial.helps for trial in trials):
        return
    named = [*named, *_neighbours(named, layers)]
    yield named
    if not any(trial.helps for trial in trials):
        rest = [layer for layer in numerics.worst if layer.keep and not set(layer.keep) <= set(named)]
        yield [*named, *(name for layer in rest[:_NEXT_WORST] for name in layer.keep)]


def _names(alarms: list[Alarm]) -> list[str]:
    return list(dict.fromkeys(name for alarm in alarms for name in alarm.layer.keep))


def _neighbours(names: list[str], layers: list[TappedLayer]) -> list[str]:
    """Return the layers that read those named, or are read by them."""
    by_name, found = {layer.reference: layer for layer in layers}, []
    for layer in layers:
        readers = [by_name[reader].own_name for reader in layer.readers if reader in by_name]
        found += readers if layer.own_name in names else []
        found += [layer.own_name] if set(readers) & set(names) else []
    return [name for name in dict.fromkeys(found) if name and name not in names]


# The values that one tapped program may hand out: who runs it must hold them all at once.
_MOST_BYTES, _MOST_BYTES_HERE = 512 << 20, 4 << 30


def measure_numerics(
    request: ExportRequest,
    made: ExportResult,
    load: Load,
    platform: Platform,
    report: OnProgress,
    most_bytes: int | None = None,
    trial: bool = True,
) -> Numerics:
    """Look at every layer of an exported program and leave what was found beside it; `load` gives the model again.

    `trial`: export what would be recommended, too, and see what it gives.
    """
    # The rewrites have names now, if the export was to choose them.
    request = replace(request, rewrites=tuple(made.record.request.rewrites))
    require_for_numerics(request)
    sides = sides_of(platform, request.dtype)
    inputs, most_bytes = sample_inputs(made.paths, made.record), most_bytes or _most_bytes(platform)
    with files.scratch_directory("sme2-kit-numerics-") as home:
        with kept_off_terminal(request.loud) as said, host_untouched(request.seed):
            work = eager_layers(request, load, home, said, report)
            programs, groups = tapped_programs(work, most_bytes, report)
        variants, values = [], {}
        for each in sides:
            report(f"run {each.name}", 0, 0)
            place = home / each.name
            plain = execute_once(platform, made.paths.pte, inputs, each, place / "plain")
            taken, tapped = run_tapped(platform, programs, groups, inputs, each, place)
            values[each.name] = taken
            variants.append(
                Variant(
                    each.name,
                    each.title,
                    list(each.disabled_features),
                    own_outputs(plain, len(plain), work.outputs),
                    own_outputs(tapped, len(tapped) - len(groups[0]), work.outputs),
                )
            )
        with kept_off_terminal(request.loud), host_untouched(request.seed):
            numerics, errors = compare_layers(request, made, platform, work, variants, values, report)
            apart = run_apart(work, numerics, platform, sides[0], most_bytes, report)
            numerics = measure_alone(numerics, work, errors, apart, report)

        def outputs_with(keep: list[str], number: int) -> dict[str, Gap]:
            place = home / "remedies" / str(number)
            asked = replace(request, keep_fp32=(*request.keep_fp32, *keep), outdir=place)
            kept = export_loaded(
                asked, load, lambda stage: report(f"try remedy {number}: {stage}", 0, 0), cacheable=False
            )
            own = sample_inputs(kept.paths, kept.record)
            gave = {each.name: execute_once(platform, kept.paths.pte, own, each, place / each.name) for each in sides}
            return {name: own_outputs(outputs, len(outputs), work.outputs) for name, outputs in gave.items()}

        if trial and dtype_of(request.dtype).converts:
            numerics = msgspec.structs.replace(numerics, trials=try_remedies(numerics, work.layers, outputs_with))
    files.write_json(made.paths.numerics, numerics)
    return numerics


def _most_bytes(platform: Platform) -> int:
    """Return how much a tapped program may hand out: on this machine a part of its memory."""
    if platform.remote:
        return _MOST_BYTES
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(_MOST_BYTES, min(memory // 8, _MOST_BYTES_HERE))


# How often to try with fewer taps where ExecuTorch cannot lower the program.
_MORE_ATTEMPTS = 10
Made = TypeVar("Made")


def _in_groups(
    layers: list[TappedLayer], most_bytes: int, what: str, make: Callable[[list[TappedLayer]], Made], report: OnProgress
) -> tuple[list[tuple[list[TappedLayer], Made]], list[TappedLayer], Exception | None]:
    """Make something of as many layers at a time as fit; where that fails, of fewer of them.

    Return what was made, by groups, the layers with which it cannot be done, and the last failure.
    """
    waiting, failure = list(in_groups(layers, most_bytes)), None
    made: list[tuple[list[TappedLayer], Made]] = []
    failed: list[TappedLayer] = []
    for attempt in range(len(waiting) + _MORE_ATTEMPTS):
        if not waiting:
            break
        group = waiting.pop(0)
        report(f"{what}, program {attempt + 1}", attempt, len(waiting) + attempt + 1)
        try:
            made.append((group, make(group)))
        except Exception as error:  # noqa: BLE001 - whatever ExecuTorch raises for a graph that it cannot lower
            failure = error
            half = len(group) // 2
            waiting += [group[:half], group[half:]] if half else []
            failed += [] if half else group
    return made, [*failed, *(layer for group in waiting for layer in group)], failure


def tapped_programs(
    work: EagerLayers, most_bytes: int, report: OnProgress
) -> tuple[list[Path], list[list[TappedLayer]]]:
    """Return programs that return all layers, and which each has, without layers whose taps cannot be lowered."""

    def lowered(group: list[TappedLayer]) -> bytes:
        return tapped_program(work.pair.ours, [layer.node for layer in group], work.pair.lowering)

    made, failed, failure = _in_groups(work.layers, most_bytes, "lower with taps", lowered, report)
    programs = [work.home / f"tapped_{number}.pte" for number in range(len(made))]
    for path, (_, program) in zip(programs, made, strict=True):
        path.write_bytes(program)
    if not programs:
        raise stage_failed("lower with taps", failure or RuntimeError("no layer"), None, "", None)
    if failed:
        work.left_out["ExecuTorch cannot lower the program with a tap there"] = len(failed)
        work.layers = [layer for layer in work.layers if layer not in failed]
    return programs, [group for group, _ in made]


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
        home.mkdir(parents=True, exist_ok=True)
        program, inputs = apart.program(group, home)
        return execute_once(platform, program, inputs, main, home / "outputs")

    # Each layer has its inputs, too, which are about as large.
    for group, outputs in _in_groups(layers, most_bytes // 2, "run layers apart", run, report)[0]:
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
