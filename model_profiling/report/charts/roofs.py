"""The roofs of a CPU: what probe operators reached, by how much there was to compute and by how much to move."""

from collections.abc import Callable, Sequence

from model_profiling.analysis.roofs.roof_rates import GROUPED, PRODUCT, SHORTEST_MS, Measurement, ProbeResult, roof_kind
from model_profiling.analysis.roofs.roof_table import series_name
from model_profiling.report.charts.frame import WIDE, Spec, Values, frame, log_ticks
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
    colours = {"domain": names, "range": [_COLOURS[place % len(_COLOURS)] for place in range(len(names))]}
    rates = _values(measurements, names, _multiplies, lambda p: p.work.multiply_accumulates, lambda p: p.rate)
    moved, computed = (
        _values(measurements, names, label, lambda p: p.work.bytes, lambda p: p.bandwidth)
        for label in (lambda p: p.kind if p.kind in _MOVES and p.where == "delegated" else "", _computes)
    )
    bytes_moved = "bytes read and written", "bandwidth (GB/s)"
    filled = [
        (values, kinds, axes)
        for values, kinds, axes in (
            (rates, _MULTIPLIES, ("multiply-accumulates", "rate (GOP/s)")),
            (moved, _MOVES, bytes_moved),
            (computed, tuple(_COMPUTES.values()), bytes_moved),
        )
        if values
    ]
    panels = [
        _panel(values, kinds, axes, colours, width, place == 0, theme)
        for place, (values, kinds, axes) in enumerate(filled)
    ]
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
    values: list[Values],
    kinds: Sequence[str],
    titles: tuple[str, str],
    colours: Spec,
    width: int,
    legend: bool,
    theme: Theme,
) -> Spec:
    low, high = (f(value["x"] for value in values) for f in (min, max))
    bottom, top = (f(value["y"] for value in values) for f in (min, max))
    axes = [
        {"domain": [a / 1.5, b * 1.5], "title": t} for a, b, t in ((low, high, titles[0]), (bottom, top, titles[1]))
    ]
    x, y = (
        {
            "type": "quantitative",
            "scale": {"type": "log", "domain": axis["domain"], "nice": False},
            "axis": {"title": axis["title"], "values": log_ticks(*axis["domain"]), "format": "~s"},
        }
        for axis in axes
    )
    shown = [kind for kind in kinds if any(value["kind"] == kind for value in values)]
    columns = 3 if width >= WIDE else 1
    grey = {"symbolFillColor": theme.quiet, "symbolStrokeColor": theme.quiet, "symbolType": None}
    return {
        "width": width - _MARGIN,
        "height": _HEIGHT,
        "data": {"values": values},
        "mark": {"type": "point", "filled": True, "opacity": 0.8, "size": 42},
        "encoding": {
            "x": {"field": "x", **x},
            "y": {"field": "y", **y},
            "color": {
                "field": "series",
                "type": "nominal",
                "scale": colours,
                "legend": {"orient": "top", "title": None, "columns": columns} if legend else None,
            },
            "shape": {
                "field": "kind",
                "type": "nominal",
                "scale": {"domain": shown, "range": list(_SHAPES[: len(shown)])},
                "legend": {"orient": "bottom", "title": None, "columns": columns, **grey},
            },
        },
    }
