"""Where a program loses accuracy: run it with taps on every layer, and hold each against eager PyTorch in fp32."""

import datetime
import io
import os
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import torch

from model_profiling import files
from model_profiling.analysis.numerics import Gap, Layer, LayerSide, Numerics, Variant, side, worst_first
from model_profiling.errors import InputError
from model_profiling.export.command import typed
from model_profiling.export.failure import stage_failed
from model_profiling.export.host import host_untouched
from model_profiling.export.numerics.graph_pair import GraphPair, Load, graph_pair
from model_profiling.export.numerics.layer_values import Kept, execute, finite_range, gap, gap_of_all, outputs_with
from model_profiling.export.numerics.tapped_runs import LayerValues, Outputs, Side, execute_once, sides_of
from model_profiling.export.numerics.taps import TappedLayer, in_groups, layers_of, tapped_program
from model_profiling.export.quiet import kept_off_terminal
from model_profiling.export.request import ExportRequest, ExportResult
from model_profiling.on_progress import OnProgress
from model_profiling.pipeline.pipeline import sample_inputs
from model_profiling.platforms.base import Platform

# The values that one tapped program may hand out: who runs it must hold them all at once.
_MOST_BYTES, _MOST_BYTES_HERE = 512 << 20, 4 << 30
# How long to look at layers alone, one execution of the fp32 model each, and how many at least.
_ALONE_S = 60.0
_ALONE_AT_LEAST = 10
_LARGEST_HALF = 65504.0
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


def measure_numerics(
    request: ExportRequest,
    made: ExportResult,
    load: Load,
    platform: Platform,
    report: OnProgress,
    most_bytes: int | None = None,
) -> Numerics:
    """Look at every layer of an exported program and leave what was found beside it; `load` gives the model again."""
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
                    _own_outputs(plain, len(plain), work.outputs),
                    _own_outputs(tapped, len(tapped) - len(groups[0]), work.outputs),
                )
            )
        with host_untouched(request.seed):
            numerics = _numerics(request, made, platform, work, variants, values, report)
    files.write_json(made.paths.numerics, numerics)
    return numerics


def _most_bytes(platform: Platform) -> int:
    """How much a tapped program may hand out: on this machine a part of its memory."""
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
    if request.rewrites:
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


def _tapped_programs(work: _Work, most_bytes: int, report: OnProgress) -> tuple[list[Path], list[list[TappedLayer]]]:
    """Programs that hand out all layers, and which each has; layers whose taps cannot be lowered are left out."""
    waiting = list(in_groups(work.layers, most_bytes))
    programs: list[Path] = []
    groups: list[list[TappedLayer]] = []
    failed: list[TappedLayer] = []
    failure: Exception | None = None
    for attempt in range(len(waiting) + _MORE_ATTEMPTS):
        if not waiting:
            break
        group = waiting.pop(0)
        report(f"lower with taps, program {attempt + 1}", attempt, len(waiting) + attempt + 1)
        try:
            program = tapped_program(work.pair.ours, [layer.node for layer in group], work.pair.lowering)
        except Exception as error:  # noqa: BLE001 - whatever ExecuTorch raises for a graph that it cannot lower
            failure = error
            half = len(group) // 2
            waiting += [group[:half], group[half:]] if half else []
            failed += [] if half else group
            continue
        programs.append(work.home / f"tapped_{len(programs)}.pte")
        programs[-1].write_bytes(program)
        groups.append(group)
    failed += [layer for group in waiting for layer in group]
    if not programs:
        raise stage_failed("lower with taps", failure or RuntimeError("no layer"), None, "", None)
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
    """The values of all layers, and the outputs of the first program."""
    values, first = LayerValues(), None
    for number, (program, group) in enumerate(zip(programs, groups, strict=True)):
        outputs = execute_once(platform, program, inputs, each, home / str(number))
        values.add(group, outputs)
        first = first or outputs
    assert first is not None
    return values, first


