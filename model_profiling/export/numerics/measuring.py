"""Where a program loses accuracy: run it with taps on every layer, and hold each against eager PyTorch in fp32."""

import datetime
import io
import math
import os
import shlex
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import torch

from model_profiling.analysis.accuracy.numerics import Gap, Layer, LayerSide, Numerics, Variant, level, side
from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.base.on_progress import OnProgress
from model_profiling.export.command import typed
from model_profiling.export.failure import stage_failed
from model_profiling.export.host import host_untouched
from model_profiling.export.kept_layers import is_kept
from model_profiling.export.numerics.clean_inputs import LayersApart, rounded
from model_profiling.export.numerics.graph_pair import GraphPair, Load, graph_pair
from model_profiling.export.numerics.layer_values import Kept, execute, finite_range, gap, gap_of_all, outputs_with
from model_profiling.export.numerics.remedies import RemedyRun, try_remedies
from model_profiling.export.numerics.tapped_runs import (
    LayerValues,
    Outputs,
    Side,
    execute_once,
    own_outputs,
    sides_of,
)
from model_profiling.export.numerics.taps import TappedLayer, in_groups, layers_of, tapped_program
from model_profiling.export.quiet import kept_off_terminal
from model_profiling.export.request import ExportRequest, ExportResult
from model_profiling.pipeline.pipeline import sample_inputs
from model_profiling.platforms.base import Platform

# The values that one tapped program may hand out: who runs it must hold them all at once.
_MOST_BYTES, _MOST_BYTES_HERE = 512 << 20, 4 << 30
# How long to look at layers alone, one execution of the fp32 model each, and how many at least.
_ALONE_S = 60.0
_ALONE_AT_LEAST = 10
_LARGEST_HALF = torch.finfo(torch.float16).max
# For how many alarms to predict what their remedy gives.
_PREDICTED = 10
# How often to try with fewer taps where ExecuTorch cannot lower the program.
_MORE_ATTEMPTS = 10


