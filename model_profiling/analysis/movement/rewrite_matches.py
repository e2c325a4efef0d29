"""Which `--rewrite` changes an operator of a trace: only what the export itself tried on this graph is recommended."""

from model_profiling.analysis.timing.breakdown import InstanceTime
from model_profiling.formats.graph_terms import packet
from model_profiling.store.artifacts import ExportRecord


def origin_of(entry: InstanceTime) -> str:
    """Return the model's own operator, without its overload; else the trace's name for it."""
    if entry.source is not None and entry.source.origin:
        return packet(entry.source.origin)
    return packet(entry.operator if "::" in entry.operator else f"aten::{entry.operator}")


def is_changed_by(export: ExportRecord | None, entry: InstanceTime, rewrite: str) -> bool:
    """Return whether the export saw that the rewrite changes this operator."""
    places = (export.rewrites or {}).get(rewrite, []) if export is not None else []
    if entry.source is None or not entry.source.file:
        return bool(places)
    line = f"{entry.source.file}:{entry.source.line}"
    return any(not place or line == place or line.endswith(f"/{place}") for place in places)


def was_applied(export: ExportRecord | None, rewrite: str) -> bool:
    """Return whether the export was asked for the rewrite."""
    return export is not None and rewrite in export.request.rewrites


def matches_unknown(export: ExportRecord | None) -> bool:
    """Return whether nobody looked what rewrites would find: the .pte is not the kit's, or the export did not look."""
    return export is None or export.rewrites is None
