"""Findings about layout changes that the graph shows to be needless: undone again, or asked for by the input.

What reads the graph is imported when there is one: a dump alone has none.
"""

from collections.abc import Iterable, Iterator

from model_profiling.analysis.advice.finding import Evidence, Finding, FindingKind
from model_profiling.analysis.movement.movement import LAYOUT_KINDS, was_applied
from model_profiling.analysis.timing.breakdown import InstanceTime
from model_profiling.analysis.timing.categories import is_custom
from model_profiling.base.records import by_key, sum_by_key
from model_profiling.base.rewrites import LAYOUT
from model_profiling.base.units import counted, shown_ms
from model_profiling.formats.graph_terms import base_name

# Layout changes that nothing better is known of are worth a word from this share on.
_MUCH = 0.15
_MOST_REASONS = 4


def undone_transposes(e: Evidence) -> Iterator[Finding]:
    """Yield findings about transposes that undo each other, as the graph shows."""
    for pair in e.movement.inverse_pairs:
        if e.claimed & set(pair.instances):
            continue
        between = f"between them only {', '.join(pair.between)}" if pair.between else "nothing between them"
        where = f" at {' and '.join(dict.fromkeys(pair.at))}" if pair.at else ""
        step = f"Keep one layout across them: look at the permutes and views of the model{where}."
        yield e.finding(
            FindingKind.UNDONE_TRANSPOSES, f"{pair.second} undoes {pair.first}", pair.instances, step, [between]
        )


def border_layout(e: Evidence) -> Iterator[Finding]:
    """Yield findings about NCHW inputs and outputs that XNNPACK transposes; a caller who uses NHWC needs neither."""
    if e.graph is None or e.export is None or e.export.io_layout == "channels_last":
        return
    # The export could still ask for it; conversions between delegates do not cancel.
    if e.export.request.delegation == "per-op":
        return
    from model_profiling.formats.pte.borders import inputs_to_nhwc, outputs_to_nchw

    inputs = _rows(e, [position for readers in inputs_to_nhwc(e.graph.flow).values() for position in readers])
    outputs = _rows(e, outputs_to_nchw(e.graph.flow).values())
    if not inputs and not outputs:
        return
    said = []
    if inputs:
        said.append(f"the input is transposed to channels-last{'' if len(inputs) == 1 else f' {len(inputs)} times'}")
    if outputs:
        several = "the output is" if len(outputs) == 1 else f"{len(outputs)} outputs are"
        said.append(f"{several} transposed from channels-last")
    step = "Export with --io-layout channels_last, and let the caller use that layout."
    kind = FindingKind.INPUT_LAYOUT if inputs else FindingKind.OUTPUT_LAYOUT
    yield e.finding(kind, " and ".join(said), [*inputs, *outputs], step)


def _rows(e: Evidence, steps: Iterable[int]) -> list[int]:
    """Return the rows of these steps that no finding has claimed, each once."""
    rows = e.graph.rows if e.graph is not None else {}
    return [rows[step] for step in dict.fromkeys(steps) if step in rows and rows[step] not in e.claimed]


def layout_changes(e: Evidence) -> Iterator[Finding]:
    """Yield findings about the layout changes that no other finding is about, once they are a large part."""
    rows = e.free(lambda entry: _changes_layout(e, entry))
    if e.share(rows) < _MUCH:
        return
    kinds = sum_by_key((entry.kind, entry.ms) for entry in (e.breakdown.instances[row] for row in rows))
    shown = ", ".join(f"{kind} {shown_ms(ms)}" for kind, ms in sorted(kinds.items(), key=lambda item: -item[1]))
    what = counted(len(rows), "layout change")
    step = "See where they are in the graph: the chains under data movement show the operators around each."
    if was_applied(e.export, LAYOUT):
        step = f"--rewrite {LAYOUT} left them because they are needed: the evidence says what for."
    yield e.finding(FindingKind.LAYOUT_CHANGES, what, rows, step, [shown, *_reasons(e, rows)])


def _reasons(e: Evidence, rows: Iterable[int]) -> list[str]:
    """Return why transposes are there, costliest first."""
    if e.graph is None:
        return []
    from model_profiling.analysis.movement.layout_reasons import transpose_reasons

    steps, instances = e.graph.steps, e.breakdown.instances
    lines = {step: source for row, step in steps.items() if (source := instances[row].source) is not None}
    known = transpose_reasons(e.graph.flow, lines)
    costs = by_key((known[steps[row]], instances[row].ms) for row in rows if steps.get(row) in known)
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
