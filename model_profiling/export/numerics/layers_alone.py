"""How much of the program's error each layer causes by itself, and what keeping layers in fp32 would give."""

import math
import time
from collections.abc import Callable, Collection, Mapping

import msgspec
import torch

from model_profiling.analysis.accuracy.numerics import Gap, LayerSide, Numerics, level, side
from model_profiling.base.on_progress import OnProgress
from model_profiling.export.numerics.eager_layers import EagerLayers
from model_profiling.export.numerics.layer_values import TensorStore, gap_of_all, outputs_with

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
