"""Compare the values of a program's layers with eager PyTorch, layer by layer."""

import datetime
import shlex
from collections.abc import Callable

import torch

from model_profiling.analysis.accuracy.numerics import Layer, LayerSide, Numerics, Variant
from model_profiling.base import files
from model_profiling.base.on_progress import OnProgress
from model_profiling.export.command import typed
from model_profiling.export.numerics.clean_inputs import LARGEST_HALF
from model_profiling.export.numerics.eager_layers import EagerLayers
from model_profiling.export.numerics.layer_values import TensorStore, execute, finite_range, gap
from model_profiling.export.numerics.tapped_runs import LayerValues
from model_profiling.export.numerics.taps import TappedLayer
from model_profiling.export.prepare.kept_layers import is_kept
from model_profiling.export.request import ExportRequest, ExportResult
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
        command=_command(request, made),
        kept=list(request.keep_fp32),
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    )
    return numerics, errors


def _command(request: ExportRequest, made: ExportResult) -> str:
    asked = made.record.request
    return "" if asked is None or asked.origin == "memory" else shlex.join(typed(request))


def _sides(
    work: EagerLayers, taken: LayerValues, keep_error: Callable[[str, torch.Tensor], None]
) -> dict[str, LayerSide]:
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
        outside = values.abs() > LARGEST_HALF
    else:
        return None
    return float(outside.to(torch.float64).mean()) if outside.numel() else None


def _rounded_away(ours: torch.Tensor, values: torch.Tensor) -> float | None:
    """Return the share of what should not be 0 and is."""
    there = values != 0
    count = int(there.sum())
    lost = int(((ours == 0) & there).sum())
    return lost / count if count else None


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
    by_name = {each.reference: each for each in work.layers}
    names = [layer.own_name]
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
