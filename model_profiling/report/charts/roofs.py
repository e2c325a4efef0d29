"""The roofs of a CPU: what probe operators reached, by how much there was to compute and by how much to move."""

from collections.abc import Callable, Sequence

from model_profiling.analysis.roof_table import series_name
from model_profiling.analysis.roofs import SHORTEST_MS, Measurement, Probed
from model_profiling.report.charts.whole import WIDE, Spec, Values, log_ticks, whole
from model_profiling.report.theme import Theme

_HEIGHT = 230
_MARGIN = 60
# Okabe and Ito's, in an order in which neighbours are told apart; black is left out, it is no colour on a dark page.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
_MULTIPLIES = {"fully connected": "matrix product", "conv2d": "3x3 convolution", "depthwise": "depthwise"}
_MOVES = {"copy": "copy", "transpose": "transpose"}


def roofs(measurements: Sequence[Measurement], width: int, theme: Theme, title: str) -> Spec:
    """Above G(FL)OP/s by multiply-accumulates, below GB/s by bytes; one colour for each dtype and feature set."""
    names = [series_name(entry, measurements) for entry in measurements]
    colours = {"domain": names, "range": [_COLOURS[place % len(_COLOURS)] for place in range(len(names))]}
    rates = _values(measurements, names, _MULTIPLIES, lambda p: p.work.multiply_accumulates, lambda p: p.rate)
    moved = _values(measurements, names, _MOVES, lambda p: p.work.bytes, lambda p: p.work.bytes / p.best_ms / 1e6)
    panels = [
        _panel(values, kinds, axes, colours, width, legend, theme)
        for values, kinds, axes, legend in (
            (rates, list(_MULTIPLIES.values()), ("multiply-accumulates", "rate (GOP/s)"), True),
            (moved, list(_MOVES.values()), ("bytes read and written", "bandwidth (GB/s)"), not rates),
        )
        if values
    ]
    spec: Spec = {"vconcat": panels, "spacing": 26, "resolve": {"scale": {"shape": "independent"}}}
    return whole(spec, theme, width, title, "Best rates of probe operators, each a dot")


def _values(
    measurements: Sequence[Measurement],
    names: list[str],
    kinds: dict[str, str],
    x: Callable[[Probed], float],
    y: Callable[[Probed], float],
) -> list[Values]:
    return [
        {"series": name, "kind": kinds[p.kind], "x": x(p), "y": y(p)}
        for entry, name in zip(measurements, names, strict=True)
        for p in entry.probes
        if p.kind in kinds and p.where == "delegated" and p.best_ms >= SHORTEST_MS and x(p) > 0
    ]


def _panel(
    values: list[Values],
    kinds: list[str],
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
                "scale": {"domain": kinds, "range": ["circle", "triangle-up", "cross"][: len(kinds)]},
                "legend": {"orient": "bottom", "title": None, **grey},
            },
        },
    }
