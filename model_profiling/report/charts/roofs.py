"""The roofs of a CPU: what probe operators reached, by how much there was to compute and by how much to move."""

from collections.abc import Callable, Sequence

from model_profiling.analysis.roofs.roof_rates import GROUPED, PRODUCT, SHORTEST_MS, Measurement, ProbeResult, roof_kind
from model_profiling.analysis.roofs.roof_table import series_name
from model_profiling.report.charts.frame import WIDE, Spec, Values, frame, layer, legend, linear, log_ticks, nominal
from model_profiling.report.drawing.theme import Theme

_HEIGHT = 230
_MARGIN = 60
# Okabe and Ito's, in an order in which neighbours are told apart; black is left out, it is no colour on a dark page.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
_MULTIPLIES = ("matrix product", "3x3 convolution", "depthwise", "grouped")
_MOVES = ("copy", "transpose")
# A few of many: what costs next to nothing, what is computed for each number, and what works row by row.
_COMPUTES = {
    **{"Add": "add", "Sigmoid": "sigmoid", "GELU": "GELU", "portable gelu": "GELU, portable", "Softmax": "softmax"},
    "portable native_layer_norm": "layer norm, portable",
}
_SHAPES = ("circle", "triangle-up", "cross", "diamond", "square", "triangle-down")


def roofs(measurements: Sequence[Measurement], width: int, theme: Theme, title: str) -> Spec:
    """Return G(FL)OP/s by multiply-accumulates, then GB/s by bytes; one colour for each dtype and feature set."""
    names = [series_name(entry, measurements) for entry in measurements]
    colours = [_COLOURS[place % len(_COLOURS)] for place in range(len(names))]
    colour = nominal("series", names, colours, legend(columns=3 if width >= WIDE else 1))
    rates = _values(measurements, names, _multiplies, lambda p: p.work.multiply_accumulates, lambda p: p.rate)
    moved, computed = (
        _values(measurements, names, label, lambda p: p.work.bytes, lambda p: p.bandwidth)
        for label in (lambda p: p.kind if p.kind in _MOVES and p.where == "delegated" else "", _computes)
    )
    bytes_moved = "bytes read and written", "bandwidth (GB/s)"
    every = (
        (rates, _MULTIPLIES, ("multiply-accumulates", "rate (GOP/s)")),
        (moved, _MOVES, bytes_moved),
        (computed, tuple(_COMPUTES.values()), bytes_moved),
    )
    panels: list[Spec] = []
    for values, kinds, axes in (each for each in every if each[0]):
        # One legend of colours is enough.
        panels.append(_panel(values, kinds, axes, {**colour, **({"legend": None} if panels else {})}, width, theme))
    spec: Spec = {"vconcat": panels, "spacing": 26, "resolve": {"scale": {"shape": "independent"}}}
    return frame(spec, theme, width, title, "Best rates of probe operators, each a dot")


def _multiplies(probed: ProbeResult) -> str:
    kind = roof_kind(probed.operator, probed.kind, probed.work, probed.where)
    if kind == PRODUCT:
        return {"fully connected": _MULTIPLIES[0], "conv2d": _MULTIPLIES[1]}.get(probed.kind, "")
    return "grouped" if kind == GROUPED else "depthwise" if probed.kind == "depthwise" else ""


def _computes(probed: ProbeResult) -> str:
    return _COMPUTES.get(roof_kind(probed.operator, probed.kind, probed.work, probed.where), "")


def _values(
    measurements: Sequence[Measurement],
    names: list[str],
    label: Callable[[ProbeResult], str],
    x: Callable[[ProbeResult], float],
    y: Callable[[ProbeResult], float],
) -> list[Values]:
    """Return the probes that have a label, each with what it did and how fast."""
    return [
        {"series": name, "kind": kind, "x": x(p), "y": y(p)}
        for entry, name in zip(measurements, names, strict=True)
        for p in entry.probes
        if p.best_ms >= SHORTEST_MS and x(p) > 0 and (kind := label(p))
    ]


def _panel(
    values: list[Values], kinds: Sequence[str], titles: tuple[str, str], colour: Spec, width: int, theme: Theme
) -> Spec:
    axes: Spec = {}
    for field, title in zip(("x", "y"), titles, strict=True):
        low, high = min(value[field] for value in values) / 1.5, max(value[field] for value in values) * 1.5
        axis = {"title": title, "values": log_ticks(low, high), "format": "~s"}
        axes[field] = {"field": field, **linear(low, high, type="log"), "axis": axis}
    shown = [kind for kind in kinds if any(value["kind"] == kind for value in values)]
    grey = {"symbolFillColor": theme.quiet, "symbolStrokeColor": theme.quiet, "symbolType": None}
    below = {"orient": "bottom", "title": None, "columns": 3 if width >= WIDE else 1, **grey}
    encoding = {**axes, "color": colour, "shape": nominal("kind", shown, _SHAPES[: len(shown)], below)}
    dots = layer("point", values, encoding, filled=True, opacity=0.8, size=42)
    return {"width": width - _MARGIN, "height": _HEIGHT, **dots}
