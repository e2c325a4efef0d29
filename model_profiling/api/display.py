"""What a notebook shows of a result: sentences, one picture, one table. All names are escaped."""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from model_profiling.api.records import escaped, html_table
from model_profiling.base.errors import KitError
from model_profiling.base.units import counted
from model_profiling.report import numbers

if TYPE_CHECKING:
    from model_profiling.analysis.compare.comparison import PairComparison
    from model_profiling.analysis.run.run_view import RunView
    from model_profiling.api.rows import Row
    from model_profiling.report.charts import Spec

_TOP = 10
_WIDTH = 720


def run_html(run: "RunView", operators: "Sequence[Row]", kernels: "Sequence[Row]", picture: str) -> str:
    """Return the result in sentences, where the time goes, and the top operators."""
    return _paragraphs(_sentences(run)) + picture + _top_operators(run, operators, kernels)


def comparisons_html(found: "Sequence[PairComparison]", picture: str) -> str:
    """Return the verdicts, where the time of both sides goes, and the operators that differ most."""
    from model_profiling.report.words import comparison_sentence, labelled

    text = _paragraphs([comparison_sentence(each.latency) + "." for each in found])
    for each in found[:1]:
        rows = []
        for label, operator in labelled(each.profile.operators)[:_TOP]:
            change = operator.change
            times = numbers.ms(change.before_ms), numbers.ms(change.after_ms)
            rows.append((label, operator.category, *times, numbers.speedup_cell(change).shown))
        picture += html_table(("operator", "category", each.latency.before, each.latency.after, "speedup"), rows)
    return text + picture


def breakdown_picture(run: "RunView") -> str:
    """Return where the time goes, as SVG; empty where no time was measured."""
    from model_profiling.report.charts import of_run

    if not run.path.is_file():
        from model_profiling.report.drawing.theme import LIGHT

        return draw_svg(of_run(run, _WIDTH, LIGHT).get("shift"))
    parts = {name: e.breakdown for name, e in run.summary.experiments.items() if e.breakdown.execute_ms > 0}
    rows = [(name, breakdown.ms_by_category) for name, breakdown in parts.items()]
    return draw_svg(stacked_bars(rows, run.path.name)) if rows else ""


def stacked_bars(rows: Sequence[tuple[str, dict[str, float]]], title: str) -> "Spec":
    """Return bars of time by category, one bar for each row."""
    from model_profiling.report.charts import shift
    from model_profiling.report.drawing.theme import LIGHT

    return shift(rows, _WIDTH, LIGHT, f"{title}: where the time goes")


def draw_svg(spec: "Spec | None") -> str:
    """Return the picture as SVG; a sentence where it cannot be drawn."""
    from model_profiling.report.drawing.drawing_process import DrawingProcess

    if spec is None:
        return ""
    try:
        with contextlib.closing(DrawingProcess()) as hand:
            return str(hand.ask("svg", spec))
    except (KitError, ValueError) as error:
        return f"<p>{escaped(str(error))}</p>"


def not_compared(run: "RunView") -> str:
    """Return why a run has no speedup."""
    if run.path.is_file():
        return "an ETDump alone has traced times of one experiment"
    if not run.measured:
        return "the CPU was emulated: its times mean nothing"
    failed = [run.label(name) for name, record in run.manifest.experiments.items() if record.status != "ok"]
    if failed:
        return f"{', '.join(failed)} failed, so nothing was compared"
    return f"nothing was compared: the run has {counted(len(run.manifest.experiments), 'experiment')} and no pair"


def _sentences(run: "RunView") -> list[str]:
    if run.path.is_file():
        return [f"{run.path.name}: times are traced, and nothing is known of the model or the machine."]
    from model_profiling.report.content.first_screen import sentences, title

    return [title(run), *sentences(run)]


def _paragraphs(sentences: list[str]) -> str:
    first, *others = map(escaped, sentences)
    return "".join([f"<p><b>{first}</b></p>", *(f"<p>{sentence}</p>" for sentence in others)])


def _top_operators(run: "RunView", operators: "Sequence[Row]", kernels: "Sequence[Row]") -> str:
    """Return the top operators of the experiment one wants faster; without times, the operators and their kernels."""
    timed = [row for row in operators if row.ms is not None]
    if timed:
        wanted = timed[0].experiment if run.path.is_file() else next(iter(run.of_interest), timed[0].experiment)
        top = [row for row in timed if row.experiment == wanted][:_TOP]
        rows = [
            (o.operator, o.category, o.where, str(o.instances), numbers.ms(o.ms or 0), numbers.share(o.share or 0))
            for o in top
        ]
        columns = ("operator", "category", "where", "instances", "time", "share")
        return f"<p>Top operators of {escaped(run.label(wanted))}:</p>" + html_table(columns, rows)
    shown = set() if run.path.is_file() else set(run.shown)
    traced = [
        (row.operator, row.category, row.level, ", ".join(row.kernels), row.why_not)
        for row in kernels
        if row.experiment in shown
    ]
    return html_table(("operator", "category", "level", "kernels", "why not SME2"), traced[:_TOP]) if traced else ""
