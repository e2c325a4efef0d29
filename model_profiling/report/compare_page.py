"""The page of `compare A B --html`: verdict, waterfall, modules, both timelines and graphs of each pair."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from model_profiling.analysis.accuracy.agreement import Agreement
from model_profiling.analysis.run.program_pair import ProgramPair
from model_profiling.base import files
from model_profiling.report import change_words, charts, numbers, words
from model_profiling.report.blocks import KeyFigure, Report
from model_profiling.report.charts.waterfall import waterfall
from model_profiling.report.content import pair_changes as content
from model_profiling.report.drawing.drawing_pool import DrawingPool
from model_profiling.report.drawing.theme import LIGHT
from model_profiling.report.graph_page import MOST_IN_REPORT
from model_profiling.report.pair_graph import pair_graph_data
from model_profiling.report.timeline_data import linked_timelines


def write(pairs: Sequence[ProgramPair], artist: DrawingPool, output: Path, title: str = "") -> Path:
    """Write the page of some compared pairs, whole or not at all, and say where."""
    drawn = {
        name: tuple(artist.svg(spec) for spec in specs)
        for name, specs in ((key, _waterfalls(pair)) for key, pair in _keyed(pairs, "waterfall").items())
        if specs
    }
    from model_profiling.report import html  # jinja2 takes a moment to load

    made = report(pairs, title)
    data: dict[str, Any] = {"pairs": [linked_timelines(pair) for pair in pairs]}
    graph = _graph(pairs)
    if graph is not None:
        data["graph"] = graph
    figures = {name: (wide.result(), narrow.result()) for name, (wide, narrow) in drawn.items()}
    files.write_text(output, html.comparison(made, figures, data, list(_keyed(pairs, "changes"))))
    return output


def report(pairs: Sequence[ProgramPair], title: str = "") -> Report:
    """Return what the page says, in blocks."""
    alone = len(pairs) == 1
    latencies = [pair.compared.latency for pair in pairs]
    first = latencies[0]
    busy = words.busy_sentence(latencies)
    unreliable = [side.breakdown.unreliable for pair in pairs for side in (pair.before, pair.after)]
    return Report(
        title or (f"{first.after} against {first.before}" if alone else f"{len(pairs)} comparisons"),
        " · ".join(dict.fromkeys(_how(pair) for pair in pairs)),
        [f"{words.comparison_sentence(each, busy=False)}." for each in latencies],
        [
            section
            for key, pair in _keyed(pairs, "").items()
            for section in content.sections(pair, key, "" if alone else f"{_name(pair)}: ")
        ],
        alerts=[f"{text[0].upper()}{text[1:]}." for text in dict.fromkeys([busy, *unreliable]) if text],
        figures=[figure for pair in pairs for figure in _figures(pair)],
        subdued=not all(each.reliable for each in latencies),
    )


def _keyed(pairs: Sequence[ProgramPair], name: str) -> dict[str, ProgramPair]:
    """Return pairs by a name that no other has: `changes`, `changes-2`."""
    return {f"{name}-{number}" if number > 1 else name: pair for number, pair in enumerate(pairs, 1)}


def _name(pair: ProgramPair) -> str:
    """Return what to call one of several pairs: the name of both where it is one."""
    before, after = pair.compared.latency.before, pair.compared.latency.after
    same = before.removeprefix("A:") == after.removeprefix("B:")
    return after.removeprefix("B:") if same else f"{after} against {before}"


def _how(pair: ProgramPair) -> str:
    latency = pair.compared.latency
    launches = f"{latency.launches} launches per side" if latency.launches > 1 else "one launch per side"
    return f"{launches}, measured {'in turns' if latency.paired else 'separately'}"


def _figures(pair: ProgramPair) -> list[KeyFigure]:
    """Return before, now and the factor; below them, where both have expected outputs, how accurate they are."""
    latency = pair.compared.latency
    found = [
        KeyFigure(f"before: {latency.before}", numbers.ms(latency.before_ms), "median latency, untraced"),
        KeyFigure(f"now: {latency.after}", numbers.ms(latency.after_ms), "median latency, untraced"),
        KeyFigure("speedup", *words.factor(latency)),
    ]
    if len(pair.compared.accuracy) != 2:
        return found
    before, after = pair.compared.accuracy
    differing = [each.left for each in (before, after) if each.verdict == "differs"]
    judged = f"{' and '.join(differing)}: more than the dtype explains" if differing else "as far as the dtype explains"
    return [
        *found,
        KeyFigure("accuracy before", _sqnr(before), "SQNR against eager PyTorch"),
        KeyFigure("accuracy now", _sqnr(after), "SQNR against eager PyTorch"),
        KeyFigure("outputs", "differ" if differing else "agree", f"with eager PyTorch's, {judged}"),
    ]


def _sqnr(agreement: Agreement) -> str:
    if agreement.sqnr_db is not None:
        return f"{agreement.sqnr_db:.1f} dB"
    return "exact" if agreement.max_abs_error == 0 else "not known"


def _waterfalls(pair: ProgramPair) -> list[charts.Spec]:
    """Return the picture for wide and for narrow screens; none where nothing can be told."""
    changes = pair.compared.changes
    if changes is None or not content.has_waterfall(changes):
        return []
    rows = change_words.difference_rows(changes, content.MOST_STEPS)
    sides = (changes.before, changes.after)
    return [waterfall(rows, sides, width, LIGHT, "") for width in (charts.WIDE, charts.NARROW)]


def _graph(pairs: Sequence[ProgramPair]) -> dict[str, Any] | None:
    """Return the graph of both programs as one, as the scripts take it; None where there is none, or too large a one:
    `graph A B` makes it a page of its own."""
    rows = sum(len(side.breakdown.instances) for pair in pairs for side in (pair.before, pair.after))
    found = pair_graph_data(*pairs) if rows <= 2 * MOST_IN_REPORT else {}
    return found if found.get("graphs") else None
