"""Which `--rewrite` changes an operator of a trace: only what the export itself tried on this graph is recommended."""

from model_profiling.analysis.timing.breakdown import InstanceTime
from model_profiling.formats.graph_terms import packet
from model_profiling.store.artifacts import ExportRecord

# Which operators of the model a rewrite is for. `layout` is for what stands at the lines that were recorded for it.
_OPERATORS = {
    "attention": ("matmul", "mm", "scaled_dot_product_attention"),
    "copies": (
        *("expand", "expand_as", "expand_copy", "repeat", "repeat_interleave", "select", "select_copy"),
        *("chunk", "split", "split_copy", "split_with_sizes", "split_with_sizes_copy", "unbind", "unbind_copy"),
        *("squeeze", "squeeze_copy", "unsqueeze", "unsqueeze_copy"),
    ),
    "cumsum": ("cumsum",),
    "gelu-tanh": ("gelu",),
    "hardsigmoid": ("hardsigmoid", "hardsigmoid_"),
    "keepdim": ("mean", "sum"),
    "mean": ("mean", "sum"),
    "norm": (
        *("layer_norm", "native_layer_norm", "group_norm", "native_group_norm"),
        *("instance_norm", "rms_norm"),
    ),
    "silu": ("silu", "silu_", "glu"),
    "upsample": (
        *("upsample_nearest2d", "_upsample_nearest_exact2d", "upsample_bicubic2d", "_upsample_bicubic2d_aa"),
        *("_upsample_bilinear2d_aa", "adaptive_avg_pool2d", "_adaptive_avg_pool2d"),
    ),
}
# The rewrites that there are for an operator. An operator may have several, each for another form of it.
REWRITTEN: dict[str, tuple[str, ...]] = {
    f"aten.{operator}": tuple(name for name, operators in _OPERATORS.items() if operator in operators)
    for operators in _OPERATORS.values()
    for operator in operators
}
LAYOUT = "layout"


def origin_of(entry: InstanceTime) -> str:
    """The model's own operator, without its overload; the trace's name for it where the ETRecord does not tell."""
    if entry.source is not None and entry.source.origin:
        return packet(entry.source.origin)
    return packet(entry.operator if "::" in entry.operator else f"aten::{entry.operator}")


def matching(export: ExportRecord | None, entry: InstanceTime, rewrite: str) -> bool:
    """Whether the export saw that the rewrite changes this operator."""
    places = (export.rewrites or {}).get(rewrite, []) if export is not None else []
    if entry.source is None or not entry.source.file:
        return bool(places)
    line = f"{entry.source.file}:{entry.source.line}"
    return any(not place or line == place or line.endswith(f"/{place}") for place in places)


def done(export: ExportRecord | None, rewrite: str) -> bool:
    """Whether the export was asked for the rewrite."""
    return export is not None and rewrite in export.request.rewrites


def unknown(export: ExportRecord | None) -> bool:
    """Whether nobody looked what rewrites would find: the .pte is not the kit's, or the export did not look."""
    return export is None or export.rewrites is None
