"""Compare the values of a program's layers with eager PyTorch, layer by layer: how much of its error each causes by
itself, and what keeping layers in fp32 would give."""

import datetime
import math
import shlex
import time
from collections.abc import Callable, Collection, Mapping

import msgspec
import torch

from model_profiling.analysis.accuracy.numerics import Gap, Layer, LayerSide, Numerics, Variant, level, side
from model_profiling.base import files
from model_profiling.base.on_progress import OnProgress
from model_profiling.export.numerics.eager_layers import EagerLayers
from model_profiling.export.numerics.layer_values import (
    LayerValues,
    TensorStore,
    finite_range,
    gap,
    gap_of_all,
)
from model_profiling.export.numerics.taps import LARGEST_HALF, TappedLayer
from model_profiling.export.prepare.kept_layers import is_kept
from model_profiling.export.request import ExportRequest, ExportResult, typed
from model_profiling.platforms.base import Platform


def compare_layers(
    request: ExportRequest,
    made: ExportResult,
    platform: Platform,
    work: EagerLayers,
    variants: list[Variant],
    values: dict[str, LayerValues],
    report: OnProgress,
) -> tuple[Numerics, TensorStore]:
    """Return each layer against fp32; and the error that each makes on the inputs that the program gives it."""
    found: dict[str, dict[str, LayerSide]] = {layer.reference: {} for layer in work.layers}
    errors = TensorStore(work.home / "errors")
    for number, (name, taken) in enumerate(values.items()):
        report(f"compare the layers of {name}", number, len(values))
        keep = errors.put if number == 0 else lambda name, error: None
        for layer, measured in _sides(work, taken, keep).items():
            found[layer][name] = measured
    producers: dict[str, list[int]] = {layer.reference: [] for layer in work.layers}
    for index, tapped in enumerate(work.layers):
        for reader in tapped.readers:
            if reader in producers:  # some cannot be lowered with a tap
                producers[reader].append(index)
    asked = made.record.request
    numerics = Numerics(
        model=request.model,
        dtype=request.dtype,
        platform=platform.name,
        timing=platform.timing,
        pte_sha256=files.sha256(made.paths.pte),
        variants=variants,
        layers=[
            _layer(index, layer, work, found[layer.reference], request, producers[layer.reference])
            for index, layer in enumerate(work.layers)
        ],
        left_out=work.left_out,
        command="" if asked is None or asked.origin == "memory" else shlex.join(typed(request)),
        kept=list(request.keep_fp32),
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    )
    return numerics, errors


def _sides(
    work: EagerLayers, taken: LayerValues, keep_error: Callable[[str, torch.Tensor], None]
) -> dict[str, LayerSide]:
    """Return each layer of one side; the fp32 model continues from the program's values, so each error is its own."""
    layers, found = work.by_name, {}

    def compare(name: str, value: torch.Tensor) -> torch.Tensor:
        layer = layers[name]
        raw = taken[name]()
        ours = layer.real(raw).reshape(value.shape)
        low, high = finite_range(ours)
        there = value != 0
        count = int(there.sum())
        lost = int(((ours == 0) & there).sum())
        found[name] = LayerSide(
            error=gap(ours, work.reference.get(name)),
            added=gap(ours, value),
            backend=gap(ours, work.eager.get(name)),
            low=low,
            high=high,
            saturated=_saturated(layer, value, raw.dtype),
            rounded_away=lost / count if count else None,
            nan=int(torch.isnan(ours).sum()),
            infinite=int(torch.isinf(ours).sum()),
            finite_inputs=bool(torch.isfinite(value).all()),
        )
        keep_error(name, ours - value)
        return ours.to(value.dtype)

    work.pair.run_reference(layers.keys(), compare)
    return found


def _saturated(layer: TappedLayer, values: torch.Tensor, dtype: torch.dtype) -> float | None:
    """Return the share of what the layer should give that its dtype cannot hold."""
    scale = layer.scale
    if scale is not None:
        steps = values / scale.scale + scale.zero_point
        outside = (steps < scale.low - 0.5) | (steps > scale.high + 0.5)
    elif dtype == torch.float16:
        outside = values.abs() > LARGEST_HALF
    else:
        return None
    return float(outside.to(torch.float64).mean()) if outside.numel() else None