def _own_outputs(outputs: Outputs, count: int, reference: list[torch.Tensor]) -> Gap:
    """A program's own outputs against those of the fp32 model; nothing is known if they do not correspond."""
    found = [outputs.get(index) for index in range(count)]
    if [tuple(tensor.shape) for tensor in found] != [tuple(tensor.shape) for tensor in reference]:
        return Gap()
    return gap_of_all(found, reference)


def _numerics(
    request: ExportRequest,
    made: ExportResult,
    platform: Platform,
    work: _Work,
    variants: list[Variant],
    values: dict[str, LayerValues],
    report: OnProgress,
) -> Numerics:
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
        layers=[_layer(index, layer, work, found[layer.reference]) for index, layer in enumerate(work.layers)],
        left_out=work.left_out,
        command=_command(request, made),
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    )
    return _looked_at_alone(numerics, work, errors, report)


def _command(request: ExportRequest, made: ExportResult) -> str:
    asked = made.record.request
    return "" if asked is None or asked.origin == "memory" else shlex.join(typed(request))


def _sides(work: _Work, taken: LayerValues, keep_error: Callable[[str, torch.Tensor], None]) -> dict[str, LayerSide]:
    """Each layer of one side; the fp32 model goes on from the program's own values, so that each error is its own."""
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
    """The share of what the layer should give that its dtype cannot hold."""
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
    """The share of what should not be 0 and is."""
    there = values != 0
    count = int(there.sum())
    lost = int(((ours == 0) & there).sum())
    return lost / count if count else None


def _layer(index: int, layer: TappedLayer, work: _Work, sides: dict[str, LayerSide]) -> Layer:
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
        keep=_to_keep(layer, work) if layer.own_name else [],
        place=layer.own_name or layer.reference,
    )


def _to_keep(layer: TappedLayer, work: _Work) -> list[str]:
    """What to name so that a layer's error goes: itself, and who reads it if its values do not fit into the dtype.

    A quantized value is quantized for those who read it, even if its layer is kept.
    """
    by_name = {each.reference: each for each in work.layers}
    names = [layer.own_name]
    if layer.scale is not None:
        names += [by_name[reader].own_name for reader in layer.readers]
        return list(dict.fromkeys(filter(None, names)))
    waiting, seen = [layer], {layer.reference}
    while waiting:
        each = waiting.pop()
        low, high = finite_range(work.reference.get(each.reference))
        if each.scale is not None or max(abs(low or 0.0), abs(high or 0.0)) <= _LARGEST_HALF:
            continue
        for reader in each.readers:
            if reader not in seen:
                seen.add(reader)
                names.append(by_name[reader].own_name)
                waiting.append(by_name[reader])
    return list(dict.fromkeys(filter(None, names)))


def _looked_at_alone(numerics: Numerics, work: _Work, errors: Kept, report: OnProgress) -> Numerics:
    """Put the error of one layer at a time into the fp32 model, those that add most first, for a limited time."""
    reference, call = work.pair.reference, work.pair.reference_call
    candidates = [
        layer for layer in worst_first(numerics) if side(numerics, layer).finite and side(numerics, layer).finite_inputs
    ]
    found: dict[int, LayerSide] = {}
    began = time.monotonic()
    for number, layer in enumerate(candidates):
        if number >= _ALONE_AT_LEAST and time.monotonic() - began > _ALONE_S:
            break
        report("look at layers alone", number, len(candidates))
        outputs = outputs_with(reference, call, {layer.name: errors.get(layer.name)})
        own = side(numerics, layer)
        found[layer.index] = msgspec.structs.replace(own, alone=gap_of_all(outputs, work.outputs))
    layers = [
        msgspec.structs.replace(layer, sides={**layer.sides, numerics.main: found[layer.index]})
        if layer.index in found
        else layer
        for layer in numerics.layers
    ]
    return msgspec.structs.replace(numerics, layers=layers, looked_at_alone=len(found), to_look_at=len(candidates))
