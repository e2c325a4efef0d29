"""Findings about layout changes that the graph shows to be needless: undone again, or asked for by the input.

What reads the graph is imported when there is one: a dump alone has none.
"""

from collections.abc import Iterable, Iterator

from model_profiling.analysis.advice.finding import Evidence, Finding, FindingKind
from model_profiling.analysis.movement.movement import LAYOUT_KINDS
from model_profiling.analysis.movement.rewrite_matches import was_applied
from model_profiling.analysis.timing.breakdown import InstanceTime, SourceLine
from model_profiling.analysis.timing.category_table import is_custom
from model_profiling.base.rewrites import LAYOUT
from model_profiling.base.units import counted, shown_ms
from model_profiling.formats.graph_terms import base_name

# Layout changes that nothing better is known of are worth a word from this share on.
_MUCH = 0.15
_MOST_REASONS = 4


def _lines(e: Evidence) -> dict[int, SourceLine]:
    """Return the lines of the steps that the trace shows."""
    steps = e.graph.steps if e.graph is not None else {}
    rows = ((row, entry.source) for row, entry in enumerate(e.breakdown.instances))
    return {steps[row]: source for row, source in rows if source is not None and row in steps}


def undone_transposes(e: Evidence) -> Iterator[Finding]:
    """Yield findings about transposes that undo each other, as the graph shows."""
    for pair in e.movement.inverse_pairs:
        if e.claimed & set(pair.instances):
            continue
        between = f"between them only {', '.join(pair.between)}" if pair.between else "nothing between them"
        title = f"{e.at(pair.instances, f'{pair.second} undoes {pair.first}')}: {e.of_time(pair.instances)}"
        where = f" at {' and '.join(dict.fromkeys(pair.at))}" if pair.at else ""
        step = f"Keep one layout across them: look at the permutes and views of the model{where}."
        yield e.finding(FindingKind.UNDONE_TRANSPOSES, title, pair.instances, step, [between])


def border_layout(e: Evidence) -> Iterator[Finding]:
    """Yield findings about NCHW inputs and outputs that XNNPACK transposes; a caller who uses NHWC needs neither."""
    if e.graph is None or not _io_layout_helps(e):
        return
    from model_profiling.formats.pte.borders import inputs_to_nhwc, outputs_to_nchw

    inputs = _rows(e, [position for readers in inputs_to_nhwc(e.graph.flow).values() for position in readers])
    outputs = _rows(e, outputs_to_nchw(e.graph.flow).values())
    if not inputs and not outputs:
        return
    rows = [*inputs, *outputs]
    said = []
    if inputs:
        said.append(f"the input is transposed to channels-last{'' if len(inputs) == 1 else f' {len(inputs)} times'}")
    if outputs:
        verb = "is" if len(outputs) == 1 else "are"
        said.append(
            f"{'the output' if len(outputs) == 1 else f'{len(outputs)} outputs'} {verb} transposed from channels-last"
        )
    title = f"{' and '.join(said)}: {e.of_time(rows)}"
    step = "Export with --io-layout channels_last, and let the caller use that layout."
    kind = FindingKind.INPUT_LAYOUT if inputs else FindingKind.OUTPUT_LAYOUT
    yield e.finding(kind, title, rows, step)


def _io_layout_helps(e: Evidence) -> bool:
    """Return whether the export could still ask for it: conversions between delegates do not cancel."""
    asked = e.export.request if e.export is not None else None
    per_op = asked is not None and asked.delegation == "per-op"
    return e.export is not None and e.export.io_layout != "channels_last" and not per_op


def _rows(e: Evidence, steps: Iterable[int]) -> list[int]:
    """Return the rows of these steps that no finding has claimed, each once."""
    rows = e.graph.rows if e.graph is not None else {}
    return [rows[step] for step in dict.fromkeys(steps) if step in rows and rows[step] not in e.claimed]


def layout_changes(e: Evidence) -> Iterator[Finding]:
    """Yield findings about the layout changes that no other finding is about, once they are a large part."""
    rows = e.free(lambda entry: _changes_layout(e, entry))
    if e.share(rows) < _MUCH:
        return
    kinds: dict[str, float] = {}
    for row in rows:
        entry = e.breakdown.instances[row]
        kinds[entry.kind] = kinds.get(entry.kind, 0.0) + entry.ms
    shown = ", ".join(f"{kind} {shown_ms(ms)}" for kind, ms in sorted(kinds.items(), key=lambda item: -item[1]))
    title = f"{e.at(rows, counted(len(rows), 'layout change'))}: {e.of_time(rows)}"
    step = "See where they are in the graph: the chains under data movement show the operators around each."
    if was_applied(e.export, LAYOUT):
        step = f"--rewrite {LAYOUT} left them because they are needed: the evidence says what for."
    yield e.finding(FindingKind.LAYOUT_CHANGES, title, rows, step, [shown, *_reasons(e, rows)])


def _reasons(e: Evidence, rows: Iterable[int]) -> list[str]:
    """Return why transposes are there, costliest first."""
    if e.graph is None:
        return []
    from model_profiling.analysis.movement.layout_reasons import transpose_reasons

    known = transpose_reasons(e.graph.flow, _lines(e))
    costs: dict[str, list[float]] = {}
    for row in rows:
        if e.graph.steps.get(row) in known:
            costs.setdefault(known[e.graph.steps[row]], []).append(e.breakdown.instances[row].ms)
    ordered = sorted(costs.items(), key=lambda item: -sum(item[1]))[:_MOST_REASONS]
    return [f"{len(times)} x {shown_ms(sum(times))}: {why}" for why, times in ordered]


def _changes_layout(e: Evidence, entry: InstanceTime) -> bool:
    # What keeps a value for the next execution, as a cache is kept, changes no layout.
    if entry.kind not in LAYOUT_KINDS or is_custom(entry.operator) or base_name(entry.operator) == "copy_":
        return False
    if entry.kind != "copy" or entry.where == "portable":
        return True
    # XNNPACK runs concatenations as copies: only a delegate without any tells that its copies are copies.
    nodes = [step.op for step in e.graph.flow.steps if step.instruction == entry.instruction] if e.graph else []
    return bool(nodes) and not any(op.startswith("Concatenate") for op in nodes)
