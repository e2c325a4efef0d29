"""Findings about layout changes that the graph shows to be needless: undone again, or asked for by the input."""

from collections.abc import Iterable, Iterator

from model_profiling.analysis.breakdown import InstanceTime
from model_profiling.analysis.finding import Evidence, Finding, Kind
from model_profiling.analysis.movement import LAYOUT_KINDS, InversePair
from model_profiling.analysis.rewrite_matches import PER_PIXEL, matching
from model_profiling.durations import shown_ms
from model_profiling.pte.borders import turned_inputs, turned_outputs

# Layout changes that nothing better is known of are worth a word from this share on.
_MUCH = 0.15


def per_pixel_layers(e: Evidence) -> Iterator[Finding]:
    """Permutes and views around layers that treat every pixel alike, where the export saw that they can go."""
    if e.graph is None or e.export is None or not (e.export.rewrites or {}).get(PER_PIXEL):
        return
    rows = e.free(lambda entry: entry.kind in LAYOUT_KINDS and entry.source is not None and _matches(e, entry))
    region = {e.graph.steps[row] for row in rows if row in e.graph.steps}
    edges = {e.graph.rows[p] for p in e.graph.feeding(region) | e.graph.taking(region) if p in e.graph.rows}
    claims = {*rows, *edges}
    # What undoes one of them is not needed without it.
    claims.update(row for pair in e.movement.inverse_pairs if claims & set(pair.instances) for row in pair.instances)
    claims -= e.claimed
    if not claims:
        return
    title = f"layout changes around per-pixel layers take {e.share(claims):.0%} of the time"
    step = f"Export with --rewrite {PER_PIXEL}: the layout changes go, and linear layers become 1x1 convolutions."
    yield e.finding(Kind.PER_PIXEL_LAYERS, title, claims, step, rewrite=PER_PIXEL)


def undone_transposes(e: Evidence) -> Iterator[Finding]:
    """Transposes that undo each other, as the graph shows."""
    for pair in e.movement.inverse_pairs:
        if e.claimed & set(pair.instances):
            continue
        between = f"between them only {', '.join(pair.between)}" if pair.between else "nothing between them"
        known = bool(pair.at) and all(_matches(e, e.breakdown.instances[row]) for row in pair.instances)
        rewrite = PER_PIXEL if known else ""
        title = f"{pair.second} undoes {pair.first}, and {_both(pair)} {e.share(pair.instances):.0%} of the time"
        yield e.finding(
            Kind.UNDONE_TRANSPOSES, title, pair.instances, _keep_layout(pair, rewrite), [between], rewrite=rewrite
        )


def _both(pair: InversePair) -> str:
    return "both take" if len(pair.instances) > 1 else "takes"


def _keep_layout(pair: InversePair, rewrite: str) -> str:
    where = f" at {' and '.join(dict.fromkeys(pair.at))}" if pair.at else ""
    if rewrite:
        return f"Export with --rewrite {rewrite}, or keep one layout across the permutes{where}."
    return f"Keep one layout across them: look at the permutes and views of the model{where}."


def input_layout(e: Evidence) -> Iterator[Finding]:
    """XNNPACK turns an NCHW input to NHWC; an NHWC input would not need it if all who read it are such changes."""
    if e.graph is None or not _io_layout_helps(e):
        return
    turns = [position for readers in turned_inputs(e.graph.flow).values() for position in readers]
    if rows := _rows(e, turns):
        often = "" if len(rows) == 1 else f" {len(rows)} times"
        title = f"the input is transposed to channels-last{often}, which takes {e.share(rows):.0%} of the time"
        step = "Export with --io-layout channels_last and feed the input in that layout."
        yield e.finding(Kind.INPUT_LAYOUT, title, rows, step)


def output_layout(e: Evidence) -> Iterator[Finding]:
    """XNNPACK turns its NHWC result to NCHW for the caller alone; a caller who reads NHWC would not need it."""
    if e.graph is None or not _io_layout_helps(e):
        return
    if rows := _rows(e, turned_outputs(e.graph.flow).values()):
        what = "the output is" if len(rows) == 1 else f"{len(rows)} outputs are"
        title = f"{what} transposed from channels-last, which takes {e.share(rows):.0%} of the time"
        step = f"Export with --io-layout channels_last and read {'it' if len(rows) == 1 else 'them'} in that layout."
        yield e.finding(Kind.OUTPUT_LAYOUT, title, rows, step)


def _io_layout_helps(e: Evidence) -> bool:
    """Whether the export could still be asked for it: where every operator is a delegate, conversions do not cancel."""
    asked = e.export.request if e.export is not None else None
    per_op = asked is not None and asked.delegation == "per-op"
    return e.export is not None and e.export.io_layout != "channels_last" and not per_op


def _rows(e: Evidence, steps: Iterable[int]) -> list[int]:
    """The rows of these steps that no finding has claimed, each once."""
    rows = e.graph.rows if e.graph is not None else {}
    return [rows[step] for step in dict.fromkeys(steps) if step in rows and rows[step] not in e.claimed]


def layout_changes(e: Evidence) -> Iterator[Finding]:
    """The layout changes that no other finding is about, once they are a large part."""
    rows = e.free(lambda entry: _changes_layout(e, entry))
    if e.share(rows) < _MUCH:
        return
    kinds: dict[str, float] = {}
    for row in rows:
        entry = e.breakdown.instances[row]
        kinds[entry.kind] = kinds.get(entry.kind, 0.0) + entry.ms
    shown = ", ".join(f"{kind} {shown_ms(ms)}" for kind, ms in sorted(kinds.items(), key=lambda item: -item[1]))
    title = f"layout changes take {e.share(rows):.0%} of the time"
    step = "See where they are in the graph: the chains under data movement show the operators around each."
    yield e.finding(Kind.LAYOUT_CHANGES, title, rows, step, [shown])


def _changes_layout(e: Evidence, entry: InstanceTime) -> bool:
    if entry.kind not in LAYOUT_KINDS:
        return False
    if entry.kind != "copy" or entry.where == "portable":
        return True
    # XNNPACK runs concatenations as copies: only a delegate without any tells that its copies are copies.
    nodes = [step.op for step in e.graph.flow.steps if step.instruction == entry.instruction] if e.graph else []
    return bool(nodes) and not any(op.startswith("Concatenate") for op in nodes)


def _matches(e: Evidence, entry: InstanceTime) -> bool:
    return matching(e.export, entry, PER_PIXEL)