@dataclass
class _Work:
    """All that is known while the layers are looked at; values of layers are in files below `home`."""

    pair: GraphPair
    layers: list[TappedLayer]
    left_out: dict[str, int]
    home: Path
    reference: Kept = field(init=False)
    eager: Kept = field(init=False)
    outputs: list[torch.Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reference, self.eager = Kept(self.home / "fp32"), Kept(self.home / "eager")

    def rounded(self, name: str) -> torch.Tensor:
        """Return what the program can hold of a layer's values in fp32."""
        layer = next(layer for layer in self.layers if layer.reference == name)
        return rounded(layer, self.reference.get(name))

    def rounding(self, name: str) -> torch.Tensor:
        return self.rounded(name) - self.reference.get(name)


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
    sides = sides_of(platform, request.dtype)
    inputs = sample_inputs(made.paths, made.record)
    with files.scratch_directory("sme2-kit-numerics-") as home:
        with kept_off_terminal(request.loud) as said, host_untouched(request.seed):
            work = _eager_values(request, load, home, said, report)
            programs, groups = _tapped_programs(work, most_bytes or _most_bytes(platform), report)
        variants, values = [], {}
        for each in sides:
            report(f"run {each.name}", 0, 0)
            place = home / each.name
            plain = execute_once(platform, made.paths.pte, inputs, each, place / "plain")
            taken, tapped = _run_tapped(platform, programs, groups, inputs, each, place)
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
            numerics, errors = _compared(request, made, platform, work, variants, values, report)
            apart = _run_apart(work, numerics, platform, sides[0], most_bytes or _most_bytes(platform), report)
            numerics = _looked_at_alone(numerics, work, errors, apart, report)
        if trial and request.dtype != "fp32":
            run = RemedyRun(request, load, platform, sides, work.outputs, home / "remedies", report)
            numerics = msgspec.structs.replace(numerics, trials=try_remedies(numerics, work.layers, run))
    files.write_json(made.paths.numerics, numerics)
    return numerics


def _most_bytes(platform: Platform) -> int:
    """Return how much a tapped program may hand out: on this machine a part of its memory."""
    if platform.remote:
        return _MOST_BYTES
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(_MOST_BYTES, min(memory // 8, _MOST_BYTES_HERE))


def _eager_values(request: ExportRequest, load: Load, home: Path, said: io.StringIO, report: OnProgress) -> _Work:
    """Capture the model in both dtypes and keep what each layer gives in eager PyTorch."""
    pair = graph_pair(request, load, said, lambda stage: report(stage, 0, 0))
    layers, left_out = layers_of(pair.ours, pair.reference)
    if not layers:
        raise InputError(
            "the model has no layer whose values can be looked at",
            "Layers must compute floating-point numbers of sizes that are known before the model runs.",
        )
    if request.dtype == "int4":
        # It quantizes the model's own linear layers, not operators of a graph.
        layers = [replace(each, own_name=each.module if each.module_type == "Linear" else "") for each in layers]
    elif request.rewrites:
        # The names of operators are those of the rewritten graph, which nobody can name before it is made.
        layers = [each if each.own_name == each.module else replace(each, own_name="") for each in layers]
    work = _Work(pair, layers, left_out, home)
    report("run the layers in eager PyTorch", 0, 0)
    by_node = {layer.node: layer for layer in layers}

    def keep_ours(name: str, value: torch.Tensor) -> torch.Tensor:
        work.eager.put(by_node[name].reference, by_node[name].real(value))
        return value

    def keep_reference(name: str, value: torch.Tensor) -> torch.Tensor:
        work.reference.put(name, value)
        return value

    execute(pair.ours, pair.our_call, set(by_node), keep_ours)
    names = {layer.reference for layer in layers}
    work.outputs = execute(pair.reference, pair.reference_call, names, keep_reference)
    return work


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


def _tapped_programs(work: _Work, most_bytes: int, report: OnProgress) -> tuple[list[Path], list[list[TappedLayer]]]:
    """Yield programs that return all layers, and which each has, without layers whose taps cannot be lowered."""

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


def _run_tapped(
    platform: Platform,
    programs: list[Path],
    groups: list[list[TappedLayer]],
    inputs: tuple[Path, ...],
    each: Side,
    home: Path,
) -> tuple[LayerValues, Outputs]:
    """Return the values of all layers, and the outputs of the first program."""
    values, first = LayerValues(), None
    for number, (program, group) in enumerate(zip(programs, groups, strict=True)):
        outputs = execute_once(platform, program, inputs, each, home / str(number))
        values.add(group, outputs)
        first = first or outputs
    assert first is not None
    return values, first


def _compared(
    request: ExportRequest,
    made: ExportResult,
    platform: Platform,
    work: _Work,
    variants: list[Variant],
    values: dict[str, LayerValues],
    report: OnProgress,
) -> tuple[Numerics, Kept]:
    """Return each layer against fp32; and the error that each makes on the inputs that the program gives it."""
    found: dict[str, dict[str, LayerSide]] = {layer.reference: {} for layer in work.layers}
    errors = Kept(work.home / "errors")
    for number, (name, taken) in enumerate(values.items()):
        report(f"compare the layers of {name}", number, len(values))
        keep = errors.put if number == 0 else lambda name, error: None
        for layer, measured in _sides(work, taken, keep).items():
            found[layer][name] = measured
    numerics = Numerics(
        model=request.model,
        dtype=request.dtype,
        platform=platform.name,
        timing=platform.timing,
        pte_sha256=files.sha256(made.paths.pte),
        variants=variants,
        layers=[_layer(index, layer, work, found[layer.reference], request) for index, layer in enumerate(work.layers)],
        left_out=work.left_out,
        command=_command(request, made),
        kept=list(request.keep_fp32),
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    )
    return numerics, errors


def _run_apart(
    work: _Work, numerics: Numerics, platform: Platform, main: Side, most_bytes: int, report: OnProgress
) -> Kept:
    """Return the error of each layer that is not exact, computed by the program's kernels on inputs as fp32 gives them.

    Not of layers that cannot be run apart from the others.
    """
    inexact = {layer.name for layer in numerics.worst}
    apart = LayersApart(work.pair, work.layers, work.reference)
    layers = [layer for layer in work.layers if layer.reference in inexact and apart.can(layer)]
    taken = LayerValues()
    computed: set[str] = set()

    def run(group: list[TappedLayer]) -> Outputs:
        home = work.home / "apart" / group[0].reference / str(len(group))
        program, inputs = apart.program(group).write(home)
        return execute_once(platform, program, inputs, main, home / "outputs")

    # Each layer has its inputs, too, which are about as large.
    for group, outputs in _in_groups(layers, most_bytes // 2, "run layers apart", run, report).made:
        taken.add(group, outputs)
        computed |= {layer.reference for layer in group}
    errors, by_name = Kept(work.home / "apart_errors"), {layer.reference: layer for layer in work.layers}

    def compare(name: str, value: torch.Tensor) -> torch.Tensor:
        layer = by_name[name]
        if name in computed:
            errors.put(name, layer.real(taken.raw(layer)).reshape(value.shape) - value)
        return work.rounded(name).to(value.dtype)

    execute(work.pair.reference, work.pair.reference_call, set(by_name), compare)
    return errors


def _command(request: ExportRequest, made: ExportResult) -> str:
    asked = made.record.request
    return "" if asked is None or asked.origin == "memory" else shlex.join(typed(request))


def _sides(work: _Work, taken: LayerValues, keep_error: Callable[[str, torch.Tensor], None]) -> dict[str, LayerSide]:
    """Return each layer of one side; the fp32 model continues from the program's values, so each error is its own."""
    layers = {layer.reference: layer for layer in work.layers}
    found = {}

    def compare(name: str, value: torch.Tensor) -> torch.Tensor:
        layer = layers[name]
        raw = taken.raw(layer)
        ours = layer.real(raw).reshape(value.shape)
        low, high = finite_range(ours)
        found[name] = LayerSide(
            error=gap(ours, work.reference.get(name)),
            added=gap(ours, value),
            backend=gap(ours, work.eager.get(name)),
            low=low,
            high=high,
            saturated=_saturated(layer, value, raw.dtype),
            rounded_away=_rounded_away(ours, value),
            nan=int(torch.isnan(ours).sum()),
            infinite=int(torch.isinf(ours).sum()),
            finite_inputs=bool(torch.isfinite(value).all()),
        )
        keep_error(name, ours - value)
        return ours.to(value.dtype)

    execute(work.pair.reference, work.pair.reference_call, set(layers), compare)
    return found


def _saturated(layer: TappedLayer, values: torch.Tensor, dtype: torch.dtype) -> float | None:
    """Return the share of what the layer should give that its dtype cannot hold."""
    scale = layer.scale
    if scale is not None:
        steps = values / scale.scale + scale.zero_point
        outside = (steps < scale.low - 0.5) | (steps > scale.high + 0.5)
    elif dtype == torch.float16:
        outside = values.abs() > _LARGEST_HALF
    else:
        return None
    return float(outside.to(torch.float64).mean()) if outside.numel() else None


def _rounded_away(ours: torch.Tensor, values: torch.Tensor) -> float | None:
    """Return the share of what should not be 0 and is."""
    there = values != 0
    count = int(there.sum())
    lost = int(((ours == 0) & there).sum())
    return lost / count if count else None


def _layer(index: int, layer: TappedLayer, work: _Work, sides: dict[str, LayerSide], request: ExportRequest) -> Layer:
    reference = work.reference.get(layer.reference)
    low, high = finite_range(reference)
    return Layer(
        index=index,
        name=layer.reference,
        nodes=list(layer.nodes),
        operator=layer.operator,
        module=layer.module,
        module_type=layer.module_type,
        source=layer.source,
        shape=list(layer.shape),
        fused=list(layer.fused),
        low=low,
        high=high,
        dtype=gap(work.eager.get(layer.reference), reference),
        sides=sides,
        quantized=layer.scale is not None,
        keep=[name for name in _to_keep(layer, work) if not is_kept(name, request.keep_fp32)] if layer.own_name else [],
        place=layer.own_name or layer.reference,
    )


def _to_keep(layer: TappedLayer, work: _Work) -> list[str]:
    """Return what to keep so that a layer's error goes: itself, and its readers if its values do not fit the dtype.

    A quantized value is quantized for those who read it, even if its layer is kept.
    """
    by_name = {each.reference: each for each in work.layers}
    names = [layer.own_name]
    if layer.scale is not None:
        names += [by_name[reader].own_name for reader in layer.readers if reader in by_name]
        return list(dict.fromkeys(filter(None, names)))
    waiting, seen = [layer], {layer.reference}
    while waiting:
        each = waiting.pop()
        low, high = finite_range(work.reference.get(each.reference))
        if each.scale is not None or max(abs(low or 0.0), abs(high or 0.0)) <= _LARGEST_HALF:
            continue
        for reader in each.readers:
            if reader in by_name and reader not in seen:
                seen.add(reader)
                names.append(by_name[reader].own_name)
                waiting.append(by_name[reader])
    return list(dict.fromkeys(filter(None, names)))


def _looked_at_alone(numerics: Numerics, work: _Work, errors: Kept, apart: Kept, report: OnProgress) -> Numerics:
    """Put the error of one layer at a time into the fp32 model, those that add most first, for a limited time.

    The error is that on clean inputs (`apart`), or where nobody knows it, that on what the program gave it.
    """
    reference, call = work.pair.reference, work.pair.reference_call
    overflows = {layer.name: _not_finite(apart.get(layer.name)) for layer in numerics.layers if layer.name in apart}
    numerics = _with_sides(
        numerics,
        {
            layer.index: msgspec.structs.replace(side(numerics, layer), overflows=overflows.get(layer.name, 0))
            for layer in numerics.layers
        },
    )
    candidates = [
        layer
        for layer in numerics.worst
        if layer.name in apart or (side(numerics, layer).finite and side(numerics, layer).finite_inputs)
    ]
    known = {layer.name: apart if layer.name in apart else errors for layer in candidates}
    found: dict[int, LayerSide] = {}
    began = time.monotonic()
    for number, layer in enumerate(candidates):
        if number >= _ALONE_AT_LEAST and time.monotonic() - began > _ALONE_S:
            break
        report("look at layers alone", number, len(candidates))
        outputs = outputs_with(reference, call, {layer.name: known[layer.name].get})
        own = side(numerics, layer)
        found[layer.index] = msgspec.structs.replace(own, alone=gap_of_all(outputs, work.outputs))
    numerics = msgspec.structs.replace(
        _with_sides(numerics, found),
        looked_at_alone=len(found),
        to_look_at=len(candidates),
        not_apart=sum(layer.name not in apart for layer in candidates if layer.index in found),
    )
    return _with_predictions(numerics, work, known)


def _with_predictions(numerics: Numerics, work: _Work, known: Mapping[str, Kept]) -> Numerics:
    """Predict what the worst alarms' remedies give: the fp32 model with the errors of all layers that are not kept."""
    all_of_it = level(_outputs_without((), work, known))
    gains = {}
    for alarm in numerics.alarms[:_PREDICTED]:
        kept = level(_outputs_without(alarm.layer.keep, work, known))
        if alarm.layer.keep and math.isfinite(all_of_it) and math.isfinite(kept):
            gains[alarm.layer.index] = kept - all_of_it
    layers = [msgspec.structs.replace(layer, gain_db=gains.get(layer.index)) for layer in numerics.layers]
    return msgspec.structs.replace(numerics, layers=layers)


def _outputs_without(keep: Collection[str], work: _Work, known: Mapping[str, Kept]) -> Gap:
    """Return the outputs with the errors of all layers except those that are kept, which lose only what their readers
    cannot take from them."""
    by_name = {layer.reference: layer for layer in work.layers}
    errors: dict[str, Callable[[str], torch.Tensor]] = {}
    for name, held in known.items():
        layer = by_name[name]
        if layer.own_name not in keep:
            errors[name] = held.get
        elif not all(by_name[each].own_name in keep for each in layer.readers if each in by_name):
            errors[name] = work.rounding
    return gap_of_all(outputs_with(work.pair.reference, work.pair.reference_call, errors), work.outputs)


def _with_sides(numerics: Numerics, sides: dict[int, LayerSide]) -> Numerics:
    """Return the same with what is now known of layers in the first experiment, by their index."""
    layers = [
        msgspec.structs.replace(layer, sides={**layer.sides, numerics.main: sides[layer.index]})
        if layer.index in sides
        else layer
        for layer in numerics.layers
    ]
    return msgspec.structs.replace(numerics, layers=layers)


def _not_finite(error: torch.Tensor) -> int:
    return int((~torch.isfinite(error)).sum())