def _layer(
    index: int,
    layer: TappedLayer,
    work: EagerLayers,
    sides: dict[str, LayerSide],
    request: ExportRequest,
    producers: list[int],
) -> Layer:
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
        producers=producers,
    )


def _to_keep(layer: TappedLayer, work: EagerLayers) -> list[str]:
    """Return what to keep so that a layer's error goes: itself, and its readers if its values do not fit the dtype.

    A quantized value is quantized for those who read it, even if its layer is kept.
    """
    by_name, names = work.by_name, [layer.own_name]
    if layer.scale is not None:
        names += [by_name[reader].own_name for reader in layer.readers if reader in by_name]
        return list(dict.fromkeys(filter(None, names)))
    waiting, seen = [layer], {layer.reference}
    while waiting:
        each = waiting.pop()
        low, high = finite_range(work.reference.get(each.reference))
        if each.scale is not None or max(abs(low or 0.0), abs(high or 0.0)) <= LARGEST_HALF:
            continue
        for reader in each.readers:
            if reader in by_name and reader not in seen:
                seen.add(reader)
                names.append(by_name[reader].own_name)
                waiting.append(by_name[reader])
    return list(dict.fromkeys(filter(None, names)))


# How long to look at layers alone, one execution of the fp32 model each, and how many at least.
_ALONE_S = 60.0
_ALONE_AT_LEAST = 10
# For how many alarms to predict what their remedy gives.
_PREDICTED = 10


def measure_alone(
    numerics: Numerics, work: EagerLayers, errors: TensorStore, apart: TensorStore, report: OnProgress
) -> Numerics:
    """Put the error of one layer at a time into the fp32 model, those that add most first, for a limited time.

    The error is that on clean inputs (`apart`), or where nobody knows it, that on what the program gave it.
    """
    known_apart = (layer.name for layer in numerics.layers if layer.name in apart)
    overflows = {name: int((~torch.isfinite(apart.get(name))).sum()) for name in known_apart}
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
        outputs = work.pair.outputs_with({layer.name: known[layer.name].get})
        own = side(numerics, layer)
        found[layer.index] = msgspec.structs.replace(own, alone=gap_of_all(outputs, work.outputs))
    numerics = msgspec.structs.replace(
        _with_sides(numerics, found),
        looked_at_alone=len(found),
        to_look_at=len(candidates),
        not_apart=sum(layer.name not in apart for layer in candidates if layer.index in found),
    )
    return _with_predictions(numerics, work, known)


def _with_predictions(numerics: Numerics, work: EagerLayers, known: Mapping[str, TensorStore]) -> Numerics:
    """Predict what the worst alarms' remedies give: the fp32 model with the errors of all layers that are not kept."""
    all_of_it = level(_outputs_without((), work, known))
    gains = {}
    for alarm in numerics.alarms[:_PREDICTED]:
        kept = level(_outputs_without(alarm.layer.keep, work, known))
        if alarm.layer.keep and math.isfinite(all_of_it) and math.isfinite(kept):
            gains[alarm.layer.index] = kept - all_of_it
    layers = [msgspec.structs.replace(layer, gain_db=gains.get(layer.index)) for layer in numerics.layers]
    return msgspec.structs.replace(numerics, layers=layers)


def _outputs_without(keep: Collection[str], work: EagerLayers, known: Mapping[str, TensorStore]) -> Gap:
    """Return the outputs with the errors of all layers except those that are kept, which lose only what their readers
    cannot take from them."""
    by_name = work.by_name
    errors: dict[str, Callable[[str], torch.Tensor]] = {}
    for name, held in known.items():
        layer = by_name[name]
        if layer.own_name not in keep:
            errors[name] = held.get
        elif not all(by_name[each].own_name in keep for each in layer.readers if each in by_name):
            errors[name] = lambda name: work.rounded(name) - work.reference.get(name)
    return gap_of_all(work.pair.outputs_with(errors), work.outputs)


def _with_sides(numerics: Numerics, sides: dict[int, LayerSide]) -> Numerics:
    """Return the same with what is now known of layers in the first experiment, by their index."""
    layers = [
        msgspec.structs.replace(layer, sides={**layer.sides, numerics.main: sides[layer.index]})
        if layer.index in sides
        else layer
        for layer in numerics.layers
    ]
    return msgspec.structs.replace(numerics, layers=layers)
